// A histogram of times with fixed buckets, as Prometheus exposes them.
// Owner: whoever measures; one thread. A value type; allocates nothing.
#pragma once

#include <array>
#include <cstdint>

namespace inferd::daemon {

// Upper bounds of the buckets; a time longer than the last counts only in the total.
inline constexpr std::array<int64_t, 17> kHistogramBoundsNs{
    500'000,       1'000'000,     2'000'000,     5'000'000,      10'000'000,     20'000'000,
    50'000'000,    100'000'000,   200'000'000,   500'000'000,    1'000'000'000,  2'000'000'000,
    5'000'000'000, 10'000'000'000, 20'000'000'000, 60'000'000'000, 300'000'000'000};

struct Histogram {
  std::array<uint64_t, kHistogramBoundsNs.size()> buckets{};  // each counts its own range only
  uint64_t count = 0;
  uint64_t sum_ns = 0;

  void add(int64_t time_ns) {
    const int64_t positive_ns = time_ns > 0 ? time_ns : 0;
    ++count;
    sum_ns += static_cast<uint64_t>(positive_ns);
    for (size_t i = 0; i < buckets.size(); ++i) {
      if (positive_ns <= kHistogramBoundsNs[i]) {
        ++buckets[i];
        return;
      }
    }
  }
};

}  // namespace inferd::daemon
