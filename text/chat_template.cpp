#include "text/chat_template.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/jinja/interpreter.h"
#include "text/jinja/json_value.h"
#include "text/jinja/parser.h"
#include "text/jinja/unicode.h"

namespace inferd {
namespace {

// Positions in texts are 32-bit.
constexpr uint64_t kTextBytesMax = 1ull << 30;

jinja::Limits interpreter_limits(const TemplateLimits& limits) {
  return {limits.steps_max, std::min(limits.output_bytes_max, kTextBytesMax),
          std::min(limits.memory_bytes_max, kTextBytesMax), limits.depth_max};
}

void define_tokens(const TemplateTokens& tokens, jinja::Interpreter* interpreter) {
  const std::pair<std::string_view, const std::string&> names[] = {
      {"bos_token", tokens.bos},
      {"eos_token", tokens.eos},
      {"unk_token", tokens.unk},
      {"pad_token", tokens.pad},
  };
  for (const auto& [name, text] : names) {
    if (text.empty()) continue;
    interpreter->define(name, interpreter->text(text, jinja::Origin::kTemplate));
  }
}

Result<void> define_input(const nlohmann::ordered_json& input, jinja::Interpreter* interpreter) {
  const bool is_object = input.is_object();
  const nlohmann::ordered_json* messages = &input;
  if (is_object) {
    const auto found = input.find("messages");
    messages = found == input.end() ? nullptr : &*found;
  }
  if (messages == nullptr || !messages->is_array()) {
    return Error(ErrorCode::kInvalidArgument,
                 "the chat must be a JSON array of messages, or an object with \"messages\"");
  }
  interpreter->define("tools", jinja::Value::none());
  interpreter->define("documents", jinja::Value::none());
  interpreter->define("add_generation_prompt", jinja::Value::boolean(true));
  const auto define = [interpreter](const std::string& name,
                                    const nlohmann::ordered_json& json) -> Result<void> {
    // Variables that the template does not name need no conversion; messages are always checked.
    if (name != "messages" && !interpreter->mentions(name)) return {};
    INFERD_ASSIGN(jinja::Value value, jinja::value_from_json(interpreter->meter(), json));
    interpreter->define(name, std::move(value));
    return {};
  };
  if (!is_object) return define("messages", input);
  for (const auto& [name, json] : input.items()) INFERD_TRY(define(name, json));
  return {};
}

}  // namespace

struct ChatTemplate::Impl {
  std::unique_ptr<const jinja::Template> parsed;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::compile(std::string_view source) {
  if (source.size() > jinja::kSourceBytesMax) {
    return Error(ErrorCode::kResourceExhausted,
                 "the chat template has " + std::to_string(source.size()) +
                     " bytes, over the limit of " + std::to_string(jinja::kSourceBytesMax));
  }
  if (!jinja::is_utf8(source)) {
    return Error(ErrorCode::kDataCorrupt, "the chat template is not valid UTF-8");
  }
  auto parsed = jinja::parse(source);
  if (!parsed) return parsed.error().with_context("chat template");
  auto impl = std::make_unique<Impl>();
  impl->parsed = std::move(*parsed);
  return ChatTemplate(std::move(impl));
}

Result<std::vector<TextSegment>> ChatTemplate::render(const nlohmann::ordered_json& input,
                                                      const TemplateTokens& tokens,
                                                      const TemplateRenderOptions& options) const {
  INFERD_CHECK(impl_ != nullptr);
  jinja::Interpreter interpreter(*impl_->parsed, interpreter_limits(options.limits), options.now);
  define_tokens(tokens, &interpreter);
  INFERD_TRY(define_input(input, &interpreter));
  auto text = interpreter.render();
  if (!text) return text.error().with_context("chat template");
  std::vector<TextSegment> segments;
  text->for_each_run(0, text->size(), [&segments](std::string_view run, jinja::Origin origin) {
    segments.push_back({std::string(run), origin == jinja::Origin::kTemplate});
  });
  return segments;
}

}  // namespace inferd
