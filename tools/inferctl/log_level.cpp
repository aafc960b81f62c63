// inferctl log-level: changes how much the daemon logs.

#include <algorithm>
#include <iostream>
#include <iterator>

#include "tools/inferctl/command.h"
#include "tools/inferctl/control_client.h"
#include "tools/inferctl/print.h"

namespace inferd::inferctl {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kLevels[] = {"trace", "debug", "info", "warn", "error", "off"};
constexpr OptionSpec kOptions[] = {kJsonOption};

Result<ExitCode> log_level(const Arguments& arguments) {
  if (arguments.positionals().empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 "log-level: give a level: trace, debug, info, warn, error or off");
  }
  const std::string& level = arguments.positionals()[0];
  if (std::find(std::begin(kLevels), std::end(kLevels), level) == std::end(kLevels)) {
    return Error(ErrorCode::kInvalidArgument,
                 "log-level: there is no level '" + level +
                     "'; those there are: trace, debug, info, warn, error, off");
  }
  INFERD_ASSIGN(const ordered_json reply, call_control(arguments, "LogLevel", {{"level", level}}));
  if (arguments.has("json")) {
    print_json(reply);
  } else {
    std::cout << "The daemon logs at level " << level << " now.\n";
  }
  return ExitCode::kOk;
}

}  // namespace

const Command& log_level_command() {
  static const Command command{"log-level",
                               "LEVEL",
                               "change how much the daemon logs",
                               "LEVEL is one of trace, debug, info, warn, error, off. It holds "
                               "until the daemon ends or reloads.",
                               kOptions,
                               1,
                               log_level};
  return command;
}

}  // namespace inferd::inferctl
