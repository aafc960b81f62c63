// inferctl ps: the sequences that run or wait.

#include "tools/inferctl/command.h"
#include "tools/inferctl/control_client.h"
#include "tools/inferctl/print.h"

namespace inferd::inferctl {
namespace {

constexpr OptionSpec kOptions[] = {kJsonOption};

Result<ExitCode> ps(const Arguments& arguments) {
  INFERD_ASSIGN(const nlohmann::ordered_json reply, call_control(arguments, "Ps"));
  if (arguments.has("json")) {
    print_json(reply);
  } else {
    print_rows(reply.value("sequences", nlohmann::ordered_json::array()),
               {"id", "state", "priority", "nice", "client", "pid", "uid", "age_s", "prompt_tokens",
                "generated_tokens", "cached_tokens", "computed_tokens", "pages", "session"},
               "Nothing is running.");
  }
  return ExitCode::kOk;
}

}  // namespace

const Command& ps_command() {
  static const Command command{"ps",
                               "",
                               "the sequences that run or wait",
                               "Prints one line for each sequence: whose it is, how far it has "
                               "come. Without privilege a user\n"
                               "sees only their own.",
                               kOptions,
                               0,
                               ps};
  return command;
}

}  // namespace inferd::inferctl
