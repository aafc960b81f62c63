// The arithmetic of AVX512_BF16 for one lane, as Intel's manual defines it (SDM volume 2, VDPBF16PS and
// VCVTNEPS2BF16). SIMDe rounds differently, so the tests need their own.
// Owner: the engine's unit tests. Pure functions.
#pragma once

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>

namespace inferd::engine::cpu::emulated {

inline float denormal_to_zero(float x) { return std::fabs(x) < FLT_MIN ? std::copysign(0.0f, x) : x; }

inline float bfloat_to_float(uint16_t x) { return std::bit_cast<float>(uint32_t{x} << 16); }

// To nearest even; denormals become zero, a NaN stays one.
inline uint16_t float_to_bfloat(float x) {
  const auto bits = std::bit_cast<uint32_t>(denormal_to_zero(x));
  if (std::isnan(x)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

// sum + a * b with one rounding; denormals count and come out as zero.
inline float fused(float sum, uint16_t a, uint16_t b) {
  const float left = denormal_to_zero(bfloat_to_float(a)), right = denormal_to_zero(bfloat_to_float(b));
  return denormal_to_zero(std::fmaf(left, right, denormal_to_zero(sum)));
}

// Pairs of bf16 as 32-bit words: the upper halves are multiplied and added first.
inline float pair_dot(float sum, uint32_t a, uint32_t b) {
  const float upper = fused(sum, static_cast<uint16_t>(a >> 16), static_cast<uint16_t>(b >> 16));
  return fused(upper, static_cast<uint16_t>(a), static_cast<uint16_t>(b));
}

}  // namespace inferd::engine::cpu::emulated
