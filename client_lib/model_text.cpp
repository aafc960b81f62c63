#include "client_lib/model_text.h"

#include <nlohmann/json.hpp>

namespace inferd::client_lib {

Result<std::unique_ptr<ModelText>> ModelText::open(UniqueFd tables_fd, uint64_t bytes) {
  if (!ipc::is_immutable(tables_fd.get())) {
    return Error(ErrorCode::kProtocol, "the daemon sent text tables that could still change");
  }
  INFERD_ASSIGN(auto region,
                ipc::SharedRegion::map(std::move(tables_fd), bytes, ipc::Access::kReadOnly));
  region.close_fd();
  const std::span<const uint8_t> block(reinterpret_cast<const uint8_t*>(region.data()),
                                       region.size());
  INFERD_ASSIGN(const TextTables tables, TextTables::open(block));
  INFERD_ASSIGN(auto tokenizer, Tokenizer::create(tables));
  return std::unique_ptr<ModelText>(new ModelText(std::move(region), std::move(tokenizer)));
}

Result<std::vector<TokenId>> ModelText::tokenize(std::string_view text, bool parse_special,
                                                 bool begin) const {
  std::vector<TokenId> ids;
  if (begin && tables().add_bos() && tables().bos() != kNoToken) ids.push_back(tables().bos());
  EncodeOptions options;
  options.parse_special = parse_special;
  INFERD_TRY(tokenizer_.encode(text, options, ids));
  return ids;
}

std::string ModelText::detokenize(std::span<const TokenId> ids, bool special) const {
  DecodeOptions options;
  options.special = special;
  return tokenizer_.decode(ids, options);
}

Result<std::vector<TokenId>> ModelText::render_chat(std::string_view chat_json) const {
  nlohmann::ordered_json input;
  try {
    input = nlohmann::ordered_json::parse(chat_json);
  } catch (const nlohmann::ordered_json::exception& e) {
    return Error(ErrorCode::kInvalidArgument,
                 std::string("the chat is not valid JSON: ") + e.what());
  }
  if (!input.is_array() && !(input.is_object() && input.contains("messages"))) {
    return Error(ErrorCode::kInvalidArgument,
                 "the chat must be an array of messages, or an object with \"messages\"");
  }
  const bool with_tools = input.is_object() && input.contains("tools") && !input["tools"].empty();
  INFERD_ASSIGN(const ChatTemplate* chat, chat_template(with_tools));
  INFERD_ASSIGN(const auto segments, chat->render(input, tokenizer_.template_tokens()));
  // The template writes BOS itself where the model wants one.
  return tokenizer_.encode_segments(segments);
}

Result<const ChatTemplate*> ModelText::chat_template(bool with_tools) const {
  std::string_view source = tables().chat_template();
  bool named = false;
  for (uint32_t i = 0; with_tools && i < tables().named_template_count(); ++i) {
    if (tables().template_name(i) != "tool_use") continue;
    source = tables().named_template(i);
    named = true;
  }
  if (source.empty()) {
    return Error(ErrorCode::kUnsupported,
                 "the model has no chat template; give the prompt as text or token ids");
  }
  const std::lock_guard lock(template_mutex_);
  CompiledTemplate& slot = named ? with_tools_ : plain_;
  if (!slot.compiled && !slot.error) {
    auto compiled = ChatTemplate::compile(source);
    if (compiled.ok()) {
      slot.compiled = std::move(compiled).value();
    } else {
      slot.error = compiled.error().with_context("the model's chat template cannot be used");
    }
  }
  if (slot.error) return *slot.error;
  return &*slot.compiled;
}

}  // namespace inferd::client_lib
