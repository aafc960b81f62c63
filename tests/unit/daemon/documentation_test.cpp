// The manual and the example say what the table of keys says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "daemon/config_schema.h"

namespace inferd::daemon {
namespace {

using testing::HasSubstr;

std::string file_text(const std::string& name) {
  std::ifstream file(std::string(INFERD_SOURCE_DIR) + "/" + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Documentation, TheManualExplainsEveryKey) {
  const std::string manual = file_text("docs/man/inferd.toml.5");
  for (const KeySpec& spec : config_keys()) {
    EXPECT_THAT(manual, HasSubstr(".SH [" + std::string(spec.section) + "]"));
    EXPECT_THAT(manual, HasSubstr(".BR " + std::string(spec.key) + " \" (")) << spec.key;
  }
  for (const ModelKeySpec& spec : model_keys()) {
    EXPECT_THAT(manual, HasSubstr(".BR " + std::string(spec.key) + " \" (")) << spec.key;
  }
}

// What the manual says of a key: its heading, and the text below it.
struct ManualEntry {
  std::string heading;
  std::string text;
};

ManualEntry manual_entry(const std::string& manual, const KeySpec& spec) {
  const size_t section = manual.find(".SH [" + std::string(spec.section) + "]");
  const size_t begin = manual.find(".BR " + std::string(spec.key) + " \" (", section);
  if (section == std::string::npos || begin == std::string::npos) return {};
  const size_t text = manual.find('\n', begin) + 1;
  const size_t end = std::min(manual.find("\n.TP", text), manual.find("\n.SH", text));
  return {manual.substr(begin, text - begin), manual.substr(text, end - text)};
}

std::string quoted_for_roff(const std::string& text) {
  std::string result;
  for (char c : text) result += c == '"' ? std::string("\\(dq") : std::string(1, c);
  return result;
}

TEST(Documentation, TheManualHasEachKeysDefaultRangeChoicesAndWhetherAReloadAppliesIt) {
  const std::string manual = file_text("docs/man/inferd.toml.5");
  const Config defaults;
  for (const KeySpec& spec : config_keys()) {
    SCOPED_TRACE(std::string(spec.section) + "." + std::string(spec.key));
    const ManualEntry entry = manual_entry(manual, spec);
    EXPECT_THAT(entry.heading, HasSubstr(quoted_for_roff(written_value(spec, defaults))));
    const bool is_count = spec.kind == KeyKind::kCount || spec.kind == KeyKind::kAutoCount ||
                          spec.kind == KeyKind::kLimit;
    if (is_count && spec.check == nullptr) {
      EXPECT_THAT(entry.text, HasSubstr(std::to_string(spec.low) + " to"));
      EXPECT_THAT(entry.text, HasSubstr(std::to_string(spec.high)));
    }
    for (std::string_view choice : spec.choices) {
      EXPECT_THAT(entry.text, HasSubstr(std::string(choice)));
    }
    // The whole section [limits] is marked at its head.
    const bool marked = spec.section == "limits" || entry.heading.find("reload") != std::string::npos;
    EXPECT_EQ(marked, spec.reloadable);
  }
}

TEST(Documentation, TheExampleShowsEveryKeyWithItsDefaultAndIsValid) {
  const std::string example = file_text("systemd/inferd.toml");
  const Config defaults;
  for (const KeySpec& spec : config_keys()) {
    if (spec.key == "access") continue;  // the service's own value
    EXPECT_THAT(example,
                HasSubstr("#" + std::string(spec.key) + " = " + written_value(spec, defaults)));
  }
  std::vector<ConfigProblem> problems;
  parse_config(example, "inferd.toml", {}, problems);
  EXPECT_TRUE(problems.empty()) << format_problems(problems);
  // With every comment sign in front of a key removed it must be valid as well.
  std::string all;
  std::istringstream lines(example);
  for (std::string line; std::getline(lines, line);) {
    const bool key = line.size() > 1 && line[0] == '#' && line[1] != ' ';
    all += (key ? line.substr(1) : line) + "\n";
  }
  parse_config(all, "inferd.toml", {}, problems);
  EXPECT_TRUE(problems.empty()) << format_problems(problems);
}

}  // namespace
}  // namespace inferd::daemon
