// inferctl top: what users and clients are being given.

#include <unistd.h>

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
    {"once", "", "print once and end, as it does where standard output is no terminal"},
    {"interval", "S", "seconds between two looks; 2 by default"},
    kJsonOption,
};

// Clears a terminal and puts the cursor into its corner.
constexpr std::string_view kClear = "\x1b[H\x1b[2J";

Result<ExitCode> top(const Arguments& arguments) {
  INFERD_ASSIGN(const double interval_s, arguments.decimal("interval", 2, 0.1, 3600));
  const bool json = arguments.has("json");
  const bool once = json || arguments.has("once") || ::isatty(STDOUT_FILENO) == 0;
  ordered_json before;
  Clock::time_point asked{};
  for (;;) {
    const Clock::time_point asked_before = asked;
    asked = Clock::now();
    INFERD_ASSIGN(ordered_json reply, call_control(arguments, "Top"));
    if (json) {
      print_json(reply);
      return ExitCode::kOk;
    }
    const double passed_s = std::chrono::duration<double>(asked - asked_before).count();
    std::cout << (once ? "" : kClear) << top_text(reply, before, passed_s) << std::flush;
    if (once || !std::cout) return ExitCode::kOk;
    before = std::move(reply);
    std::this_thread::sleep_for(std::chrono::duration<double>(interval_s));
  }
}

}  // namespace

const Command& top_command() {
  static const Command command{
      "top",
      "",
      "what users and clients are being given, and pressure",
      "Shows, again and again, lines of pressure (for how much of the last 10, 60 and 300\n"
      "seconds, in percent, work stood still for want of pages or of compute), and a line\n"
      "for each user and each client, who is served most in front: tokens, requests, pages,\n"
      "and the median and 99th percentile of the time that requests waited, that their\n"
      "first tokens took, and between tokens. Without privilege a user sees only their own.",
      kOptions,
      0,
      top};
  return command;
}

}  // namespace inferd::inferctl
