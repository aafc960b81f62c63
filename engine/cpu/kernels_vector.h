// The kernels as templates over a register type S (simd_avx2.h, simd_avx512.h). Included by the files that
// are compiled for one instruction set each; everything is in an unnamed namespace, so no two files can share
// a function that was compiled for the wrong processor.
// Owner: engine/cpu, private to it. Orders of summation: see kernels.h.
#pragma once

#include <cmath>
#include <cstring>

#include "engine/cpu/kernels.h"
#include "engine/cpu/kernels_attention.h"
#include "engine/cpu/kernels_exponential.h"
#include "engine/cpu/kernels_products.h"

namespace inferd::engine::cpu {
namespace {

// ---- element-wise ----

template <class S>
void quantize(const float* values, uint32_t blocks, const BlockOut& out) {
  using F = typename S::F;
  using I = typename S::I;
  constexpr uint32_t L = S::kLanes, kParts = kBlock / L;
  for (uint32_t b = 0; b < blocks; ++b) {
    F v[kParts];
    F low = S::set1(INFINITY), high = S::set1(-INFINITY);
    for (uint32_t i = 0; i < kParts; ++i) {
      v[i] = S::load(values + size_t{b} * kBlock + i * L);
      low = S::min(low, v[i]);
      high = S::max(high, v[i]);
    }
    const float largest = S::max_lane(high), smallest = -S::max_lane(S::sub(S::zero(), low));
    const float offset = 0.5f * largest + 0.5f * smallest;
    const float spread = 0.5f * largest - 0.5f * smallest;
    const F inverse = S::set1(spread >= kSmallestSpread ? 127.0f / spread : 0.0f), center = S::set1(offset);
    int32_t halves[2];
    for (uint32_t h = 0; h < 2; ++h) {
      I sum = S::izero();
      for (uint32_t i = h * kParts / 2; i < (h + 1) * kParts / 2; ++i) {
        const F scaled = S::mul(S::sub(v[i], center), inverse);
        const I code = S::round_to_int(S::max(S::min(scaled, S::set1(127.0f)), S::set1(-127.0f)));
        S::store_codes(out.codes + size_t{b} * kBlock + i * L, code);
        sum = S::iadd(sum, code);
      }
      halves[h] = S::sum_lanes(sum);
    }
    out.scales[b] = spread / 127.0f;
    out.offsets[b] = offset;
    out.sums[b] = std::fmaf(out.scales[b], static_cast<float>(halves[0] + halves[1]), 32.0f * offset);
    out.half_sums[2 * b] = halves[0];
    out.half_sums[2 * b + 1] = halves[1];
  }
}

template <class S>
void rms_norm(const float* x, const float* weight, uint32_t count, float epsilon, float* out) {
  using F = typename S::F;
  constexpr uint32_t L = S::kLanes, kParts = 16 / L;
  F partial[kParts];
  for (F& p : partial) p = S::zero();
  uint32_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (uint32_t j = 0; j < kParts; ++j) {
      const F v = S::load(x + i + j * L);
      partial[j] = S::fma(v, v, partial[j]);
    }
  }
  if (i < count) {
    float tail[16] = {};
    std::memcpy(tail, x + i, (count - i) * sizeof(float));
    for (uint32_t j = 0; j < kParts; ++j) {
      const F v = S::load(tail + j * L);
      partial[j] = S::fma(v, v, partial[j]);
    }
  }
  const float scale = 1.0f / std::sqrt(S::join(partial) / static_cast<float>(count) + epsilon);
  const F scales = S::set1(scale);
  for (i = 0; i + L <= count; i += L) {
    S::store(out + i, S::mul(S::mul(S::load(x + i), scales), S::load(weight + i)));
  }
  for (; i < count; ++i) out[i] = x[i] * scale * weight[i];
}

template <class S>
typename S::F silu_times(typename S::F gate, typename S::F up) {
  const auto one = S::set1(1.0f);
  const auto sigmoid = S::div(one, S::add(one, exp_polynomial<S>(S::sub(S::zero(), gate))));
  return S::mul(S::mul(gate, sigmoid), up);
}

template <class S>
void silu_multiply(float* gate, const float* up, uint32_t count) {
  constexpr uint32_t L = S::kLanes;
  uint32_t i = 0;
  for (; i + L <= count; i += L) S::store(gate + i, silu_times<S>(S::load(gate + i), S::load(up + i)));
  if (i < count) {
    float g[L] = {}, u[L] = {};
    std::memcpy(g, gate + i, (count - i) * sizeof(float));
    std::memcpy(u, up + i, (count - i) * sizeof(float));
    S::store(g, silu_times<S>(S::load(g), S::load(u)));
    std::memcpy(gate + i, g, (count - i) * sizeof(float));
  }
}

template <class S>
void to_half(const float* values, uint32_t count, uint16_t* halves) {
  constexpr uint32_t L = S::kLanes;
  const auto saturate = [](typename S::F v) { return S::max(S::min(v, S::set1(65504.0f)), S::set1(-65504.0f)); };
  uint32_t i = 0;
  for (; i + L <= count; i += L) S::to_half(halves + i, saturate(S::load(values + i)));
  if (i < count) {
    float v[L] = {};
    uint16_t h[L];
    std::memcpy(v, values + i, (count - i) * sizeof(float));
    S::to_half(h, saturate(S::load(v)));
    std::memcpy(halves + i, h, (count - i) * sizeof(uint16_t));
  }
}

template <class S>
void to_bfloat(const float* values, uint32_t count, uint16_t* bfloats) {
  constexpr uint32_t L = S::kLanes;
  uint32_t i = 0;
  for (; i + L <= count; i += L) S::to_bfloat(bfloats + i, S::load(values + i));
  if (i < count) {
    float v[L] = {};
    uint16_t b[L];
    std::memcpy(v, values + i, (count - i) * sizeof(float));
    S::to_bfloat(b, S::load(v));
    std::memcpy(bfloats + i, b, (bfloat_stride(count) - i) * sizeof(uint16_t));
  }
}

template <class S>
constexpr Kernels make_table(Isa isa) {
  Kernels table{isa, product<S>, quantize<S>,        rms_norm<S>,
                silu_multiply<S>, to_half<S>, attention_block<S>, attention_join<S>, nullptr};
  if constexpr (S::kBfloatDots) table.to_bfloat = to_bfloat<S>;
  return table;
}

}  // namespace
}  // namespace inferd::engine::cpu
