// inferctl verify: lets the daemon walk every invariant of its memory.

#include <iostream>

#include "tools/inferctl/command.h"
#include "tools/inferctl/control_client.h"
#include "tools/inferctl/print.h"

namespace inferd::inferctl {
namespace {

using nlohmann::ordered_json;

constexpr OptionSpec kOptions[] = {kJsonOption};

Result<ExitCode> verify(const Arguments& arguments) {
  INFERD_ASSIGN(const ordered_json reply, call_control(arguments, "Verify"));
  const ordered_json violations = reply.value("violations", ordered_json::array());
  const bool sound = reply.value("ok", violations.empty());
  if (arguments.has("json")) {
    print_json(reply);
  } else if (sound) {
    std::cout << "Everything adds up.\n";
  } else {
    for (const ordered_json& violation : violations) {
      std::cout << (violation.is_string() ? violation.get<std::string>() : violation.dump())
                << '\n';
    }
  }
  return sound ? ExitCode::kOk : ExitCode::kFailed;
}

}  // namespace

const Command& verify_command() {
  static const Command command{"verify",
                               "",
                               "check every invariant of the daemon's memory",
                               "The daemon walks its page pool, page tables, queues and sessions "
                               "and reports what does not add up.\n"
                               "Exit code 1 if anything is wrong.",
                               kOptions,
                               0,
                               verify};
  return command;
}

}  // namespace inferd::inferctl
