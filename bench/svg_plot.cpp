#include "bench/svg_plot.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "base/check.h"

namespace inferd::bench {

namespace {

constexpr double kWidth = 760;  // at least; more where names need it
constexpr double kHeight = 400;
// The plot's own rectangle; right of it is the legend.
constexpr double kLeft = 78;
constexpr double kRight = 590;
constexpr double kTop = 40;
constexpr double kBottom = 340;
constexpr double kLegendText = kRight + 32;
constexpr double kCharacterWidth = 7.6;  // of names, about
constexpr size_t kTicksAbout = 6;

// Of Okabe and Ito, told apart also by the colour-blind.
constexpr std::array<const char*, 8> kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                 "#e69f00", "#56b4e9", "#7f7f7f", "#000000"};

std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f", value);
  return text.data();
}

std::string tick_text(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), std::abs(value) >= 1e7 ? "%.3g" : "%.7g", value);
  return text.data();
}

double width_of(const Plot& plot) {
  size_t longest = 0;
  for (const PlotSeries& series : plot.series) longest = std::max(longest, series.name.size());
  for (const PlotMark& mark : plot.marks) longest = std::max(longest, mark.name.size());
  return std::max(kWidth, kLegendText + kCharacterWidth * static_cast<double>(longest));
}

// The beginning of an element <svg> of this size.
std::string svg_start(double width, double height) {
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + number(width) + " " +
         number(height) + "\" width=\"" + number(width) + "\" height=\"" + number(height) + "\"";
}

// From values to places.
class Scale {
 public:
  Scale(double low, double high, bool log, double from, double to)
      : low_(map(low, log)), high_(map(high, log)), log_(log), from_(from), to_(to) {
    INFERD_CHECK(high_ > low_);
  }
  double at(double value) const {
    return from_ + (map(value, log_) - low_) / (high_ - low_) * (to_ - from_);
  }

 private:
  static double map(double value, bool log) { return log ? std::log10(value) : value; }
  double low_, high_;
  bool log_;
  double from_, to_;
};

bool drawable(double value, bool log) { return std::isfinite(value) && (!log || value > 0); }

struct Range {
  double low = 0;
  double high = 0;
  bool any = false;

  void add(double value) {
    low = any ? std::min(low, value) : value;
    high = any ? std::max(high, value) : value;
    any = true;
  }
};

class SvgWriter {
 public:
  explicit SvgWriter(const Plot& plot) : plot_(plot) {
    for (const PlotSeries& series : plot.series) {
      for (const PlotPoint& point : series.points) {
        if (!drawable(point.x, plot.x.log) || !drawable(point.y, plot.y.log)) continue;
        x_.add(point.x);
        y_.add(point.y);
      }
    }
    for (const PlotMark& mark : plot.marks) {
      if (y_.any && drawable(mark.y, plot.y.log)) y_.add(mark.y);
    }
    if (x_.any) {
      widen(x_, plot.x);
      widen(y_, plot.y);
    }
  }

  std::string write() {
    out_ = svg_start(width_of(plot_), kHeight) +
           " font-family=\"sans-serif\" font-size=\"13\">\n"
           "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
    text((kLeft + kRight) / 2, 24, "middle", plot_.title, " font-size=\"15\" font-weight=\"bold\"");
    if (x_.any) {
      draw_axes();
      for (size_t i = 0; i < plot_.series.size(); ++i) draw_series(i);
      draw_marks();
    } else {
      text((kLeft + kRight) / 2, (kTop + kBottom) / 2, "middle", "nothing to show", "");
    }
    draw_legend();
    out_ += "</svg>\n";
    return std::move(out_);
  }

 private:
  static void widen(Range& range, const PlotAxis& axis) {
    if (axis.log) {
      if (axis.max > 0) range.high = std::max(range.high, axis.max);
      range.low /= 1.2;
      range.high *= 1.2;
      return;
    }
    range.low = std::min(range.low, 0.0);
    range.high = std::max({range.high, axis.max, range.low + 1e-9});
    if (axis.max == 0) range.high += (range.high - range.low) * 0.03;
  }

  Scale x_scale() const { return {x_.low, x_.high, plot_.x.log, kLeft, kRight}; }
  Scale y_scale() const { return {y_.low, y_.high, plot_.y.log, kBottom, kTop}; }

  void text(double x, double y, const char* anchor, const std::string& words, const char* more) {
    out_ += "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\"" +
            more + ">" + xml_escaped(words) + "</text>\n";
  }

  void line(double x1, double y1, double x2, double y2, const char* style) {
    out_ += "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) +
            "\" y2=\"" + number(y2) + "\" " + style + "/>\n";
  }

  void draw_axes() {
    for (double tick : axis_ticks(x_.low, x_.high, plot_.x.log)) {
      const double x = x_scale().at(tick);
      line(x, kTop, x, kBottom, "stroke=\"#e0e0e0\"");
      text(x, kBottom + 18, "middle", tick_text(tick), "");
    }
    for (double tick : axis_ticks(y_.low, y_.high, plot_.y.log)) {
      const double y = y_scale().at(tick);
      line(kLeft, y, kRight, y, "stroke=\"#e0e0e0\"");
      text(kLeft - 6, y + 4, "end", tick_text(tick), "");
    }
    line(kLeft, kBottom, kRight, kBottom, "stroke=\"black\"");
    line(kLeft, kTop, kLeft, kBottom, "stroke=\"black\"");
    text((kLeft + kRight) / 2, kBottom + 42, "middle", plot_.x.label, "");
    out_ += "<text transform=\"translate(18 " + number((kTop + kBottom) / 2) +
            ") rotate(-90)\" text-anchor=\"middle\">" + xml_escaped(plot_.y.label) + "</text>\n";
  }

