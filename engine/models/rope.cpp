#include "engine/models/rope.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <string>

namespace inferd::engine {

namespace {

// A float key that may be absent.
Result<double> float_or(const formats::GgufFile& file, const std::string& key, double fallback) {
  if (!file.has(key)) return fallback;
  INFERD_ASSIGN(const double value, file.get_float(key));
  if (!std::isfinite(value)) return Error(ErrorCode::kDataCorrupt, "metadata key '" + key + "' is not a finite number");
  return value;
}

Result<std::vector<float>> frequency_factors(const formats::GgufFile& file, uint32_t count) {
  const formats::TensorInfo* tensor = file.find_tensor("rope_freqs.weight");
  if (tensor == nullptr) return std::vector<float>(count, 1.0f);
  if (tensor->type != formats::TensorType::kF32 || tensor->dim_count != 1 || tensor->dims[0] != count) {
    return Error(ErrorCode::kDataCorrupt, "tensor 'rope_freqs.weight' must hold " + std::to_string(count) +
                                              " F32 values, one per rotated pair");
  }
  std::vector<float> factors(count);
  std::vector<uint8_t> bytes(count * sizeof(float));
  INFERD_TRY(file.read_tensor(*tensor, 0, bytes));
  std::memcpy(factors.data(), bytes.data(), bytes.size());
  for (float factor : factors) {
    if (!(factor > 0) || !std::isfinite(factor)) {
      return Error(ErrorCode::kDataCorrupt, "tensor 'rope_freqs.weight' has a factor that is not positive");
    }
  }
  return factors;
}

// Index of the pair that turns `rotations` times within the original context (YaRN, equation 17).
double pair_of_rotations(double rotations, uint32_t dimensions, double context, double base) {
  return dimensions * std::log(context / (rotations * 2 * std::numbers::pi)) / (2 * std::log(base));
}

}  // namespace

Result<void> read_rope(const formats::GgufFile& file, std::string_view architecture, uint32_t context_tokens,
                       ModelShape& shape) {
  const std::string prefix = std::string(architecture) + ".rope.";
  uint64_t dimensions = shape.head_dim;
  if (file.has(prefix + "dimension_count")) {
    INFERD_ASSIGN(dimensions, file.get_uint(prefix + "dimension_count"));
  }
  if (dimensions == 0 || dimensions % 2 != 0 || dimensions > shape.head_dim) {
    return Error(ErrorCode::kDataCorrupt, "metadata key '" + prefix + "dimension_count' is " +
                                              std::to_string(dimensions) + "; expected an even number up to " +
                                              std::to_string(shape.head_dim));
  }
  INFERD_ASSIGN(const double base, float_or(file, prefix + "freq_base", 10000.0));
  if (!(base > 1)) return Error(ErrorCode::kDataCorrupt, "metadata key '" + prefix + "freq_base' must be above 1");

  std::string type = "none";
  if (file.has(prefix + "scaling.type")) {
    INFERD_ASSIGN(const std::string_view text, file.get_string(prefix + "scaling.type"));
    type = text;
  }
  // Old files state a linear factor alone.
  INFERD_ASSIGN(const double old_factor, float_or(file, prefix + "scale_linear", 1.0));
  INFERD_ASSIGN(const double factor, float_or(file, prefix + "scaling.factor", old_factor));
  if (!file.has(prefix + "scaling.type") && factor != 1.0) type = "linear";
  if (type != "none" && !(factor > 0)) {
    return Error(ErrorCode::kDataCorrupt, "metadata key '" + prefix + "scaling.factor' must be positive");
  }
  INFERD_ASSIGN(const double attention_factor, float_or(file, prefix + "scaling.attn_factor", 1.0));

  const auto pairs = static_cast<uint32_t>(dimensions / 2);
  INFERD_ASSIGN(const std::vector<float> factors, frequency_factors(file, pairs));
  shape.rope_frequencies.resize(pairs);
  shape.rope_magnitude = attention_factor;
  for (uint32_t i = 0; i < pairs; ++i) {
    shape.rope_frequencies[i] = std::pow(base, -2.0 * i / static_cast<double>(dimensions)) / factors[i];
  }
  if (type == "none") return {};
  if (type == "linear") {
    for (double& frequency : shape.rope_frequencies) frequency /= factor;
    return {};
  }
  if (type != "yarn") {
    return Error(ErrorCode::kUnsupported, "rotary scaling type '" + type + "' (metadata key '" + prefix +
                                              "scaling.type') is not supported; none, linear and yarn are");
  }
  uint64_t original = context_tokens;
  if (file.has(prefix + "scaling.original_context_length")) {
    INFERD_ASSIGN(original, file.get_uint(prefix + "scaling.original_context_length"));
  }
  if (original == 0) {
    return Error(ErrorCode::kDataCorrupt, "metadata key '" + prefix + "scaling.original_context_length' is 0");
  }
  INFERD_ASSIGN(const double beta_fast, float_or(file, prefix + "scaling.yarn_beta_fast", 32.0));
  INFERD_ASSIGN(const double beta_slow, float_or(file, prefix + "scaling.yarn_beta_slow", 1.0));
  INFERD_ASSIGN(const double extrapolation, float_or(file, prefix + "scaling.yarn_ext_factor", 1.0));
  const auto rotated = static_cast<uint32_t>(dimensions);
  const auto context = static_cast<double>(original);
  const double low = std::max(0.0, std::floor(pair_of_rotations(beta_fast, rotated, context, base)));
  const double high =
      std::min(rotated - 1.0, std::ceil(pair_of_rotations(beta_slow, rotated, context, base)));
  for (uint32_t i = 0; i < pairs; ++i) {
    const double ramp = std::clamp((i - low) / std::max(0.001, high - low), 0.0, 1.0);
    const double extrapolated = (1 - ramp) * extrapolation;
    const double frequency = shape.rope_frequencies[i];
    shape.rope_frequencies[i] = frequency / factor * (1 - extrapolated) + frequency * extrapolated;
  }
  if (extrapolation != 0) shape.rope_magnitude *= 1 + 0.1 * std::max(0.0, std::log(factor));
  return {};
}

}  // namespace inferd::engine
