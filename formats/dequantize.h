// Reference dequantization of every tensor type that can be read: stored blocks to f32.
// Owner: formats. Pure function, any thread. It is the measure for the engine's kernels and serves
// the places that are not worth a kernel (an embedding row, a test); it is not fast.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "formats/gguf.h"

namespace inferd::formats {

// blocks: [n] whole blocks as the file stores them, CPU. out: [n * block_elements] f32, CPU.
// Each value is computed with the operations, in the order, of the format's definition (scale times
// quant, minus minimum; every product and sum rounded to f32), so results are equal by bits to any
// other implementation that does so. Errors: kUnsupported for a type that cannot be read,
// kInvalidArgument if the sizes do not fit each other.
Result<void> dequantize(TensorType type, std::span<const uint8_t> blocks, std::span<float> out);

}  // namespace inferd::formats
