// inferctl reload: lets the daemon read its configuration again.

#include <iostream>

#include "tools/inferctl/command.h"
#include "tools/inferctl/control_client.h"
#include "tools/inferctl/print.h"

namespace inferd::inferctl {
namespace {

using nlohmann::ordered_json;

constexpr OptionSpec kOptions[] = {kJsonOption};

// One line for each key of the configuration that differs from what was in force.
void print_changes(const ordered_json& reply, const std::string& name, const std::string& words) {
  for (const ordered_json& change : reply.value(name, ordered_json::array())) {
    std::cout << words << field(change, "key") << ": " << field(change, "from") << " -> "
              << field(change, "to") << '\n';
  }
}

Result<ExitCode> reload(const Arguments& arguments) {
  INFERD_ASSIGN(const ordered_json reply, call_control(arguments, "Reload"));
  if (arguments.has("json")) {
    print_json(reply);
    return ExitCode::kOk;
  }
  std::cout << "The configuration was read again.\n";
  print_changes(reply, "applied", "now in force       ");
  print_changes(reply, "needs_restart", "after a restart    ");
  return ExitCode::kOk;
}

}  // namespace

const Command& reload_command() {
  static const Command command{"reload",
                               "",
                               "read the configuration again",
                               "The daemon reads its configuration file again and takes over what "
                               "can change while it runs;\n"
                               "it says what needs a restart.",
                               kOptions,
                               0,
                               reload};
  return command;
}

}  // namespace inferd::inferctl
