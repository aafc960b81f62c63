// The template language, piece by piece: what Jinja2 makes of each snippet is in
// tests/golden/templates/snippets.json, written by snippets.py.
#include <fstream>
#include <nlohmann/json.hpp>

#include "gtest/gtest.h"
#include "text/chat_template.h"

namespace inferd {
namespace {

using Json = nlohmann::ordered_json;

// The clock of reference.py: Saturday, 7 March 2026, 09:05:02.
TemplateRenderOptions at_fixed_time() {
  TemplateRenderOptions options;
  options.now = std::tm{};
  options.now->tm_year = 126;
  options.now->tm_mon = 2;
  options.now->tm_mday = 7;
  options.now->tm_hour = 9;
  options.now->tm_min = 5;
  options.now->tm_sec = 2;
  options.now->tm_wday = 6;
  options.now->tm_yday = 65;
  return options;
}

TEST(JinjaLanguage, EverySnippetRendersAsInJinja2) {
  std::ifstream file(std::string(INFERD_SOURCE_DIR) + "/tests/golden/templates/snippets.json");
  const Json golden = Json::parse(file);
  ASSERT_GE(golden["snippets"].size(), 600u);
  TemplateTokens tokens;
  tokens.bos = "<s>";
  tokens.eos = "</s>";
  for (const Json& row : golden["snippets"]) {
    const auto source = row[0].get<std::string>();
    const auto compiled = ChatTemplate::compile(source);
    if (!compiled) {
      EXPECT_TRUE(row[1].is_null()) << source << "\n" << compiled.error().message();
      continue;
    }
    const auto segments = compiled->render(golden["data"], tokens, at_fixed_time());
    if (!segments) {
      EXPECT_TRUE(row[1].is_null()) << source << "\n" << segments.error().message();
      EXPECT_NE(segments.error().message().find("line "), std::string::npos) << source;
      continue;
    }
    std::string text;
    for (const TextSegment& segment : *segments) text += segment.text;
    EXPECT_EQ(row[1].is_null() ? "(raises)" : row[1].get<std::string>(), text) << source;
  }
}

}  // namespace
}  // namespace inferd
