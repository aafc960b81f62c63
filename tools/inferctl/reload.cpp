// inferctl reload: lets the daemon read its configuration again.

#include <iostream>

#include "tools/inferctl/command.h"
#include "tools/inferctl/control_client.h"
#include "tools/inferctl/print.h"

namespace inferd::inferctl {
namespace {

using nlohmann::ordered_json;

constexpr OptionSpec kOptions[] = {kJsonOption};

// A list of keys on one line, or nothing if the reply has none.
void print_keys(const ordered_json& reply, const std::string& name, const std::string& words) {
  const ordered_json keys = reply.value(name, ordered_json::array());
  if (!keys.is_array() || keys.empty()) return;
  std::cout << words;
  for (size_t i = 0; i < keys.size(); ++i) {
    std::cout << (i == 0 ? " " : ", ")
              << (keys[i].is_string() ? keys[i].get<std::string>() : keys[i].dump());
  }
  std::cout << '\n';
}

Result<ExitCode> reload(const Arguments& arguments) {
  INFERD_ASSIGN(const ordered_json reply, call_control(arguments, "Reload"));
  if (arguments.has("json")) {
    print_json(reply);
    return ExitCode::kOk;
  }
  std::cout << "The configuration was read again.\n";
  print_keys(reply, "changed", "Now in force:");
  print_keys(reply, "restart_needed", "In force after a restart:");
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
