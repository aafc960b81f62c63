// Chat templates from outside: compiling and rendering one never crashes, hangs or grows without
// bound, whatever the template says; and what the input said never comes out as the template's own
// text.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "text/chat_template.h"

namespace {

// A mark that no template contains unless the fuzzer writes its digits itself.
constexpr char kMark[] = "d4t4-7f3a";

const nlohmann::ordered_json& chat() {
  static const nlohmann::ordered_json value = nlohmann::ordered_json::parse(R"({
    "messages": [
      {"role": "system", "content": "d4t4-7f3a"},
      {"role": "user", "content": [{"type": "text", "text": "d4t4-7f3a é\n"}]},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
        "function": {"name": "f", "arguments": {"a": 1, "b": [1.5, true, null]}}}]}],
    "tools": [{"type": "function", "function": {"name": "f", "description": "d4t4-7f3a",
      "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}],
    "s": "d4t4-7f3a", "n": 42, "f": 2.5, "d": {"b": 1, "a": {"x": [1]}}, "l": [3, 1, 2]})");
  return value;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto compiled = inferd::ChatTemplate::compile(source);
  if (!compiled) return 0;
  inferd::TemplateRenderOptions options;
  options.now = std::tm{};
  options.now->tm_mday = 1;
  options.now->tm_year = 126;
  options.limits.steps_max = 200'000;
  options.limits.output_bytes_max = 1 << 20;
  options.limits.memory_bytes_max = 32 << 20;
  const auto segments = compiled->render(chat(), {"<s>", "</s>", "", ""}, options);
  if (!segments) return 0;
  bool before = false;
  for (const auto& segment : *segments) {
    const bool first = &segment == &segments->front();
    if (segment.text.empty()) std::abort();
    if (!first && segment.from_template == before) std::abort();  // neighbours differ
    before = segment.from_template;
    const bool marked = segment.text.find(kMark) != std::string::npos;
    if (marked && segment.from_template && source.find("d4") == std::string_view::npos)
      std::abort();
  }
  return 0;
}
