// write_report_page(): the plots of a simulated trace, and the page around them.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "bench/simulation_report.h"
#include "bench/svg_plot.h"
#include "bench/trace_fields.h"

namespace inferd::bench {

using Json = nlohmann::ordered_json;
using scheduler::kPriorityClasses;

namespace {

constexpr size_t kPointsMax = 2000;  // of all series of a plot together
constexpr size_t kDistributionPoints = 400;
constexpr size_t kHitWindows = 60;  // that the hit rate is shown in

struct NamedPlot {
  const char* file;
  Plot plot;
};

std::string class_name(size_t priority) {
  return std::string(priority_class_name(static_cast<scheduler::PriorityClass>(priority)));
}

Plot ttft_over_time(const SimulationResult& result) {
  Plot plot{"Time to first token, by arrival", {"arrival (s)"}, {"TTFT (ms)", true}, {}, {}};
  const size_t stride = result.requests.size() / kPointsMax + 1;
  for (size_t priority = 0; priority < kPriorityClasses; ++priority) {
    PlotSeries series{class_name(priority), PlotKind::kPoints, {}};
    for (size_t i = 0; i < result.requests.size(); i += stride) {
      const RequestResult& request = result.requests[i];
      if (request.ttft_ms < 0 || static_cast<size_t>(request.priority) != priority) continue;
      series.points.push_back({request.arrival_s, request.ttft_ms});
    }
    if (!series.points.empty()) plot.series.push_back(std::move(series));
  }
  return plot;
}

Plot ttft_distribution(const SimulationResult& result) {
  Plot plot{"Time to first token, distribution",
            {"TTFT (ms)", true},
            {"share of requests", false, 1},
            {},
            {}};
  for (size_t priority = 0; priority < kPriorityClasses; ++priority) {
    std::vector<double> values;
    for (const RequestResult& request : result.requests) {
      if (request.ttft_ms < 0 || static_cast<size_t>(request.priority) != priority) continue;
      values.push_back(request.ttft_ms);
    }
    if (values.empty()) continue;
    plot.series.push_back({class_name(priority), PlotKind::kLine,
                           cumulative_distribution(std::move(values), kDistributionPoints)});
  }
  return plot;
}

Plot itl_distribution(const SimulationOptions& options, const SimulationResult& result) {
  Plot plot{"Time between tokens: share of gaps that are longer",
            {"ITL (ms)", true},
            {"share of gaps", true},
            {},
            {}};
  for (size_t priority = 0; priority < kPriorityClasses; ++priority) {
    const std::vector<float>& gaps = result.itl_ms[priority];
    if (gaps.empty()) continue;
    // The upper end is what matters: many points there.
    std::vector<double> values(gaps.begin(), gaps.end());
    std::sort(values.begin(), values.end(), std::greater<>());
    PlotSeries series{class_name(priority), PlotKind::kLine, {}};
    const auto count = static_cast<double>(values.size());
    for (double place = 1; place < count; place = std::max(place + 1, place * 1.04)) {
      series.points.push_back({values[static_cast<size_t>(place)], place / count});
    }
    series.points.push_back({values.back(), 1});
    plot.series.push_back(std::move(series));
  }
  if (options.itl_target_ms > 0) {
    plot.title += " (target " + std::to_string(options.itl_target_ms) + " ms)";
  }
  return plot;
}

Plot service_over_time(const SimulationResult& result) {
  Plot plot{"Service by user: tokens of cost over the weight",
            {"time (s)"},
            {"service (tokens of cost)"},
            {},
            {}};
  const uint32_t users = std::min(result.users, TraceSimulation::kUsersShown);
  for (uint32_t user = 0; user < users; ++user) {
    PlotSeries series{"user " + std::to_string(user), PlotKind::kLine, {}};
    for (const Moment& moment : result.log.moments()) {
      series.points.push_back({moment.time_s, moment.service[user]});
    }
    plot.series.push_back(std::move(series));
  }
  return plot;
}

Plot hit_rate_over_time(const SimulationResult& result) {
  Plot plot{"Hit rate: tokens of prompts found in the prefix index",
            {"time (s)"},
            {"share of prompt tokens", false, 1},
            {},
            {}};
  PlotSeries recent{"lately", PlotKind::kLine, {}};
  PlotSeries whole{"since the start", PlotKind::kLine, {}};
  const std::span<const Moment> moments = result.log.moments();
  const size_t stride = moments.size() / kHitWindows + 1;
  for (size_t i = stride; i < moments.size(); i += stride) {
    const Moment& now = moments[i];
    const Moment& before = moments[i - stride];
    const auto news = static_cast<double>(now.prompt_tokens - before.prompt_tokens);
    const auto hits = static_cast<double>(now.cached_tokens - before.cached_tokens);
    if (news > 0) recent.points.push_back({now.time_s, hits / news});
    if (now.prompt_tokens == 0) continue;
    whole.points.push_back({now.time_s, static_cast<double>(now.cached_tokens) /
                                            static_cast<double>(now.prompt_tokens)});
  }
  plot.series = {std::move(recent), std::move(whole)};
  return plot;
}

// Stacked: each area reaches up to the sum of its own and those below, and the largest sum is drawn
// first.
Plot pages_over_time(const SimulationOptions& options, const SimulationResult& result) {
  Plot plot{"Pages by state",
            {"time (s)"},
            {"pages", false, static_cast<double>(options.pages)},
            {{"free", PlotKind::kArea, {}},
             {"cached", PlotKind::kArea, {}},
             {"shared", PlotKind::kArea, {}},
             {"owned", PlotKind::kArea, {}}},
            {}};
  for (const Moment& moment : result.log.moments()) {
    const double owned = moment.pages.owned.value;
    const double shared = owned + moment.pages.shared.value;
    const double cached = shared + moment.pages.cached.value;
    plot.series[0].points.push_back({moment.time_s, cached + moment.pages.free.value});
    plot.series[1].points.push_back({moment.time_s, cached});
    plot.series[2].points.push_back({moment.time_s, shared});
    plot.series[3].points.push_back({moment.time_s, owned});
  }
  return plot;
}

Plot requests_over_time(const SimulationResult& result) {
  Plot plot{"Requests here", {"time (s)"}, {"requests"}, {}, {}};
  PlotSeries waiting{"waiting", PlotKind::kLine, {}};
  PlotSeries running{"running", PlotKind::kLine, {}};
  for (const Moment& moment : result.log.moments()) {
    waiting.points.push_back({moment.time_s, static_cast<double>(moment.waiting)});
    running.points.push_back({moment.time_s, static_cast<double>(moment.running)});
  }
  plot.series = {std::move(waiting), std::move(running)};
  return plot;
}

std::string user_rows(const Json& users) {
  std::string rows;
  std::array<char, 320> row{};
  for (const Json& user : users) {
    std::snprintf(row.data(), row.size(),
                  "<tr><td>%u</td><td>%u</td><td>%llu</td><td>%llu</td><td>%llu</td><td>%.0f</td>"
                  "<td>%.1f</td><td>%.1f</td></tr>\n",
                  user["user"].get<uint32_t>(), user["weight"].get<uint32_t>(),
                  user["requests"].get<unsigned long long>(),
                  user["refused"].get<unsigned long long>(),
                  user["generated_tokens"].get<unsigned long long>(), user["service"].get<double>(),
                  user["ttft_ms"]["p50"].get<double>(), user["ttft_ms"]["p99"].get<double>());
    rows += row.data();
  }
  return rows;
}

std::string html_of(std::string_view source, const Json& report,
                    const std::vector<NamedPlot>& plots) {
  const std::string title = "inferd-bench sim: " + shown(source);
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>" +
      xml_escaped(title) +
      "</title>\n<style>body{font-family:sans-serif;margin:2em;max-width:780px}"
      "table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:3px 9px;"
      "text-align:right}pre{background:#f4f4f4;padding:1em;overflow-x:auto}svg{margin-top:1em}"
      "</style></head>\n<body>\n<h1>" +
      xml_escaped(title) + "</h1>\n<pre>" + xml_escaped(report_text(report)) +
      "</pre>\n<p>Scheduler and memory are the real ones; time is virtual: a step takes what the "
      "cost model says. All figures are in report.json.</p>\n";
  for (const NamedPlot& named : plots) html += svg_of(named.plot);
  html +=
      "<h2>Users</h2>\n<table><tr><th>user</th><th>weight</th><th>requests</th><th>refused</th>"
      "<th>tokens generated</th><th>service</th><th>TTFT p50 (ms)</th><th>TTFT p99 "
      "(ms)</th></tr>\n" +
      user_rows(report["users"]) + "</table>\n<h2>Options</h2>\n<pre>" +
      xml_escaped(report["options"].dump(1)) + "</pre>\n</body></html>\n";
  return html;
}

Result<void> write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) return errno_error("cannot write " + path, errno);
  return {};
}

}  // namespace

Result<void> write_report_page(const std::string& folder, std::string_view source,
                               const Json& report, const SimulationOptions& options,
                               const SimulationResult& result) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return errno_error("cannot make the folder " + folder, error.value());
  const std::vector<NamedPlot> plots = {{"ttft_over_time", ttft_over_time(result)},
                                        {"ttft_distribution", ttft_distribution(result)},
                                        {"itl_distribution", itl_distribution(options, result)},
                                        {"service", service_over_time(result)},
                                        {"hit_rate", hit_rate_over_time(result)},
                                        {"pages", pages_over_time(options, result)},
                                        {"requests", requests_over_time(result)}};
  for (const NamedPlot& named : plots) {
    INFERD_TRY(write_svg(folder + "/" + named.file + ".svg", {named.plot}));
  }
  INFERD_TRY(write_text(folder + "/report.json", report.dump(2) + "\n"));
  return write_text(folder + "/index.html", html_of(source, report, plots));
}

}  // namespace inferd::bench