  const char* colour(size_t series) const { return kColours[series % kColours.size()]; }

  void draw_series(size_t index) {
    const PlotSeries& series = plot_.series[index];
    const Scale x = x_scale();
    const Scale y = y_scale();
    std::string places;
    double first_x = 0, last_x = 0;
    for (const PlotPoint& point : series.points) {
      if (!drawable(point.x, plot_.x.log) || !drawable(point.y, plot_.y.log)) continue;
      last_x = x.at(point.x);
      const std::string place =
          number(last_x) + (series.kind == PlotKind::kPoints ? " " : ",") + number(y.at(point.y));
      if (places.empty()) first_x = last_x;
      // A path of dots: one element, however many there are.
      places += series.kind == PlotKind::kPoints ? "M" + place + "h0" : place + " ";
    }
    if (places.empty()) return;
    const std::string paint = colour(index);
    if (series.kind == PlotKind::kPoints) {
      out_ += "<path d=\"" + places + "\" stroke=\"" + paint +
              "\" stroke-width=\"4\" stroke-linecap=\"round\" stroke-opacity=\"0.55\"/>\n";
    } else if (series.kind == PlotKind::kLine) {
      out_ += "<polyline points=\"" + places + "\" fill=\"none\" stroke=\"" + paint +
              "\" stroke-width=\"1.8\"/>\n";
    } else {
      out_ += "<polygon points=\"" + number(first_x) + "," + number(kBottom) + " " + places +
              number(last_x) + "," + number(kBottom) + "\" fill=\"" + paint + "\"/>\n";
    }
  }

  void draw_marks() {
    for (const PlotMark& mark : plot_.marks) {
      if (!drawable(mark.y, plot_.y.log)) continue;
      const double y = y_scale().at(mark.y);
      line(kLeft, y, kRight, y, "stroke=\"#a00000\" stroke-dasharray=\"6 4\"");
    }
  }

  void draw_legend() {
    double y = kTop + 12;
    for (size_t i = 0; i < plot_.series.size(); ++i, y += 20) {
      out_ += "<rect x=\"" + number(kRight + 12) + "\" y=\"" + number(y - 10) +
              "\" width=\"14\" height=\"10\" fill=\"" + colour(i) + "\"/>\n";
      text(kLegendText, y, "start", plot_.series[i].name, "");
    }
    for (const PlotMark& mark : plot_.marks) {
      line(kRight + 12, y - 5, kRight + 26, y - 5, "stroke=\"#a00000\" stroke-dasharray=\"6 4\"");
      text(kLegendText, y, "start", mark.name, "");
      y += 20;
    }
  }

  const Plot& plot_;
  Range x_;
  Range y_;
  std::string out_;
};

std::vector<double> log_ticks(double low, double high) {
  std::vector<double> ticks;
  const bool few = std::log10(high / low) < 3;
  for (double power = std::floor(std::log10(low)); power <= std::log10(high); ++power) {
    for (double factor : {1.0, 2.0, 5.0}) {
      const double tick = factor * std::pow(10.0, power);
      if (factor != 1 && !few) continue;
      if (tick >= low && tick <= high) ticks.push_back(tick);
    }
  }
  return ticks;
}

}  // namespace

std::string svg_of(const Plot& plot) { return SvgWriter(plot).write(); }

Result<void> write_svg(const std::string& path, const std::vector<Plot>& plots) {
  double width = kWidth;
  for (const Plot& plot : plots) width = std::max(width, width_of(plot));
  const double height = kHeight * static_cast<double>(std::max<size_t>(plots.size(), 1));
  std::string out = svg_start(width, height) + ">\n";
  for (size_t i = 0; i < plots.size(); ++i) {
    out += "<g transform=\"translate(0 " + number(kHeight * static_cast<double>(i)) + ")\">\n" +
           svg_of(plots[i]) + "</g>\n";
  }
  out += "</svg>\n";
  std::ofstream file(path, std::ios::binary);
  file << out;
  file.close();
  if (!file) return errno_error("cannot write " + path, errno);
  return {};
}

std::string xml_escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        if (static_cast<unsigned char>(c) >= ' ' || c == '\t' || c == '\n') out += c;
    }
  }
  return out;
}

std::vector<double> axis_ticks(double low, double high, bool log) {
  INFERD_CHECK(high > low && (!log || low > 0));
  if (log) return log_ticks(low, high);
  const double rough = (high - low) / kTicksAbout;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= rough) step = factor * power;
  }
  std::vector<double> ticks;
  const auto first = static_cast<int64_t>(std::ceil(low / step - 1e-9));
  for (int64_t i = first; static_cast<double>(i) * step <= high + 1e-9 * step; ++i) {
    ticks.push_back(static_cast<double>(i) * step);
  }
  return ticks;
}

std::vector<PlotPoint> cumulative_distribution(std::vector<double> values, size_t points_max) {
  INFERD_CHECK(points_max >= 2);
  std::sort(values.begin(), values.end());
  std::vector<PlotPoint> points;
  const size_t count = values.size();
  const size_t wanted = std::min(count, points_max);
  for (size_t i = 0; i < wanted; ++i) {
    const size_t place = wanted == 1 ? 0 : i * (count - 1) / (wanted - 1);
    points.push_back({values[place], static_cast<double>(place + 1) / static_cast<double>(count)});
  }
  return points;
}

}  // namespace inferd::bench
