// Plots as SVG: lines, points and areas over axes with ticks and units, a legend, and nothing from
// outside. Owner: bench. Value types, any thread. Must not know what is plotted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace inferd::bench {

struct PlotPoint {
  double x = 0;
  double y = 0;
};

enum class PlotKind : uint8_t {
  kLine,
  kPoints,
  kArea,  // down to 0, or to the axis; later series are drawn over earlier ones
};

struct PlotSeries {
  std::string name;
  PlotKind kind = PlotKind::kLine;
  std::vector<PlotPoint> points;  // what is not finite, or not above 0 on a log axis, is left out
};

struct PlotAxis {
  std::string label;  // with the unit: "time (s)"
  bool log = false;
  double max =
      0;  // the axis ends here if it would end earlier; 0: by the points. Linear axes begin at 0.
};

// A horizontal line across the plot, such as a target.
struct PlotMark {
  std::string name;
  double y = 0;
};

struct Plot {
  std::string title;
  PlotAxis x;
  PlotAxis y;
  std::vector<PlotSeries> series;
  std::vector<PlotMark> marks;
};

// One <svg> element, 760 by 400 or wider where names are long. Without a point to draw it says so in the middle.
std::string svg_of(const Plot& plot);

// Several below each other, as a file of their own.
Result<void> write_svg(const std::string& path, const std::vector<Plot>& plots);

// '<', '&' and the like replaced, and what XML does not allow dropped.
std::string xml_escaped(std::string_view text);

// Where an axis has its ticks: multiples of 1, 2 or 5 times a power of ten, or powers of ten (with
// their 2 and 5 fold where few fit), from `low` to `high`.
std::vector<double> axis_ticks(double low, double high, bool log);

// The cumulative distribution of the values: (value, share of them that are not above it), in at
// most `points_max` steps. Sorts a copy.
std::vector<PlotPoint> cumulative_distribution(std::vector<double> values, size_t points_max);

}  // namespace inferd::bench
