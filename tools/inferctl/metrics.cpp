// inferctl metrics: counters and gauges for a monitoring system.

#include <iostream>

#include "tools/inferctl/command.h"
#include "tools/inferctl/control_client.h"
#include "tools/inferctl/print.h"

namespace inferd::inferctl {
namespace {

using nlohmann::ordered_json;

constexpr OptionSpec kOptions[] = {kJsonOption};

Result<ExitCode> metrics(const Arguments& arguments) {
  INFERD_ASSIGN(const ordered_json reply, call_control(arguments, "Metrics"));
  if (arguments.has("json")) {
    print_json(reply);
  } else {
    const std::string text = field(reply, "text");
    std::cout << text << (text.ends_with('\n') ? "" : "\n");
  }
  return ExitCode::kOk;
}

}  // namespace

const Command& metrics_command() {
  static const Command command{"metrics",
                               "",
                               "counters and gauges, as Prometheus text",
                               "Prints the daemon's figures in the text format that Prometheus "
                               "reads; with --json as the reply\n"
                               "came, the text in the field \"text\".",
                               kOptions,
                               0,
                               metrics};
  return command;
}

}  // namespace inferd::inferctl
