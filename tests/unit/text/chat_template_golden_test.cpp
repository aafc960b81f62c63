// Every chat template of llama.cpp's source, over every case of tests/golden/templates/cases.json,
// renders to what Jinja2 renders, and fails where Jinja2 raises.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gtest/gtest.h"
#include "tests/unit/peer_models.h"
#include "text/chat_template.h"

namespace inferd {
namespace {

using Json = nlohmann::ordered_json;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::filesystem::path golden_folder() {
  return std::filesystem::path(INFERD_SOURCE_DIR) / "tests/golden/templates";
}

std::string fnv1a(std::string_view text) {
  uint64_t value = 0xCBF29CE484222325u;
  for (const char c : text) {
    value = (value ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  }
  std::ostringstream out;
  out << std::hex;
  out.fill('0');
  out.width(16);
  out << value;
  return out.str();
}

// The clock of reference.py: Saturday, 7 March 2026, 09:05:02.
std::tm fixed_time() {
  std::tm time{};
  time.tm_year = 126;
  time.tm_mon = 2;
  time.tm_mday = 7;
  time.tm_hour = 9;
  time.tm_min = 5;
  time.tm_sec = 2;
  time.tm_wday = 6;
  time.tm_yday = 65;
  return time;
}

// "SIZE:HASH" or "raises", as golden.json has it. `said` gets the text or the error.
std::string outcome(const ChatTemplate& chat_template, const Json& chat, std::string* said) {
  TemplateTokens tokens;
  tokens.bos = "<s>";
  tokens.eos = "</s>";
  TemplateRenderOptions options;
  options.now = fixed_time();
  const auto segments = chat_template.render(chat, tokens, options);
  if (!segments) {
    *said = segments.error().message();
    return segments.error().code() == ErrorCode::kInvalidArgument ? "raises" : "fails";
  }
  said->clear();
  for (const TextSegment& segment : *segments) *said += segment.text;
  return std::to_string(said->size()) + ":" + fnv1a(*said);
}

TEST(ChatTemplateGolden, EveryTemplateRendersEveryCaseAsJinja2Does) {
  const auto folder = peer_models_folder() / "templates";
  if (!std::filesystem::is_directory(folder)) {
    if (tests_are_offline()) GTEST_SKIP() << "no templates, and INFERD_TESTS_OFFLINE=1";
    FAIL() << "there is no folder " << folder << ": " << kHowToGetPeerModels;
  }
  const Json cases = Json::parse(read_file(golden_folder() / "cases.json"));
  const Json golden = Json::parse(read_file(golden_folder() / "golden.json"));
  ASSERT_GE(golden.size(), 65u);
  size_t compared = 0;
  for (const auto& [name, entry] : golden.items()) {
    const std::string source = read_file(folder / name);
    ASSERT_EQ(fnv1a(source), entry["source"].get<std::string>())
        << name << " is not the template that golden.json was made from";
    const auto compiled = ChatTemplate::compile(source);
    ASSERT_TRUE(compiled.ok()) << name << ": " << compiled.error().message();
    for (const auto& [case_name, expected] : entry["results"].items()) {
      std::string said;
      EXPECT_EQ(outcome(*compiled, cases[case_name], &said), expected.get<std::string>())
          << name << ", case " << case_name << ": " << said.substr(0, 2000);
      ++compared;
    }
  }
  EXPECT_GE(compared, golden.size() * cases.size());
}

}  // namespace
}  // namespace inferd
