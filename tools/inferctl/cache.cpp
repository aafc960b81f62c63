// inferctl cache: what is cached of whom, and forgetting it.

#include <iostream>

#include "tools/inferctl/answer.h"
#include "tools/inferctl/command.h"
#include "tools/inferctl/connection.h"
#include "tools/inferctl/control_client.h"
#include "tools/inferctl/print.h"

namespace inferd::inferctl {
namespace {

using nlohmann::ordered_json;

constexpr OptionSpec kOptions[] = {
    {"ids", "LIST", "pin: these token ids instead of a text, such as 1,2,3"},
    {"domain", "NAME", "flush this domain alone: user:UID, or shared:NAME"},
    kJsonOption};

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

// The text is computed first, unless it is cached already, and then pinned.
Result<ExitCode> pin(const Arguments& arguments) {
  const std::optional<std::string> typed = arguments.text("ids");
  if (typed.has_value() == (arguments.positionals().size() > 1)) {
    return Error(ErrorCode::kInvalidArgument, "cache pin needs a text, or --ids");
  }
  std::string text = typed ? *typed : arguments.positionals()[1];
  if (text == "-") INFERD_TRY(read_standard_input(text));
  INFERD_ASSIGN(const Connection connection, connect_client(arguments, ""));
  std::vector<int32_t> ids;
  if (typed) {
    INFERD_ASSIGN(ids, parse_ids(text));
  } else {
    INFERD_ASSIGN(ids, tokenize(connection, text, INFERD_TOKENIZE_BOS));
  }
  inferd_prompt prompt;
  inferd_prompt_init(&prompt);
  prompt.ids = ids.data();
  prompt.ids_count = ids.size();
  inferd_sampling sampling;
  inferd_sampling_init(&sampling);
  sampling.max_tokens = 1;
  INFERD_ASSIGN(const Answer answer, read_answer(connection, prompt, &sampling, {}));
  if (answer.finish == INFERD_FINISH_CANCELLED) return ExitCode::kInterrupted;
  INFERD_ASSIGN(const ordered_json reply, call_control(arguments, "CachePin", {{"tokens", ids}}));
  if (arguments.has("json")) {
    print_json(reply);
  } else {
    std::cout << field(reply, "pages") << " pages, " << ids.size() << " tokens, are pinned.\n";
  }
  return ExitCode::kOk;
}

Result<ExitCode> unpin(const Arguments& arguments) {
  INFERD_ASSIGN(const ordered_json reply, call_control(arguments, "CacheUnpin"));
  if (arguments.has("json")) {
    print_json(reply);
  } else {
    std::cout << field(reply, "pages") << " pages are pinned no longer.\n";
  }
  return ExitCode::kOk;
}

Result<ExitCode> cache(const Arguments& arguments) {
  const std::string verb = arguments.positionals().empty() ? "" : arguments.positionals().front();
  if (verb == "pin") return pin(arguments);
  if (arguments.positionals().size() > 1 || arguments.has("ids")) {
    return Error(ErrorCode::kInvalidArgument, "only inferctl cache pin takes a text, or --ids");
  }
  if (verb == "unpin") return unpin(arguments);
  if (verb == "flush") return flush(arguments);
  if (arguments.has("domain")) {
    return Error(ErrorCode::kInvalidArgument, "--domain goes with inferctl cache flush");
  }
  if (verb == "stat") return stat(arguments);
  return Error(ErrorCode::kInvalidArgument,
               "say what to do with the cache: inferctl cache stat, flush, pin or unpin");
}

}  // namespace

const Command& cache_command() {
  static const Command command{
      "cache",
      "stat | flush | pin TEXT | unpin",
      "show, forget or pin cached prefixes",
      "stat prints how many pages of cached prefixes each domain has, in memory and on disk. flush "
      "forgets\n"
      "them and erases what is on disk; running requests go on. Without privilege a user sees and "
      "flushes\n"
      "only their own. pin computes TEXT (or standard input, for -) as run --raw does, and keeps "
      "its pages\n"
      "after all that are not pinned, up to a limit; unpin ends that for all of one's own.",
      kOptions,
      2,
      cache};
  return command;
}

}  // namespace inferd::inferctl
