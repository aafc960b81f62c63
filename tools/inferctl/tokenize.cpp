// inferctl tokenize: text to token ids, by a model file or by the daemon's model.

#include <iostream>

#include "tools/inferctl/command.h"
#include "tools/inferctl/connection.h"
#include "tools/inferctl/local_text.h"
#include "tools/inferctl/print.h"

namespace inferd::inferctl {
namespace {

constexpr OptionSpec kOptions[] = {
    {"model", "FILE", "a GGUF file, which needs no daemon (default: the daemon's first model)"},
    {"special", "", "names of control tokens in the text become those tokens"},
    {"bos", "", "begin as the model's prompts begin"},
    kJsonOption,
};

Result<ExitCode> tokenize_input(const Arguments& arguments) {
  std::string text;
  const bool special = arguments.has("special");
  const bool bos = arguments.has("bos");
  std::vector<int32_t> ids;
  if (const auto path = arguments.text("model")) {
    INFERD_ASSIGN(const LocalText local, LocalText::open(*path));
    INFERD_TRY(read_standard_input(text));
    const TextTables& tables = local.tokenizer().tables();
    if (bos && tables.add_bos() && tables.bos() != kNoToken) ids.push_back(tables.bos());
    INFERD_TRY(local.tokenizer().encode(text, {.parse_special = special}, ids));
  } else {
    INFERD_ASSIGN(const Connection connection, connect_client(arguments, ""));
    INFERD_TRY(read_standard_input(text));
    INFERD_ASSIGN(
        ids, tokenize(connection, text,
                      (special ? INFERD_TOKENIZE_SPECIAL : 0u) | (bos ? INFERD_TOKENIZE_BOS : 0u)));
  }
  if (arguments.has("json")) {
    print_json({{"ids", ids}});
    return ExitCode::kOk;
  }
  for (size_t i = 0; i < ids.size(); ++i) std::cout << (i == 0 ? "" : " ") << ids[i];
  std::cout << '\n';
  return ExitCode::kOk;
}

}  // namespace

const Command& tokenize_command() {
  static const Command command{"tokenize",
                               "< TEXT",
                               "text to token ids",
                               "Reads standard input as it is, a final newline included, and "
                               "prints its token ids on one line;\n"
                               "with --json as {\"ids\": [...]}.",
                               kOptions,
                               0,
                               tokenize_input};
  return command;
}

}  // namespace inferd::inferctl
