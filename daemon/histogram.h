// A histogram of times with a bounded relative error: linear buckets within each power of two.
// Owner: whoever measures; one thread. A value type of fixed size (under 4 KiB); allocates nothing.
// Must not know what is measured.
//
// Times are counted in whole microseconds, rounded up. Those to 16 us have a bucket each; beyond,
// each power of two is cut into kBucketsPerOctave equal ones. What is told of a time lies in the
// middle of its bucket: off by at most 1/32 of the time, or by a microsecond. A bucket holds what
// is above its lower edge, up to and including the upper one, so that counts up to a power of two
// of microseconds are exact. The idea is that of HdrHistogram (Gil Tene).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace inferd::daemon {

class Histogram {
 public:
  static constexpr uint32_t kBucketsPerOctave = 16;
  static constexpr int64_t kLongestNs =
      3'600'000'000'000;  // longer times count as this long in a bucket

  // Negative times count as 0.
  void add(int64_t time_ns);
  void merge(const Histogram& other);

  uint64_t count() const { return count_; }
  uint64_t sum_ns() const { return sum_ns_; }
  int64_t longest_ns() const { return longest_ns_; }
  // The time that at least `share` (0 to 1) of all do not exceed, within the error above; 0 if
  // there is none.
  int64_t quantile_ns(double share) const;
  // How many are at most 2^power microseconds long, exactly.
  uint64_t count_within(uint32_t power) const;

 private:
  static constexpr uint32_t kLinearBits = std::countr_zero(kBucketsPerOctave);
  static constexpr uint64_t kLongestUs = kLongestNs / 1000;
  static constexpr size_t kBuckets = 459;  // bucket_of(kLongestUs - 1) + 1

  // The bucket of a time, given the microseconds that are full before it ends.
  static constexpr size_t bucket_of(uint64_t before_us) {
    if (before_us < kBucketsPerOctave) return before_us;
    const auto shift = static_cast<uint32_t>(std::bit_width(before_us)) - 1 - kLinearBits;
    return (shift * kBucketsPerOctave) + (before_us >> shift);
  }
  static int64_t middle_ns(size_t bucket);

  std::array<uint64_t, kBuckets> buckets_{};
  uint64_t count_ = 0;
  uint64_t sum_ns_ = 0;
  int64_t longest_ns_ = 0;
};

// What is told of a histogram in a line.
struct TimeFigures {
  uint64_t count = 0;
  int64_t mean_ns = 0;
  int64_t p50_ns = 0;
  int64_t p90_ns = 0;
  int64_t p99_ns = 0;
  int64_t longest_ns = 0;
};
TimeFigures figures_of(const Histogram& histogram);

}  // namespace inferd::daemon
