// inferctl list: the daemon's models.

#include "tools/inferctl/command.h"
#include "tools/inferctl/control_client.h"
#include "tools/inferctl/print.h"

namespace inferd::inferctl {
namespace {

constexpr OptionSpec kOptions[] = {kJsonOption};

Result<ExitCode> list(const Arguments& arguments) {
  INFERD_ASSIGN(const nlohmann::ordered_json reply, call_control(arguments, "List"));
  if (arguments.has("json")) {
    print_json(reply);
  } else {
    print_rows(reply.value("models", nlohmann::ordered_json::array()),
               {"name", "architecture", "quantization", "parameters", "context_tokens",
                "weight_bytes", "page_bytes", "path"},
               "The daemon holds no model.");
  }
  return ExitCode::kOk;
}

}  // namespace

const Command& list_command() {
  static const Command command{
      "list",
      "",
      "the daemon's models",
      "Prints the models that the daemon holds; the names are what --model of run and chat takes.",
      kOptions,
      0,
      list};
  return command;
}

}  // namespace inferd::inferctl
