// The manual and the example say what the table of keys says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
