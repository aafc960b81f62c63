// inferctl drain: lets the daemon finish what runs, and end.

#include <iostream>

#include "tools/inferctl/command.h"
#include "tools/inferctl/control_client.h"
#include "tools/inferctl/print.h"

namespace inferd::inferctl {
namespace {

using nlohmann::ordered_json;

constexpr OptionSpec kOptions[] = {kJsonOption};

Result<ExitCode> drain(const Arguments& arguments) {
  INFERD_ASSIGN(const ordered_json reply, call_control(arguments, "Drain"));
  if (arguments.has("json")) {
    print_json(reply);
  } else {
    std::cout << "The daemon takes no new requests and ends when the running ones have ended.\n";
  }
  return ExitCode::kOk;
}

}  // namespace

const Command& drain_command() {
  static const Command command{
      "drain",
      "",
      "finish running requests, then end the daemon",
      "The daemon takes no new requests, finishes those that run, and ends.",
      kOptions,
      0,
      drain};
  return command;
}

}  // namespace inferd::inferctl
