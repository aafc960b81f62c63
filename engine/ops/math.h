// Exponential and logarithm without the C library, whose results differ by version and processor.
// Owner: engine. Pure functions, any thread. Must not know tensors.
//
// Both are built of IEEE additions, multiplications and bit moves alone, in one fixed order and
// without contraction, so every compiler and instruction set gives the same bits. Written without
// branches, so that a loop over exp_approx() becomes vector code.
#pragma once

#include <bit>
#include <cstdint>

namespace inferd::engine {

// e^x. Error: at most 1 ulp for x in [-87.3, 88.7] (tested against the correctly rounded result).
// Below -87.3 (the result would be subnormal) it is 0, -infinity included; above 88.72 it is
// +infinity. exp_approx(0) == 1 exactly. NaN gives 0: a caller that must see NaN checks for it.
//
// Method: x = n ln 2 + r with |r| <= ln 2 / 2, ln 2 split in two so that r carries no error worth
// speaking of; e^r = 1 + (r + r^2 Q(r)) with Q the degree-4 minimax polynomial of (e^r - 1 - r) /
// r^2 for the relative error of e^r (3.1e-9, by Remez exchange); the factor 2^n is added to the
// exponent.
inline float exp_approx(float x) noexcept {
  constexpr float kLow = -87.3365f;         // just above log(2^-126)
  constexpr float kHigh = 88.72283f;        // log of the largest finite float
  constexpr float kRound = 12582912.0f;     // 1.5 * 2^23: adding it rounds to an integer
  const float above = x > kLow ? x : kLow;  // NaN goes to kLow, too
  const float clamped = above < kHigh ? above : kHigh;
  const float shifted = clamped * 1.44269504f + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  float q = 1.38145986e-3f;
  q = q * r + 8.36871688e-3f;
  q = q * r + 4.16683880e-2f;
  q = q * r + 1.66665206e-1f;
  q = q * r + 4.99999934e-1f;
  const float e = 1.0f + (r + (r * r) * q);
  // n reaches 128, whose power of two is no float: the factor is applied in two halves.
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound);
  const int32_t half = exponent >> 1;
  const float scale_a = std::bit_cast<float>((half + 127) << 23);
  const float scale_b = std::bit_cast<float>((exponent - half + 127) << 23);
  const float result = e * scale_a * scale_b;
  const float low_checked = x > kLow ? result : 0.0f;
  return x > kHigh ? std::bit_cast<float>(0x7f800000) : low_checked;
}

// Natural logarithm of a positive, normal, finite double, rounded to float. Error: at most 0.51 ulp
// of the float result (the computation is in double, with an absolute error below 3e-14). Any other
// argument, a precondition broken, gives some finite value.
//
// Method: x = m 2^e with m in [sqrt(1/2), sqrt(2)), s = (m - 1) / (m + 1), log m = 2 atanh(s) by
// its series up to s^17; |s| <= 0.1716, so the first term left out is below 2.8e-16.
inline double log_wide(double x) noexcept {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int64_t exponent = static_cast<int64_t>(bits >> 52 & 0x7ff) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffull) | 0x3ff0000000000000ull);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    exponent += 1;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double sum = 1.0 / 17;
  sum = sum * s2 + 1.0 / 15;
  sum = sum * s2 + 1.0 / 13;
  sum = sum * s2 + 1.0 / 11;
  sum = sum * s2 + 1.0 / 9;
  sum = sum * s2 + 1.0 / 7;
  sum = sum * s2 + 1.0 / 5;
  sum = sum * s2 + 1.0 / 3;
  const double log_m = 2.0 * s + 2.0 * s * (s2 * sum);
  return static_cast<double>(exponent) * 0.69314718055994531 + log_m;
}

inline float log_approx(float x) noexcept { return static_cast<float>(log_wide(x)); }

}  // namespace inferd::engine
