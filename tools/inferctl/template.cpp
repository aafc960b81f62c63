// inferctl template: chat messages to prompt text, by a model's chat template or one in a file.

#include <iostream>

#include "text/chat_template.h"
#include "tools/inferctl/command.h"
#include "tools/inferctl/connection.h"
#include "tools/inferctl/local_text.h"
#include "tools/inferctl/print.h"

namespace inferd::inferctl {
namespace {

using nlohmann::ordered_json;

constexpr OptionSpec kOptions[] = {
    {"model", "FILE", "a GGUF file, which needs no daemon (default: the daemon's first model)"},
    {"template", "FILE", "a Jinja template instead of the model's own; needs no model"},
    kJsonOption,
};

Result<ordered_json> read_request() {
  std::string text;
  INFERD_TRY(read_standard_input(text));
  try {
    return ordered_json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    return Error(ErrorCode::kInvalidArgument,
                 std::string("template: standard input is not JSON (") + error.what() +
                     "); it takes an array of messages, or an object with \"messages\"");
  }
}

// Renders here, from a template's source.
Result<std::string> render_source(const std::string& source, const std::string& name,
                                  const TemplateTokens& tokens, const ordered_json& request) {
  auto compiled = ChatTemplate::compile(source);
  if (!compiled) return compiled.error().with_context(name);
  auto segments = compiled->render(request, tokens);
  if (!segments) return segments.error().with_context(name);
  std::string text;
  for (const TextSegment& segment : *segments) text += segment.text;
  return text;
}

Result<std::string> render(const Arguments& arguments) {
  const auto model = arguments.text("model");
  const auto file = arguments.text("template");
  if (file) {
    INFERD_ASSIGN(const std::string source, read_file(*file));
    TemplateTokens tokens;
    if (model) {
      INFERD_ASSIGN(const LocalText local, LocalText::open(*model));
      tokens = local.tokenizer().template_tokens();
    }
    INFERD_ASSIGN(const ordered_json request, read_request());
    return render_source(source, *file, tokens, request);
  }
  if (model) {
    INFERD_ASSIGN(const LocalText local, LocalText::open(*model));
    INFERD_ASSIGN(const ordered_json request, read_request());
    const bool with_tools =
        request.is_object() && request.contains("tools") && !request["tools"].empty();
    const std::string source = local.chat_template(with_tools);
    if (source.empty()) {
      return Error(ErrorCode::kNotFound,
                   *model + " has no chat template; give one with --template FILE");
    }
    return render_source(source, "the chat template of " + *model,
                         local.tokenizer().template_tokens(), request);
  }
  INFERD_ASSIGN(const Connection connection, connect_client(arguments, ""));
  INFERD_ASSIGN(const ordered_json request, read_request());
  return render_chat(connection, request.dump());
}

Result<ExitCode> render_input(const Arguments& arguments) {
  INFERD_ASSIGN(const std::string text, render(arguments));
  if (arguments.has("json")) {
    print_json({{"text", text}});
  } else {
    std::cout << text;
  }
  return ExitCode::kOk;
}

}  // namespace

const Command& template_command() {
  static const Command command{
      "template",
      "< MESSAGES.json",
      "chat messages to prompt text",
      "Reads a JSON array of messages, or an object {\"messages\", \"tools\", "
      "\"add_generation_prompt\",\n"
      "any further variable of the template}, and writes the text that the template makes of it,\n"
      "without a newline of its own. add_generation_prompt is true unless given.\n"
      "With --template alone, bos_token and the like are those of the input, if any.",
      kOptions,
      0,
      render_input};
  return command;
}

}  // namespace inferd::inferctl
