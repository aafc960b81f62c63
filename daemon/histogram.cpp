#include "daemon/histogram.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace inferd::daemon {

void Histogram::add(int64_t time_ns) {
  static_assert(bucket_of(kLongestUs - 1) + 1 == kBuckets);
  const auto positive_ns = static_cast<uint64_t>(std::max<int64_t>(time_ns, 0));
  const uint64_t rounded_us = std::min((positive_ns + 999) / 1000, kLongestUs);
  ++buckets_[bucket_of(rounded_us == 0 ? 0 : rounded_us - 1)];
  ++count_;
  sum_ns_ += positive_ns;
  longest_ns_ = std::max(longest_ns_, time_ns);
}

void Histogram::merge(const Histogram& other) {
  for (size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  sum_ns_ += other.sum_ns_;
  longest_ns_ = std::max(longest_ns_, other.longest_ns_);
}

int64_t Histogram::middle_ns(size_t bucket) {
  const size_t shift = bucket < 2 * kBucketsPerOctave ? 0 : bucket / kBucketsPerOctave - 1;
  const auto lower_us = static_cast<int64_t>((bucket - shift * kBucketsPerOctave) << shift);
  const int64_t width_us = int64_t{1} << shift;
  return lower_us * 1000 + width_us * 500;
}

int64_t Histogram::quantile_ns(double share) const {
  INFERD_CHECK(share >= 0 && share <= 1);
  if (count_ == 0) return 0;
  const double wanted = std::ceil(share * static_cast<double>(count_));
  const uint64_t rank = std::clamp<uint64_t>(static_cast<uint64_t>(wanted), 1, count_);
  uint64_t passed = 0;
  size_t bucket = 0;
  while ((passed += buckets_[bucket]) < rank) ++bucket;
  return std::min(middle_ns(bucket), longest_ns_);
}

uint64_t Histogram::count_within(uint32_t power) const {
  INFERD_CHECK(power < 63);
  const size_t last = std::min(bucket_of((uint64_t{1} << power) - 1), buckets_.size() - 1);
  uint64_t count = 0;
  for (size_t i = 0; i <= last; ++i) count += buckets_[i];
  return count;
}

TimeFigures figures_of(const Histogram& histogram) {
  TimeFigures figures;
  figures.count = histogram.count();
  if (figures.count == 0) return figures;
  figures.mean_ns = static_cast<int64_t>(histogram.sum_ns() / histogram.count());
  figures.p50_ns = histogram.quantile_ns(0.5);
  figures.p90_ns = histogram.quantile_ns(0.9);
  figures.p99_ns = histogram.quantile_ns(0.99);
  figures.longest_ns = histogram.longest_ns();
  return figures;
}

}  // namespace inferd::daemon
