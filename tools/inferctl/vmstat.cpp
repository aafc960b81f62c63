// inferctl vmstat: how memory and compute are used, line by line.

#include <chrono>
#include <iostream>
#include <thread>

#include "tools/inferctl/command.h"
#include "tools/inferctl/control_client.h"
#include "tools/inferctl/figures_view.h"
#include "tools/inferctl/print.h"

namespace inferd::inferctl {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr OptionSpec kOptions[] = {
    {"interval", "S", "seconds between two lines; 1 by default"},
    {"count", "N", "so many lines, then end; by default they go on"},
    kJsonOption,
};

constexpr uint64_t kLinesAPage = 20;  // then the head comes again

Result<ExitCode> vmstat(const Arguments& arguments) {
  INFERD_ASSIGN(const double interval_s, arguments.decimal("interval", 1, 0.1, 3600));
  INFERD_ASSIGN(const uint64_t count,
                arguments.unsigned_number("count", UINT64_MAX, 1, UINT64_MAX));
  INFERD_ASSIGN(ordered_json before, call_control(arguments, "Vmstat"));
  if (arguments.has("json")) {
    print_json(before);
    return ExitCode::kOk;
  }
  Clock::time_point asked_before = Clock::now();
  for (uint64_t line = 0; line < count && std::cout; ++line) {
    std::this_thread::sleep_for(std::chrono::duration<double>(interval_s));
    INFERD_ASSIGN(ordered_json reply, call_control(arguments, "Vmstat"));
    const Clock::time_point asked = Clock::now();
    const double passed_s = std::chrono::duration<double>(asked - asked_before).count();
    if (line % kLinesAPage == 0) std::cout << vmstat_head();
    std::cout << vmstat_line(reply, before, passed_s) << std::flush;
    before = std::move(reply);
    asked_before = asked;
  }
  return ExitCode::kOk;
}

}  // namespace

const Command& vmstat_command() {
  static const Command command{
      "vmstat",
      "",
      "how memory and compute are used, line by line",
      "Prints a line at each interval: sequences that run, wait, or are stopped because\n"
      "their client does not read; pages free, live and cached; then a second's steps,\n"
      "tokens of prompts, those of them that were cached (hit), tokens computed, computed\n"
      "again after a preemption, and generated, and preemptions; then for how much of the\n"
      "last ten seconds, in percent, somebody stood still for want of pages and of compute.\n"
      "With --json the daemon's reply, once.",
      kOptions,
      0,
      vmstat};
  return command;
}

}  // namespace inferd::inferctl
