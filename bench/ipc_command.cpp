// inferd-bench ipc: our rings beside a Unix socket and server-sent events over TCP.
//
// Daemon and client are two processes, each pinned to a processor of its own. A round measures
// every figure once over every way, so that whatever disturbs the machine disturbs all alike;
// reported is the median over the rounds, and of the ratios within a round. Once on idle
// processors, and once beside as many processes that keep them busy as --hogs says.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/command.h"
#include "bench/ipc_daemon.h"
#include "bench/ipc_measure.h"
#include "bench/options.h"
#include "bench/statistics.h"

namespace inferd::bench {
namespace {

struct IpcOptions {
  uint32_t rounds = 7;
  uint32_t trips = 500;
  uint32_t records = 20'000;
  uint32_t steps = 40;
  std::vector<uint32_t> hogs;
  DaemonOptions daemon;
};

enum class Test : uint8_t { kRoundTrip, kStream, kStep };

// One thing that a round measures.
struct Cell {
  Test test;
  Way way;
  bool awake;  // the client is: spins before it sleeps, or never sleeps (kStep)
  std::vector<double> rounds = {};
};

// One line of the result: a ring's cell beside those of the other two. The targets are those of the
// design; 0: none.
struct Row {
  const char* name;
  const char* unit;
  const char* condition;
  Test test;
  bool ring_awake;
  bool others_awake;
  double unix_target;
  double sse_target;
};
constexpr Row kRows[] = {
    {"round_trip_spinning", "us", "<=", Test::kRoundTrip, true, false, 0.02, 0},
    {"round_trip_asleep", "us", "<=", Test::kRoundTrip, false, false, 1.2, 0},
    {"stream_spinning", "records/s", ">=", Test::kStream, true, false, 10, 8},
    {"stream_asleep", "records/s", ">=", Test::kStream, false, false, 0, 0},
    {"step_16_asleep", "us", "<=", Test::kStep, false, false, 0.7, 0.4},
    {"step_16_awake", "us", "<=", Test::kStep, true, true, 0.05, 0},
};

std::vector<Cell> all_cells() {
  std::vector<Cell> cells;
  for (const Test test : {Test::kRoundTrip, Test::kStream, Test::kStep}) {
    for (const Way way : {Way::kRing, Way::kUnix, Way::kSse}) {
      cells.push_back({test, way, false});
      // A socket's reader does not spin: there is nothing that it could look at without a call.
      if (way == Way::kRing || test == Test::kStep) cells.push_back({test, way, true});
    }
  }
  return cells;
}

Cell& cell_of(std::vector<Cell>& cells, Test test, Way way, bool awake) {
  const auto cell = std::find_if(cells.begin(), cells.end(), [&](const Cell& c) {
    return c.test == test && c.way == way && c.awake == awake;
  });
  INFERD_CHECK(cell != cells.end());
  return *cell;
}

Result<double> measure(const Cell& cell, const IpcOptions& options, const Processors& processors) {
  const int64_t spin_ns = cell.awake ? kSpinNs : 0;
  switch (cell.test) {
    case Test::kRoundTrip:
      return measure_round_trip(cell.way, spin_ns, options.trips, processors);
    case Test::kStream:
      return measure_stream(cell.way, spin_ns, options.records, processors);
    case Test::kStep:
      return measure_step_awake(cell.way, options.steps, processors);
  }
  return Error(ErrorCode::kInternal, "there is no such measurement");
}

Result<void> measure_round(uint32_t round, std::vector<Cell>& cells, const IpcOptions& options,
                           const Processors& processors) {
  for (size_t i = 0; i < cells.size(); ++i) {
    Cell& cell = cells[(round + i) % cells.size()];
    if (cell.test == Test::kStep && !cell.awake) {
      if (cell.way != Way::kRing) continue;  // all three are measured together
      INFERD_ASSIGN(const WayFigures figures, measure_step_asleep(options.steps, processors));
      for (size_t way = 0; way < kWays.size(); ++way) {
        cell_of(cells, Test::kStep, kWays[way], false).rounds.push_back(figures[way]);
      }
      continue;
    }
    INFERD_ASSIGN(const double value, measure(cell, options, processors));
    cell.rounds.push_back(value);
  }
  return {};
}

// Of the rounds' ratios, the median and the interval that holds it with 95 % confidence.
MedianInterval ratio(const std::vector<double>& ours, const std::vector<double>& theirs) {
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.size(); ++i) ratios.push_back(ours[i] / theirs[i]);
  return median_interval(ratios);
}

nlohmann::ordered_json row_figures(const Row& row, std::vector<Cell>& cells, uint32_t hogs) {
  const auto& ring = cell_of(cells, row.test, Way::kRing, row.ring_awake).rounds;
  const auto& unix_socket = cell_of(cells, row.test, Way::kUnix, row.others_awake).rounds;
  const auto& sse = cell_of(cells, row.test, Way::kSse, row.others_awake).rounds;
  const MedianInterval of_unix = ratio(ring, unix_socket);
  const MedianInterval of_sse = ratio(ring, sse);
  return {{"test", row.name},
          {"hogs", hogs},
          {"unit", row.unit},
          {"ring", median(ring)},
          {"unix", median(unix_socket)},
          {"sse", median(sse)},
          {"of_unix", of_unix.median},
          {"of_unix_interval", {of_unix.low, of_unix.high}},
          {"of_sse", of_sse.median},
          {"of_sse_interval", {of_sse.low, of_sse.high}}};
}

std::string target_text(const Row& row, double target) {
  char text[32] = "";
  if (target != 0) std::snprintf(text, sizeof(text), "(%s %g)", row.condition, target);
  return text;
}

void print_row(const Row& row, const nlohmann::ordered_json& figures) {
  const auto figure = [&](const char* key) { return figures[key].get<double>(); };
  const int digits = std::string_view(row.unit) == "us" ? 2 : 0;
  std::printf("%-20s %4u %-9s %12.*f %12.*f %12.*f %9.4f %-10s %9.4f %-8s\n", row.name,
              figures["hogs"].get<uint32_t>(), row.unit, digits, figure("ring"), digits,
              figure("unix"), digits, figure("sse"), figure("of_unix"),
              target_text(row, row.unix_target).c_str(), figure("of_sse"),
              target_text(row, row.sse_target).c_str());
}

Result<nlohmann::ordered_json> compare_ways(const IpcOptions& options, bool print) {
  const Processors processors = choose_processors();
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  if (print) {
    std::printf("%-20s %4s %-9s %12s %12s %12s %9s %-10s %9s\n", "test", "hogs", "unit", "ring",
                "unix", "sse", "of unix", "", "of sse");
  }
  for (const uint32_t hogs : options.hogs) {
    INFERD_ASSIGN(const std::vector<Child> busy, start_hogs(hogs, processors));
    std::vector<Cell> cells = all_cells();
    for (uint32_t round = 0; round < options.rounds; ++round) {
      INFERD_TRY(measure_round(round, cells, options, processors));
    }
    for (const Row& row : kRows) {
      rows.push_back(row_figures(row, cells, hogs));
      if (print) print_row(row, rows.back());
    }
  }
  return rows;
}

nlohmann::ordered_json daemon_json(const DaemonFigures& figures, uint32_t idle_clients) {
  return {{"connect_ms", figures.connect_ms},
          {"idle_clients", idle_clients},
          {"idle_cpu_share", figures.idle_cpu_share},
          {"step_alone_ms", figures.step_alone_ms},
          {"step_with_idle_ms", figures.step_with_idle_ms}};
}

void print_daemon(const DaemonFigures& figures, uint32_t idle_clients) {
  std::printf("connect to first submission: %.3f ms (< 2)\n", figures.connect_ms);
  std::printf("%u connected idle clients: %.4f %% of a core (< 0.1)\n", idle_clients,
              100 * figures.idle_cpu_share);
  std::printf("step with them: %.3f ms, without: %.3f ms, ratio %.3f\n", figures.step_with_idle_ms,
              figures.step_alone_ms, figures.step_with_idle_ms / figures.step_alone_ms);
}

}  // namespace

