// inferctl cancel: ends a sequence.

#include <charconv>
#include <iostream>

#include "tools/inferctl/command.h"
#include "tools/inferctl/control_client.h"
#include "tools/inferctl/print.h"

namespace inferd::inferctl {
namespace {

using nlohmann::ordered_json;

constexpr OptionSpec kOptions[] = {kJsonOption};

Result<ExitCode> cancel(const Arguments& arguments) {
  const std::string text = arguments.positionals().empty() ? "" : arguments.positionals()[0];
  uint64_t sequence = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), sequence);
  if (text.empty() || error != std::errc() || stop != text.data() + text.size()) {
    return Error(ErrorCode::kInvalidArgument,
                 "cancel: give the number of a sequence; inferctl ps shows those there are");
  }
  INFERD_ASSIGN(const ordered_json reply,
                call_control(arguments, "Cancel", {{"sequence", sequence}}));
  if (arguments.has("json")) {
    print_json(reply);
  } else {
    std::cout << "Sequence " << sequence << " is cancelled.\n";
  }
  return ExitCode::kOk;
}

}  // namespace

const Command& cancel_command() {
  static const Command command{"cancel",
                               "SEQUENCE",
                               "end a sequence",
                               "Ends the sequence with this number, as inferctl ps shows it. Its "
                               "client hears \"cancelled\".",
                               kOptions,
                               1,
                               cancel};
  return command;
}

}  // namespace inferd::inferctl
