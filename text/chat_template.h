// The chat template of a model: Jinja source in, prompt text in segments out.
// Owner: text. compile() and render() may be called by any thread, render() by several at once on
// one object. Must not know tokens, models or the daemon.
//
// Inputs follow what Hugging Face's apply_chat_template hands to a template, with Jinja2 set up as
// it does there: trim_blocks, lstrip_blocks, loop controls, the {% generation %} tag, no mutation
// of lists and dictionaries, `tojson` without HTML escapes, `raise_exception(message)`,
// `strftime_now(format)`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace inferd {

// A piece of rendered text. Only text that the template itself wrote (its literals, and the token
// names given as TemplateTokens) may become control tokens; text that came in with the input never
// may, also after the template's filters, methods and slices have worked on it.
struct TextSegment {
  std::string text;  // UTF-8, never empty
  bool from_template = false;

  friend bool operator==(const TextSegment&, const TextSegment&) = default;
};

// Names of the model's special tokens, as the variables bos_token, eos_token, unk_token and
// pad_token of the template. An empty name leaves the variable undefined. They count as the
// template's own text.
struct TemplateTokens {
  std::string bos;
  std::string eos;
  std::string unk;
  std::string pad;
};

// What one rendering may use, against templates that loop or grow for ever. Exceeding one is an
// error of code kResourceExhausted that names the limit.
struct TemplateLimits {
  uint64_t steps_max = 100'000'000;          // nodes evaluated, items and 64-byte blocks handled
  uint64_t output_bytes_max = 64ull << 20;   // of rendered text
  uint64_t memory_bytes_max = 512ull << 20;  // of live values, the input among them
  uint32_t depth_max = 800;                  // nested evaluations, macro calls among them
};

struct TemplateRenderOptions {
  // Local time for strftime_now; not set: the system's clock in the process's time zone.
  std::optional<std::tm> now;
  TemplateLimits limits;
};

class ChatTemplate {
 public:
  // Parses `source` (UTF-8, at most 4 MiB); the object does not refer to it afterwards.
  // Errors: kDataCorrupt for a syntax error, kUnsupported for a construct of Jinja that no chat
  // template needs (include, import, extends, block, ...). The sentence names line and construct.
  static Result<ChatTemplate> compile(std::string_view source);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // `input` is an array of messages, or an object with "messages" and optionally "tools",
  // "documents", "add_generation_prompt" and any further variable of the template. "tools" and
  // "documents" are none where absent. A missing "add_generation_prompt" means true, because our
  // callers want an answer (Hugging Face's default is false). A variable of the input hides a token
  // name. Returns the text in order, neighbours of different origin; no segment for no text.
  // Errors: kInvalidArgument for an unusable input (not UTF-8, an integer beyond 64 bits, no
  // messages), for what the template itself refuses by raise_exception, and for what raises in
  // Jinja2 (a wrong type, an operation on something undefined); kUnsupported; kResourceExhausted
  // for a limit. Errors that arise while the template runs name its line.
  Result<std::vector<TextSegment>> render(const nlohmann::ordered_json& input,
                                          const TemplateTokens& tokens,
                                          const TemplateRenderOptions& options = {}) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace inferd
