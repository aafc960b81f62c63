// Medians and percentiles of measurements, how sure a median is, and whether two samples differ.
// Owner: bench. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace inferd::bench {

// The value at share `quantile` (0 to 1) of the sorted values, interpolated between neighbours; 0
// for none.
double percentile(std::span<const double> values, double quantile);

// The same of values that are sorted already.
double percentile_of_sorted(std::span<const double> sorted, double quantile);

inline double median(std::span<const double> values) { return percentile(values, 0.5); }

// A median, and an interval that holds the median of what was sampled from, whatever its shape.
struct MedianInterval {
  double median = 0;
  double low = 0;
  double high = 0;
  double confidence = 0;  // that the interval has, at least what was asked for if it can be had
};
// The narrowest interval between two values of equal rank from either end whose confidence is at
// least `confidence` (0 to 1), by the binomial distribution of how many values lie below the median
// (the sign test's; Conover, "Practical Nonparametric Statistics", 3.2). Of too few values for that
// (below 6 for 0.95) it is the whole range.
MedianInterval median_interval(std::span<const double> values, double confidence = 0.95);

// The two-sample Kolmogorov-Smirnov statistic: the largest vertical distance between the two
// cumulative distributions, 0 to 1. 0 if one of them has no values.
double ks_distance(std::span<const double> a, std::span<const double> b);
// The distance that two samples of one continuous distribution, of so many values, exceed with
// probability `level`: sqrt(-ln(level / 2) / 2 * (m + n) / (m * n)), Smirnov's limit for large
// samples. Both counts above 0.
double ks_critical(size_t count_a, size_t count_b, double level = 0.05);

}  // namespace inferd::bench
