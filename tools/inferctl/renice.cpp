// inferctl renice: how urgent a sequence is, from now on.

#include <charconv>
#include <iostream>

#include "tools/inferctl/command.h"
#include "tools/inferctl/control_client.h"
#include "tools/inferctl/print.h"

namespace inferd::inferctl {
namespace {

using nlohmann::ordered_json;

constexpr OptionSpec kOptions[] = {
    {"priority", "CLASS", "interactive, batch, or idle"},
    {"nice", "N", "within the class, from -20 (first) to 19"},
    kJsonOption,
};

Result<ExitCode> renice(const Arguments& arguments) {
  const std::string text = arguments.positionals().empty() ? "" : arguments.positionals()[0];
  uint64_t sequence = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), sequence);
  if (text.empty() || error != std::errc() || stop != text.data() + text.size()) {
    return Error(ErrorCode::kInvalidArgument,
                 "renice: give the number of a sequence; inferctl ps shows those there are");
  }
  ordered_json parameters = {{"sequence", sequence}};
  if (const auto priority = arguments.text("priority")) {
    if (*priority != "interactive" && *priority != "batch" && *priority != "idle") {
      return Error(ErrorCode::kInvalidArgument,
                   "--priority is interactive, batch or idle, not '" + *priority + "'");
    }
    parameters["priority"] = *priority;
  }
  if (arguments.has("nice")) {
    INFERD_ASSIGN(parameters["nice"], arguments.whole_number("nice", 0, -20, 19));
  }
  if (parameters.size() == 1) {
    return Error(ErrorCode::kInvalidArgument,
                 "renice: say what changes, with --priority CLASS, --nice N, or both");
  }
  INFERD_ASSIGN(const ordered_json reply, call_control(arguments, "Renice", parameters));
  if (arguments.has("json")) {
    print_json(reply);
  } else {
    std::cout << "Sequence " << sequence << " is " << reply.at("priority").get<std::string>()
              << " with nice " << reply.at("nice").get<int>() << ".\n";
  }
  return ExitCode::kOk;
}

}  // namespace

const Command& renice_command() {
  static const Command command{"renice",
                               "SEQUENCE",
                               "change how urgent a sequence is",
                               "Changes the class of the sequence with this number, or its nice "
                               "within the class, while it runs or waits.\n"
                               "Without privilege one can make one's own sequences less urgent.",
                               kOptions,
                               1,
                               renice};
  return command;
}

}  // namespace inferd::inferctl
