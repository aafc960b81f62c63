// How much arithmetic a model takes, from its tensor table: what a prefill rate is held against.
// Owner: bench. Pure function of a file.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace inferd::bench {

enum class WeightKind { kInt8, kF32, kBf16 };  // which peak bounds the matrix products

struct ModelShape {
  // Multiplications and additions in the layers' matrix products for one token (attention's own,
  // which grow with depth, and the output matrix, which a prefill needs once, are left out).
  double layer_ops_per_token = 0;
  WeightKind kind = WeightKind::kInt8;  // of the type that holds most of those weights
};

// Errors: those of opening the file.
Result<ModelShape> read_model_shape(const std::string& path);

}  // namespace inferd::bench
