// The error bounds that engine/ops/math.h states.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "engine/ops/math.h"

namespace inferd::engine {
namespace {

float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

// Error of `got` against `exact` in units of the last place of a float of that size.
double ulps(float got, double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::abs(static_cast<double>(got) - exact) / std::ldexp(1.0, exponent - 24);
}

TEST(ExpApprox, IsWithinOneUlp) {
  double worst = 0;
  for (uint64_t bits = 0; bits <= 0xffffffffull; bits += 4099) {
    const float x = float_of(static_cast<uint32_t>(bits));
    if (!(x > -87.3f && x < 88.7f)) continue;
    worst = std::max(worst, ulps(exp_approx(x), std::exp(static_cast<double>(x))));
  }
  EXPECT_LE(worst, 1.0);
}

TEST(ExpApprox, EndsAreDefined) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(exp_approx(0.0f), 1.0f);
  EXPECT_EQ(exp_approx(-0.0f), 1.0f);
  EXPECT_EQ(exp_approx(-infinity), 0.0f);
  EXPECT_EQ(exp_approx(-1000.0f), 0.0f);
  EXPECT_EQ(exp_approx(infinity), infinity);
  EXPECT_EQ(exp_approx(89.0f), infinity);
  EXPECT_TRUE(std::isfinite(exp_approx(88.72f)));
  EXPECT_EQ(exp_approx(std::numeric_limits<float>::quiet_NaN()), 0.0f);
}

TEST(ExpApprox, NeverFallsAsItsArgumentRises) {
  float previous = 0;
  for (float x = -87.5f; x < 88.8f; x = std::nextafter(x + 5e-4f, 100.0f)) {
    const float value = exp_approx(x);
    ASSERT_GE(value, previous) << x;
    previous = value;
  }
}

TEST(LogApprox, IsWithinTheStatedErrors) {
  double worst_ulps = 0;
  double worst_absolute = 0;
  for (uint64_t bits = 0x00800000; bits < 0x7f800000; bits += 4099) {
    const float x = float_of(static_cast<uint32_t>(bits));
    const double exact = std::log(static_cast<double>(x));
    worst_absolute = std::max(worst_absolute, std::abs(log_wide(static_cast<double>(x)) - exact));
    if (exact != 0) worst_ulps = std::max(worst_ulps, ulps(log_approx(x), exact));
  }
  EXPECT_LE(worst_ulps, 0.51);
  EXPECT_LE(worst_absolute, 3e-14);
  EXPECT_EQ(log_approx(1.0f), 0.0f);
}

}  // namespace
}  // namespace inferd::engine
