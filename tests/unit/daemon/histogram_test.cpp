// Histogram: quantiles against those of the sorted times, and counts that are exact.
#include "daemon/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/prng.h"

namespace inferd::daemon {
namespace {

static_assert(sizeof(Histogram) < 4096);

Histogram of(const std::vector<int64_t>& times_ns) {
  Histogram histogram;
  for (int64_t time_ns : times_ns) histogram.add(time_ns);
  return histogram;
}

// From a microsecond to an hour, evenly over the powers.
std::vector<int64_t> random_times(uint64_t seed, size_t count) {
  Prng prng(seed);
  std::vector<int64_t> times_ns;
  for (size_t i = 0; i < count; ++i) {
    const double power = 3 + prng.uniform() * (std::log10(3.6e12) - 3);
    times_ns.push_back(static_cast<int64_t>(std::pow(10.0, power)));
  }
  return times_ns;
}

TEST(Histogram, QuantilesAreThoseOfTheSortedTimesWithinOneThirtySecond) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::vector<int64_t> times_ns = random_times(seed, 1 + seed * 97);
    const Histogram histogram = of(times_ns);
    std::sort(times_ns.begin(), times_ns.end());
    for (double share : {0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0}) {
      const double wanted = std::ceil(share * static_cast<double>(times_ns.size()));
      const int64_t exact_ns = times_ns[std::max<size_t>(static_cast<size_t>(wanted), 1) - 1];
      const int64_t error_ns = std::abs(histogram.quantile_ns(share) - exact_ns);
      EXPECT_LE(error_ns, std::max<int64_t>(exact_ns / 32, 1000)) << share << " with seed " << seed;
    }
    EXPECT_EQ(histogram.count(), times_ns.size());
    EXPECT_EQ(histogram.longest_ns(), times_ns.back());
  }
}

TEST(Histogram, CountsUpToAPowerOfTwoAreExact) {
  const std::vector<int64_t> times_ns = random_times(7, 5000);
  Histogram histogram = of(times_ns);
  for (int64_t edge_ns : {512'000, 512'001, 511'999, 1'024'000}) histogram.add(edge_ns);
  for (uint32_t power = 0; power <= 40; ++power) {
    const int64_t bound_ns = (int64_t{1} << power) * 1000;
    auto exact = static_cast<uint64_t>(std::count_if(
        times_ns.begin(), times_ns.end(), [&](int64_t time_ns) { return time_ns <= bound_ns; }));
    exact += power < 9 ? 0 : power == 9 ? 2 : 4;
    EXPECT_EQ(histogram.count_within(power), exact) << power;
  }
}

TEST(Histogram, WhatIsOutsideOfTheRangeCountsAtItsEnds) {
  const int64_t day_ns = 24 * Histogram::kLongestNs;
  const Histogram histogram = of({-5, 0, day_ns});
  EXPECT_EQ(histogram.count(), 3u);
  EXPECT_EQ(histogram.count_within(0), 2u);
  EXPECT_EQ(histogram.longest_ns(), day_ns);
  EXPECT_EQ(histogram.sum_ns(), static_cast<uint64_t>(day_ns));
  EXPECT_NEAR(static_cast<double>(histogram.quantile_ns(1)), Histogram::kLongestNs,
              Histogram::kLongestNs / 32.0);
  EXPECT_EQ(Histogram().quantile_ns(0.5), 0);
  EXPECT_EQ(of({300}).quantile_ns(0.5), 300) << "no more than the longest";
}

TEST(Histogram, MergedOnesAreAsIfMeasuredInOne) {
  const std::vector<int64_t> one = random_times(1, 300);
  const std::vector<int64_t> other = random_times(2, 500);
  std::vector<int64_t> both = one;
  both.insert(both.end(), other.begin(), other.end());
  Histogram merged = of(one);
  merged.merge(of(other));
  const Histogram together = of(both);
  EXPECT_EQ(merged.count(), together.count());
  EXPECT_EQ(merged.sum_ns(), together.sum_ns());
  for (double share = 0; share <= 1; share += 1.0 / 64) {
    EXPECT_EQ(merged.quantile_ns(share), together.quantile_ns(share));
  }
  const TimeFigures figures = figures_of(merged);
  EXPECT_EQ(figures.count, 800u);
  EXPECT_EQ(figures.p90_ns, together.quantile_ns(0.9));
  EXPECT_EQ(figures.mean_ns, static_cast<int64_t>(together.sum_ns() / 800));
  EXPECT_EQ(figures_of(Histogram()).count, 0u);
}

}  // namespace
}  // namespace inferd::daemon
