#include "bench/statistics.h"

#include <algorithm>
#include <cmath>

namespace inferd::bench {

double percentile(std::span<const double> values, double quantile) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return percentile_of_sorted(sorted, quantile);
}

double percentile_of_sorted(std::span<const double> sorted, double quantile) {
  if (sorted.empty()) return 0;
  const double place = quantile * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(std::floor(place));
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (place - static_cast<double>(below));
}

MedianInterval median_interval(std::span<const double> values, double confidence) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  MedianInterval interval;
  if (sorted.empty()) return interval;
  interval.median = percentile_of_sorted(sorted, 0.5);
  // Leaving out `cut` values at either end misses the median if at most `cut` values lie on one
  // side of it: 2 * P(Binomial(n, 1/2) <= cut).
  const auto n = static_cast<double>(sorted.size());
  size_t cut = 0;
  double missed = 0;  // by the interval from rank `cut` to its mirror image
  for (size_t i = 0; 2 * i + 1 < sorted.size() || i == 0; ++i) {
    const auto k = static_cast<double>(i);
    const double chance = std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) -
                                   std::lgamma(n - k + 1) - n * std::log(2.0));
    if (i > 0 && 1 - (missed + 2 * chance) < confidence) break;
    cut = i;
    missed += 2 * chance;
  }
  interval.low = sorted[cut];
  interval.high = sorted[sorted.size() - 1 - cut];
  interval.confidence = std::max(0.0, 1 - missed);
  return interval;
}

double ks_distance(std::span<const double> a, std::span<const double> b) {
  if (a.empty() || b.empty()) return 0;
  std::vector<double> sorted_a(a.begin(), a.end());
  std::vector<double> sorted_b(b.begin(), b.end());
  std::sort(sorted_a.begin(), sorted_a.end());
  std::sort(sorted_b.begin(), sorted_b.end());
  double distance = 0;
  size_t i = 0;
  size_t j = 0;
  while (i < sorted_a.size() && j < sorted_b.size()) {
    // Both step past all that equals the next value: the distributions differ only between values.
    const double value = std::min(sorted_a[i], sorted_b[j]);
    while (i < sorted_a.size() && sorted_a[i] == value) ++i;
    while (j < sorted_b.size() && sorted_b[j] == value) ++j;
    const double share_a = static_cast<double>(i) / static_cast<double>(sorted_a.size());
    const double share_b = static_cast<double>(j) / static_cast<double>(sorted_b.size());
    distance = std::max(distance, std::abs(share_a - share_b));
  }
  return distance;
}

double ks_critical(size_t count_a, size_t count_b, double level) {
  const auto m = static_cast<double>(count_a);
  const auto n = static_cast<double>(count_b);
  return std::sqrt(-std::log(level / 2) / 2 * (m + n) / (m * n));
}

}  // namespace inferd::bench
