// inferctl status: what the daemon holds and has done.

#include <iostream>

#include "tools/inferctl/command.h"
#include "tools/inferctl/control_client.h"
#include "tools/inferctl/print.h"

namespace inferd::inferctl {
namespace {

using nlohmann::ordered_json;

constexpr OptionSpec kOptions[] = {kJsonOption};

// "2 (SmolLM2 135M, other)" or a bare count, whichever form the reply has.
std::string models_in_words(const ordered_json& status) {
  const auto models = status.find("models");
  if (models == status.end() || !models->is_array()) return field(status, "models");
  std::string names;
  for (const ordered_json& model : *models) {
    if (!names.empty()) names += ", ";
    names += model.is_string() ? model.get<std::string>() : field(model, "name");
  }
  return names.empty() ? "none" : names;
}

void print_line(const std::string& name, const std::string& value) {
  std::string label = name + ":";
  label.resize(12, ' ');
  std::cout << label << value << '\n';
}

Result<ExitCode> status(const Arguments& arguments) {
  INFERD_ASSIGN(const ordered_json reply, call_control(arguments, "Status"));
  if (arguments.has("json")) {
    print_json(reply);
    return ExitCode::kOk;
  }
  const ordered_json pages = reply.value("pages", ordered_json::object());
  const ordered_json tokens = reply.value("tokens", ordered_json::object());
  print_line("inferd", field(reply, "version") + ", process " + field(reply, "pid") + ", up " +
                           format_duration(number_field(reply, "uptime_s")));
  print_line("models", models_in_words(reply));
  print_line("sessions", field(reply, "sessions"));
  print_line("sequences", field(reply, "sequences"));
  print_line("pages", field(pages, "total") + " in all: " + field(pages, "live") + " live, " +
                          field(pages, "cached") + " cached, " + field(pages, "free") + " free");
  const ordered_json disk = reply.value("disk", ordered_json::object());
  if (number_field(disk, "slots") > 0) {
    print_line("disk", field(disk, "slots") + " pages in all: " + field(disk, "used") + " used; " +
                           field(disk, "pages_stored") + " stored, " + field(disk, "pages_loaded") +
                           " loaded, " + field(disk, "pages_lost") + " lost");
  }
  print_line("tokens", field(tokens, "prompt") + " in prompts (" + field(tokens, "computed") +
                           " computed, " + field(tokens, "cached") + " cached), " +
                           field(tokens, "generated") + " generated");
  return ExitCode::kOk;
}

}  // namespace

const Command& status_command() {
  static const Command command{
      "status",
      "",
      "what the daemon holds and has done",
      "Prints the daemon's version, models, clients, memory and totals since its start.",
      kOptions,
      0,
      status};
  return command;
}

}  // namespace inferd::inferctl
