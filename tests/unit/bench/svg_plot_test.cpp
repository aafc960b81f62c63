#include "bench/svg_plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>

namespace inferd::bench {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Tags balance, attributes are quoted, references are known, and nothing is loaded from outside.
// Tags seen are appended to `tags`.
::testing::AssertionResult well_formed(const std::string& xml, std::vector<std::string>& tags) {
  std::vector<std::string> open;
  size_t place = 0;
  const auto fail = [&place](const char* what) {
    return ::testing::AssertionFailure() << what << " at byte " << place;
  };
  while (place < xml.size()) {
    if (xml[place] == '&') {
      const size_t end = xml.find(';', place);
      const std::string name = xml.substr(place + 1, end - place - 1);
      if (name != "lt" && name != "gt" && name != "amp" && name != "quot")
        return fail("bad entity");
      place = end + 1;
    } else if (xml[place] != '<') {
      if (xml[place] == '>') return fail("stray >");
      ++place;
    } else if (xml.compare(place, 2, "</") == 0) {
      const size_t end = xml.find('>', place);
      if (open.empty() || open.back() != xml.substr(place + 2, end - place - 2)) {
        return fail("end of another element");
      }
      open.pop_back();
      place = end + 1;
    } else {
      size_t end = place + 1;
      while (std::isalnum(static_cast<unsigned char>(xml[end])) != 0) ++end;
      const std::string name = xml.substr(place + 1, end - place - 1);
      tags.push_back(name);
      bool closed = false;
      while (xml[end] != '>') {
        if (xml[end] == '/') {
          closed = true;
          ++end;
          if (xml[end] != '>') return fail("stray /");
          break;
        }
        if (xml[end] != ' ') return fail("no space before an attribute");
        const size_t equals = xml.find("=\"", end);
        const size_t close = equals == std::string::npos ? equals : xml.find('"', equals + 2);
        if (close == std::string::npos) return fail("attribute without quotes");
        const std::string value = xml.substr(equals + 2, close - equals - 2);
        if (value.find('<') != std::string::npos) return fail("< in an attribute");
        if (xml.substr(end + 1, equals - end - 1) != "xmlns" &&
            value.find("://") != std::string::npos) {
          return fail("refers to the outside");
        }
        end = close + 1;
      }
      if (!closed) open.push_back(name);
      place = end + 1;
    }
  }
  if (!open.empty()) return ::testing::AssertionFailure() << open.back() << " is not closed";
  return ::testing::AssertionSuccess();
}

Plot sample_plot() {
  Plot plot;
  plot.title = "TTFT & \"friends\" <script>";
  plot.x.label = "time (s)";
  plot.y.label = "TTFT (ms)";
  plot.series = {{"user <0>", PlotKind::kLine, {{0, 1}, {10, 200}}},
                 {"points", PlotKind::kPoints, {{1, 5}, {2, 7}}},
                 {"area", PlotKind::kArea, {{0, 50}, {10, 60}}}};
  plot.marks = {{"target", 100}};
  return plot;
}

TEST(SvgPlot, IsWellFormedWhateverTheNamesAre) {
  std::vector<std::string> tags;
  const std::string svg = svg_of(sample_plot());
  ASSERT_TRUE(well_formed(svg, tags)) << svg;
  EXPECT_EQ(tags.front(), "svg");
  EXPECT_THAT(tags, testing::Contains("polyline").Times(1));
  EXPECT_THAT(tags, testing::Contains("polygon").Times(1));
  EXPECT_THAT(tags, testing::Contains("path").Times(1));
  EXPECT_THAT(svg, HasSubstr("TTFT &amp; &quot;friends&quot; &lt;script&gt;"));
  for (const char* label : {">time (s)<", ">TTFT (ms)<", ">target<", ">points<"}) {
    EXPECT_THAT(svg, HasSubstr(label));
  }
}

TEST(SvgPlot, CheckerOfThisTestFindsFaults) {
  std::vector<std::string> tags;
  for (const char* wrong : {"<svg>", "<a><b></a></b>", "<a x=1/>", "<a>&nbsp;</a>", "<a>></a>",
                            "<a href=\"http://x\"/>"}) {
    EXPECT_FALSE(well_formed(wrong, tags)) << wrong;
  }
}

TEST(SvgPlot, PutsValuesWhereTheAxisSaysTheyAre) {
  Plot plot;
  plot.x.max = 10;
  plot.y.max = 100;
  plot.series = {{"line", PlotKind::kLine, {{0, 0}, {10, 100}, {5, 50}}}};
  // The corners of the plot's rectangle, and its middle.
  EXPECT_THAT(svg_of(plot), HasSubstr("points=\"78.00,340.00 590.00,40.00 334.00,190.00 \""));
  plot.x.log = true;
  plot.series = {{"line", PlotKind::kLine, {{0, 5}, {1, 0}, {100, 100}}}};
  EXPECT_THAT(svg_of(plot), Not(HasSubstr("nan")));  // 0 has no place on a log axis
  EXPECT_THAT(svg_of(plot), Not(HasSubstr("inf")));
}

TEST(SvgPlot, LongNamesMakeItWider) {
  Plot plot = sample_plot();
  EXPECT_THAT(svg_of(plot), HasSubstr("viewBox=\"0 0 760.00 400.00\""));
  plot.series[1].name = std::string(50, 'm');
  EXPECT_THAT(svg_of(plot), HasSubstr("viewBox=\"0 0 1002.00 400.00\""));
}

TEST(SvgPlot, SurvivesNothingAndStrangeNumbers) {
  std::vector<std::string> tags;
  Plot plot;
  EXPECT_THAT(svg_of(plot), HasSubstr("nothing to show"));
  const double inf = std::numeric_limits<double>::infinity();
  plot.series = {{"x", PlotKind::kLine, {{std::nan(""), 1}, {1, inf}, {3, 3}}}};
  const std::string svg = svg_of(plot);
  ASSERT_TRUE(well_formed(svg, tags));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_THAT(svg, Not(HasSubstr("inf")));
  for (double value : {0.0, -4.0, 1e-300, 1e300}) {
    plot.series = {{"x", PlotKind::kPoints, {{value, value}}}};
    EXPECT_TRUE(well_formed(svg_of(plot), tags)) << value;
  }
}

TEST(SvgPlot, TicksAreRoundNumbersWithinTheAxis) {
  EXPECT_THAT(axis_ticks(0, 100, false), ElementsAre(0, 20, 40, 60, 80, 100));
  EXPECT_THAT(axis_ticks(0, 0.7, false),
              ElementsAre(0, DoubleEq(0.2), DoubleEq(0.4), DoubleEq(2 * 0.3)));
  EXPECT_THAT(axis_ticks(1, 10'000, true), ElementsAre(1, 10, 100, 1000, 10'000));
  EXPECT_THAT(axis_ticks(3, 30, true), ElementsAre(5, 10, 20));
}

TEST(SvgPlot, DistributionEndsAtOneAndKeepsTheExtremes) {
  std::vector<double> values;
  for (int i = 1000; i > 0; --i) values.push_back(i);
  const std::vector<PlotPoint> points = cumulative_distribution(values, 11);
  ASSERT_EQ(points.size(), 11u);
  EXPECT_EQ(points.front().x, 1);
  EXPECT_EQ(points.back().x, 1000);
  EXPECT_EQ(points.back().y, 1);
  EXPECT_NEAR(points[5].y, 0.5, 0.01);
  EXPECT_TRUE(cumulative_distribution({}, 10).empty());
  EXPECT_EQ(cumulative_distribution({4}, 10).size(), 1u);
}

TEST(SvgPlot, FileHoldsAllPlotsOrSaysWhyNot) {
  const std::string path = testing::TempDir() + "inferd_svg_plot_test.svg";
  ASSERT_TRUE(write_svg(path, {sample_plot(), sample_plot()}).ok());
  std::ifstream file(path);
  const std::string svg((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<std::string> tags;
  ASSERT_TRUE(well_formed(svg, tags));
  EXPECT_THAT(tags, testing::Contains("svg").Times(3));
  std::remove(path.c_str());
  const Result<void> refused = write_svg("/nonexistent/x.svg", {sample_plot()});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message(), HasSubstr("/nonexistent/x.svg"));
}

}  // namespace
}  // namespace inferd::bench
