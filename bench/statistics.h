// Medians and percentiles of measurements.
// Owner: bench. Pure functions, any thread.
#pragma once

#include <span>
#include <vector>

namespace inferd::bench {

// The value at share `quantile` (0 to 1) of the sorted values, interpolated between neighbours; 0
// for none.
double percentile(std::span<const double> values, double quantile);

// The same of values that are sorted already.
double percentile_of_sorted(std::span<const double> sorted, double quantile);

inline double median(std::span<const double> values) { return percentile(values, 0.5); }

}  // namespace inferd::bench
