// The kernels in C++ alone: the reference that every other table must equal bit for bit.
// Plain loops, one per formula; nothing here is shared with the vector code, so a fault in one shows.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/ids.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/kernels_tables.h"

namespace inferd::engine::cpu {

using formats::TensorType;

namespace {

uint16_t load_u16(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// e^x by range reduction to |r| <= ln(2)/2 and a polynomial of degree 6 (Taylor coefficients); relative error
// below 3e-7. Exactly 0 below -80, so that a weight is either zero or large enough never to underflow.
float exp_polynomial(float x) {
  if (!(x >= -80.0f)) return 0.0f;
  if (x > 88.0f) x = 88.0f;
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = std::fmaf(x, 1.44269504f, kMagic);
  const float n = shifted - kMagic;
  float r = std::fmaf(n, -0.693359375f, x);
  r = std::fmaf(n, 2.12194440e-4f, r);
  float p = 1.0f / 720;
  p = std::fmaf(p, r, 1.0f / 120);
  p = std::fmaf(p, r, 1.0f / 24);
  p = std::fmaf(p, r, 1.0f / 6);
  p = std::fmaf(p, r, 0.5f);
  p = std::fmaf(p, r, 1.0f);
  p = std::fmaf(p, r, 1.0f);
  const auto exponent = static_cast<uint32_t>(std::bit_cast<int32_t>(shifted) << 23);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + exponent);
}

// Joins 16 partial sums by halving.
float join_sums(std::array<float, 16> partial) {
  for (uint32_t half = 8; half > 0; half /= 2) {
    for (uint32_t i = 0; i < half; ++i) partial[i] = partial[i] + partial[i + half];
  }
  return partial[0];
}

void write_result(const ProductOut& out, uint32_t token, uint32_t row, float y) {
  if (out.bias != nullptr) y = y + out.bias[row];
  float& place = out.values[token * out.stride + row];
  place = out.accumulate ? place + y : y;
}

// Exact integer dot product of a lane's 32 codes with a token's.
int32_t block_dot(const PackedMatrix& w, const uint8_t* block, uint32_t lane, const int8_t* codes,
                  uint32_t first, uint32_t last) {
  const uint32_t vector = 4 * w.lanes;
  int32_t sum = 0;
  for (uint32_t k = first; k < last; ++k) {
    const uint32_t c = k / 4, place = 4 * lane + k % 4;
    int32_t code;
    if (w.type == TensorType::kQ8_0) {
      code = static_cast<int8_t>(block[c * vector + place]);
    } else {
      code = (block[(c / 2) * vector + place] >> (4 * (c % 2))) & 15;
      if (w.type == TensorType::kQ6_K) {
        code |= ((block[(4 + c / 4) * vector + place] >> (2 * (c % 4))) & 3) << 4;
      } else if (w.block_code_bytes() == 5 * vector) {
        code |= ((block[4 * vector + place] >> c) & 1) << 4;
      }
    }
    sum += code * codes[k];
  }
  return sum;
}

float half_at(const uint8_t* base, size_t index) { return half_to_float(load_u16(base + 2 * index)); }

// Sum of a lane's codes, as block_dot reads them.
int32_t code_sum(const PackedMatrix& w, const uint8_t* block, uint32_t lane, uint32_t first, uint32_t last) {
  std::array<int8_t, kBlock> ones;
  ones.fill(1);
  return block_dot(w, block, lane, ones.data(), first, last);
}

// Scale and minimum of a block, so that weight = scale * code + minimum. (Q6_K has its own way.)
struct BlockScale {
  float d = 0, min = 0;
};

BlockScale block_scale(const PackedMatrix& w, const uint8_t* scales, uint32_t lane, uint32_t b) {
  const uint32_t lanes = w.lanes;
  switch (w.type) {
    case TensorType::kQ8_0: return {half_at(scales, size_t{b} * lanes + lane), 0};
    case TensorType::kQ4_0: {
      const float d = half_at(scales, size_t{b} * lanes + lane);
      return {d, d * -8.0f};
    }
    case TensorType::kQ5_0: {
      const float d = half_at(scales, size_t{b} * lanes + lane);
      return {d, d * -16.0f};
    }
    case TensorType::kQ4_1:
    case TensorType::kQ5_1:
      return {half_at(scales, size_t{b} * 2 * lanes + lane), half_at(scales, size_t{b} * 2 * lanes + lanes + lane)};
    default: {
      const uint8_t* super = scales + size_t{b / 8} * lanes * 20;
      const uint8_t* pair = super + 4 * lanes + (b % 8) * 2 * lanes;
      return {half_at(super, lane) * static_cast<float>(pair[lane]),
              half_at(super, lanes + lane) * -static_cast<float>(pair[lanes + lane])};
    }
  }
}

// Row `lane` of a tile times one token.
float quantized_row(const PackedMatrix& w, const uint8_t* tile, uint32_t lane, const Activations& x,
                    uint32_t token) {
  const uint32_t blocks = w.columns / kBlock, lanes = w.lanes;
  const uint8_t* scales = tile + w.scale_offset;
  float sum = 0;
  for (uint32_t b = 0; b < blocks; ++b) {
    const uint8_t* block = tile + b * w.block_code_bytes();
    const size_t place = size_t{token} * blocks + b;
    const int8_t* codes = x.codes + place * kBlock;
    int32_t dot, ones;
    BlockScale scale;
    if (w.type == TensorType::kQ6_K) {
      const uint8_t* super = scales + size_t{b / 8} * lanes * 18;
      scale.d = half_at(super, lane);
      dot = ones = 0;
      for (uint32_t half = 0; half < 2; ++half) {
        const auto s = static_cast<int8_t>(super[2 * lanes + (b % 8 * 2 + half) * lanes + lane]);
        const uint32_t first = 16 * half, last = first + 16;
        dot += s * (block_dot(w, block, lane, codes, first, last) - 32 * x.half_sums[place * 2 + half]);
        ones += s * (code_sum(w, block, lane, first, last) - 512);
      }
    } else {
      scale = block_scale(w, scales, lane, b);
      dot = block_dot(w, block, lane, codes, 0, kBlock);
      ones = code_sum(w, block, lane, 0, kBlock);
    }
    const float product = std::fmaf(static_cast<float>(ones), x.offsets[place], static_cast<float>(dot) * x.scales[place]);
    sum = std::fmaf(scale.d, product, sum);
    if (w.type != TensorType::kQ8_0 && w.type != TensorType::kQ6_K) sum = std::fmaf(scale.min, x.sums[place], sum);
  }
  return sum;
}

float float_row(const PackedMatrix& w, const uint8_t* tile, uint32_t lane, const float* x) {
  float sum = 0;
  for (uint32_t k = 0; k < w.columns; ++k) {
    const size_t at = size_t{k} * w.lanes + lane;
    float weight;
    if (w.type == TensorType::kF32) {
      std::memcpy(&weight, tile + 4 * at, 4);
    } else if (w.type == TensorType::kF16) {
      weight = half_to_float(load_u16(tile + 2 * at));
    } else {
      weight = std::bit_cast<float>(uint32_t{load_u16(tile + 2 * at)} << 16);
    }
    sum = std::fmaf(weight, x[k], sum);
  }
  return sum;
}

void product(const PackedMatrix& w, uint32_t tile_first, uint32_t tile_last, const Activations& x,
             uint32_t tokens, const ProductOut& out) {
  for (uint32_t t = tile_first; t < tile_last; ++t) {
    const uint8_t* tile = w.data + size_t{t} * w.tile_bytes;
    for (uint32_t lane = 0; lane < w.lanes && t * w.lanes + lane < w.rows; ++lane) {
      for (uint32_t token = 0; token < tokens; ++token) {
        const float y = w.quantized() ? quantized_row(w, tile, lane, x, token)
                                      : float_row(w, tile, lane, x.values + size_t{token} * w.columns);
        write_result(out, token, t * w.lanes + lane, y);
      }
    }
  }
}

void quantize(const float* values, uint32_t blocks, const BlockOut& out) {
  for (uint32_t b = 0; b < blocks; ++b) {
    const float* v = values + size_t{b} * kBlock;
    float smallest = INFINITY, largest = -INFINITY;
    for (uint32_t i = 0; i < kBlock; ++i) {
      smallest = smallest < v[i] ? smallest : v[i];
      largest = largest > v[i] ? largest : v[i];
    }
    const float offset = 0.5f * largest + 0.5f * smallest;
    const float spread = 0.5f * largest - 0.5f * smallest;
    const float inverse = spread >= kSmallestSpread ? 127.0f / spread : 0.0f;
    int32_t halves[2] = {0, 0};
    for (uint32_t i = 0; i < kBlock; ++i) {
      // Adding and taking away 1.5 * 2^23 rounds to the nearest even integer.
      float rounded = ((v[i] - offset) * inverse + 12582912.0f) - 12582912.0f;
      // Values that are no numbers (a broken model) stay within the code's range.
      rounded = rounded < 127.0f ? rounded : 127.0f;
      rounded = rounded > -127.0f ? rounded : -127.0f;
      const auto code = static_cast<int32_t>(rounded);
      out.codes[size_t{b} * kBlock + i] = static_cast<int8_t>(code);
      halves[i / 16] += code;
    }
    out.scales[b] = spread / 127.0f;
    out.offsets[b] = offset;
    out.sums[b] = std::fmaf(out.scales[b], static_cast<float>(halves[0] + halves[1]), 32.0f * offset);
    out.half_sums[2 * b] = halves[0];
    out.half_sums[2 * b + 1] = halves[1];
  }
}

void rms_norm(const float* x, const float* weight, uint32_t count, float epsilon, float* out) {
  std::array<float, 16> partial{};
  for (uint32_t i = 0; i < count; ++i) partial[i % 16] = std::fmaf(x[i], x[i], partial[i % 16]);
  const float scale = 1.0f / std::sqrt(join_sums(partial) / static_cast<float>(count) + epsilon);
  for (uint32_t i = 0; i < count; ++i) out[i] = x[i] * scale * weight[i];
}

void silu_multiply(float* gate, const float* up, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    const float sigmoid = 1.0f / (1.0f + exp_polynomial(0.0f - gate[i]));
    gate[i] = gate[i] * sigmoid * up[i];
  }
}

void to_half(const float* values, uint32_t count, uint16_t* halves) {
  for (uint32_t i = 0; i < count; ++i) halves[i] = float_to_half_saturating(values[i]);
}

void attention_row(const AttentionBlockArgs& a, const float* query, uint32_t valid, float* state) {
  const uint32_t pages = (valid + kPageTokens - 1) / kPageTokens;
  const uint32_t positions = pages * kPageTokens;
  std::array<float, kAttentionBlock> weights;
  float largest = -INFINITY;
  for (uint32_t j = 0; j < positions; ++j) {
    float even = 0, odd = 0;
    const uint16_t* key = a.keys[j / kPageTokens] + size_t{j % kPageTokens} * 2;
    for (uint32_t d = 0; d < a.head_dim; d += 2) {
      even = std::fmaf(half_to_float(key[size_t{d} * kPageTokens]), query[d], even);
      odd = std::fmaf(half_to_float(key[size_t{d} * kPageTokens + 1]), query[d + 1], odd);
    }
    weights[j] = j < valid ? even + odd : -INFINITY;
    largest = largest > weights[j] ? largest : weights[j];
  }
  const float maximum = state[0] > largest ? state[0] : largest;
  const float rescale = exp_polynomial(state[0] - maximum);
  std::array<float, 16> partial{};
  for (uint32_t j = 0; j < positions; ++j) {
    weights[j] = exp_polynomial(weights[j] - maximum);
    partial[j % 16] = partial[j % 16] + weights[j];
  }
  state[0] = maximum;
  state[1] = std::fmaf(state[1], rescale, join_sums(partial));
  for (uint32_t d = 0; d < a.head_dim; ++d) {
    // Adding zero turns a -0 that the rescaling may leave into +0, so that a zero weight changes nothing.
    float sum = state[kStateOutput + d] * rescale + 0.0f;
    for (uint32_t j = 0; j < positions; ++j) {
      const uint16_t value = a.values[j / kPageTokens][size_t{j % kPageTokens} * a.head_dim + d];
      sum = std::fmaf(weights[j], half_to_float(value), sum);
    }
    state[kStateOutput + d] = sum;
  }
}

void attention_block(const AttentionBlockArgs& a) {
  for (uint32_t r = 0; r < a.token_count * a.group; ++r) {
    const uint32_t token = r / a.group;
    const float* query = a.queries + token * a.query_stride + size_t{r % a.group} * a.head_dim;
    attention_row(a, query, a.valid[token], a.states + r * a.state_stride);
  }
}

void attention_join(bool first, uint32_t head_dim, float* m1, float* l1, float* o1, const float* m2,
                    const float* l2, const float* o2) {
  if (first) {
    *m1 = *m2;
    *l1 = *l2;
    std::memcpy(o1, o2, head_dim * sizeof(float));
    return;
  }
  const float maximum = *m1 > *m2 ? *m1 : *m2;
  const float a1 = exp_polynomial(*m1 - maximum), a2 = exp_polynomial(*m2 - maximum);
  *m1 = maximum;
  *l1 = std::fmaf(*l2, a2, *l1 * a1);
  for (uint32_t d = 0; d < head_dim; ++d) o1[d] = std::fmaf(o2[d], a2, o1[d] * a1);
}

}  // namespace

const Kernels kKernelsPortable{Isa::kPortable, product,         quantize,      rms_norm,
                               silu_multiply,  to_half, attention_block, attention_join, nullptr};

}  // namespace inferd::engine::cpu
