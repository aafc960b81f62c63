// inferctl detokenize: token ids to text, by a model file or by the daemon's model.

#include <iostream>

#include "tools/inferctl/command.h"
#include "tools/inferctl/connection.h"
#include "tools/inferctl/local_text.h"
#include "tools/inferctl/print.h"

namespace inferd::inferctl {
namespace {

constexpr OptionSpec kOptions[] = {
    {"model", "FILE", "a GGUF file, which needs no daemon (default: the daemon's first model)"},
    {"special", "", "write control tokens out by name instead of leaving them out"},
    kJsonOption,
};

// The ids from {"ids": [...]}, as tokenize --json prints them, or from a plain list.
Result<std::vector<int32_t>> read_ids() {
  std::string text;
  INFERD_TRY(read_standard_input(text));
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && text[first] == '{') {
    const size_t open = text.find('[');
    const size_t close = text.find(']');
    if (text.find("\"ids\"") == std::string::npos || open == std::string::npos ||
        close == std::string::npos || close < open) {
      return Error(ErrorCode::kInvalidArgument,
                   "detokenize: the JSON object on standard input has no list \"ids\"");
    }
    return parse_ids(std::string_view(text).substr(open, close - open + 1));
  }
  return parse_ids(text);
}

// An id that the model does not have is a mistake to be told, not an empty text.
Result<void> check_ids(const std::vector<int32_t>& ids, uint32_t vocabulary) {
  for (const int32_t id : ids) {
    if (static_cast<uint32_t>(id) >= vocabulary) {
      return Error(ErrorCode::kInvalidArgument, "the model has no token " + std::to_string(id) +
                                                    "; its ids end at " +
                                                    std::to_string(vocabulary - 1));
    }
  }
  return {};
}

Result<ExitCode> detokenize_input(const Arguments& arguments) {
  const bool special = arguments.has("special");
  std::string text;
  if (const auto path = arguments.text("model")) {
    INFERD_ASSIGN(const LocalText local, LocalText::open(*path));
    INFERD_ASSIGN(const std::vector<int32_t> ids, read_ids());
    INFERD_TRY(check_ids(ids, local.tokenizer().tables().token_count()));
    text = local.tokenizer().decode(ids, {.special = special});
  } else {
    INFERD_ASSIGN(const Connection connection, connect_client(arguments, ""));
    INFERD_ASSIGN(const inferd_model_info info, model_info(connection));
    INFERD_ASSIGN(const std::vector<int32_t> ids, read_ids());
    INFERD_TRY(check_ids(ids, info.vocabulary));
    INFERD_ASSIGN(text, detokenize(connection, ids, special));
  }
  if (arguments.has("json")) {
    print_json({{"text", text}});
  } else {
    std::cout << text;
  }
  return ExitCode::kOk;
}

}  // namespace

const Command& detokenize_command() {
  static const Command command{"detokenize",
                               "< IDS",
                               "token ids to text",
                               "Reads ids from standard input, separated by spaces, commas or "
                               "newlines, or as tokenize --json\n"
                               "prints them, and writes their text, byte for byte, without a "
                               "newline of its own; with --json\n"
                               "as {\"text\": ...}.",
                               kOptions,
                               0,
                               detokenize_input};
  return command;
}

}  // namespace inferd::inferctl
