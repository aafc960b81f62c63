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

}  // namespace inferd::bench