Result<int> run_ipc_command(Arguments arguments) {
  IpcOptions values;
  bool json = false;
  Options options("ipc", "our rings beside a Unix socket and server-sent events over TCP");
  options.add("rounds", &values.rounds, {1, 1000},
              "rounds that the median is taken over (default 7)");
  options.add("trips", &values.trips, {1, 1'000'000}, "round trips of a round (default 500)");
  options.add("records", &values.records, {1, 100'000'000},
              "records of a stream in a round (default 20000)");
  options.add("steps", &values.steps, {1, 10'000}, "steps to 16 clients in a round (default 40)");
  options.add("hogs", &values.hogs, {0, 64},
              "processes that keep the processors busy (default 0,2)");
  options.add("socket", &values.daemon.socket,
              "a daemon's socket: measure connecting and idle clients too");
  options.add("idle-clients", &values.daemon.idle_clients, {0, 65'536},
              "with --socket: connected clients that do nothing (default 1000)");
  options.add("seconds", &values.daemon.seconds, {1, 3600},
              "with --socket: for which they are watched doing nothing (default 5)");
  options.add("tokens", &values.daemon.tokens, {3, 1'000'000},
              "with --socket: of an answer whose steps are timed (default 200)");
  options.add("json", &json, "print JSON");
  INFERD_ASSIGN(const bool go, options.parse(arguments));
  if (!go) return 0;
  if (values.hogs.empty()) values.hogs = {0, 2};
  nlohmann::ordered_json result;
  INFERD_ASSIGN(result["rows"], compare_ways(values, !json));
  if (!values.daemon.socket.empty()) {
    INFERD_ASSIGN(const DaemonFigures figures, measure_daemon(values.daemon));
    result["daemon"] = daemon_json(figures, values.daemon.idle_clients);
    if (!json) print_daemon(figures, values.daemon.idle_clients);
  }
  if (json) std::puts(result.dump(2).c_str());
  return 0;
}

}  // namespace inferd::bench
