// Rotary embedding's frequencies with the scaling variants that GGUF metadata names.
// Owner: engine/models. Pure; any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/ops/ops.h"
#include "formats/gguf.h"

namespace inferd::engine {

// Fills shape.rope_frequencies and shape.rope_magnitude from `<architecture>.rope.*` and, if the file has
// them, the per-frequency factors of the tensor rope_freqs.weight (llama 3). Scaling types: none, linear
// (positions divided by a factor) and yarn (Peng et al. 2023, "YaRN", section 3). shape.head_dim must be set.
// Not read: scaling.yarn_attn_factor, which converters write in two meanings; scaling.attn_factor is.
Result<void> read_rope(const formats::GgufFile& file, std::string_view architecture, uint32_t context_tokens,
                       ModelShape& shape);

}  // namespace inferd::engine
