// inferctl cache: what is cached of whom, and forgetting it.

#include <iostream>

#include "tools/inferctl/command.h"
#include "tools/inferctl/control_client.h"
#include "tools/inferctl/print.h"

namespace inferd::inferctl {
namespace {

using nlohmann::ordered_json;

constexpr OptionSpec kOptions[] = {
    {"domain", "NAME", "flush this domain alone: user:UID, or shared:NAME"}, kJsonOption};

Result<ExitCode> stat(const Arguments& arguments) {
  INFERD_ASSIGN(const ordered_json reply, call_control(arguments, "CacheStat"));
  if (arguments.has("json")) {
    print_json(reply);
  } else {
    print_rows(reply.value("domains", ordered_json::array()), {"domain", "pages", "stored"},
               "Nothing is cached.");
  }
  return ExitCode::kOk;
}

Result<ExitCode> flush(const Arguments& arguments) {
  ordered_json parameters = ordered_json::object();
  if (arguments.has("domain")) parameters["domain"] = *arguments.text("domain");
  INFERD_ASSIGN(const ordered_json reply, call_control(arguments, "CacheFlush", parameters));
  if (arguments.has("json")) {
    print_json(reply);
  } else {
    std::cout << field(reply, "pages") << " pages of cached prefixes are forgotten.\n";
  }
  return ExitCode::kOk;
}

Result<ExitCode> cache(const Arguments& arguments) {
  const std::string verb = arguments.positionals().empty() ? "" : arguments.positionals().front();
  if (verb == "flush") return flush(arguments);
  if (arguments.has("domain")) {
    return Error(ErrorCode::kInvalidArgument, "--domain goes with inferctl cache flush");
  }
  if (verb == "stat") return stat(arguments);
  return Error(ErrorCode::kInvalidArgument,
               "say what to do with the cache: inferctl cache stat, or inferctl cache flush");
}

}  // namespace

const Command& cache_command() {
  static const Command command{
      "cache",
      "stat | flush",
      "show or forget cached prefixes",
      "stat prints how many pages of cached prefixes each domain has, in memory and on disk. flush forgets\n"
      "them and erases what is on disk; running requests go on. Without privilege a user sees and flushes\n"
      "only their own.",
      kOptions,
      1,
      cache};
  return command;
}

}  // namespace inferd::inferctl
