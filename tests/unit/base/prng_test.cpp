#include "base/prng.h"

#include <gtest/gtest.h>

namespace inferd {
namespace {

// Known answers from the Random123 distribution's kat_vectors for philox4x32-10.
TEST(Philox, MatchesThePublishedKnownAnswers) {
  const auto zero = philox4x32({0, 0, 0, 0}, {0, 0});
  EXPECT_EQ(zero, (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t all = 0xffffffff;
  const auto ones = philox4x32({all, all, all, all}, {all, all});
  EXPECT_EQ(ones, (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  const auto pi = philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0});
  EXPECT_EQ(pi, (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Prng, BelowStaysInRangeAndReachesBothEnds) {
  Prng prng(1);
  uint64_t seen = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t value = prng.below(7);
    ASSERT_LT(value, 7u);
    seen |= 1u << value;
  }
  EXPECT_EQ(seen, 0x7fu);
}

}  // namespace
}  // namespace inferd
