#include "daemon/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inferd::daemon {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

Result<CommandLine> parse(std::vector<const char*> arguments, const char* user_dir = "") {
  return parse_command_line(arguments, user_dir);
}

Config config_of(const CommandLine& line) {
  std::vector<ConfigProblem> problems;
  Config config = parse_config("", "none", line.overrides, problems);
  EXPECT_THAT(problems, IsEmpty()) << format_problems(problems);
  return config;
}

TEST(CommandLine, WithoutOptionsTheSystemsFileIsRead) {
  const auto line = parse({});
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(line->config_path, "/etc/inferd/inferd.toml");
  EXPECT_EQ(line->action, CommandLine::Action::kServe);
}

TEST(CommandLine, AModelMakesAPrivateDaemonInTheUsersDirectory) {
  const auto line = parse({"--model", "/m.gguf"}, "/run/user/7");
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(line->config_path, "");
  EXPECT_EQ(config_of(*line).models[0].path, "/m.gguf");
  EXPECT_EQ(config_of(*line).daemon.runtime_dir, "/run/user/7/inferd");
}

TEST(CommandLine, ValuesMayFollowAnEqualsSignAndPathsBecomeAbsolute) {
  const auto line = parse({"--model=a\"b.gguf", "--runtime-dir=/x/../y", "--set=scheduler.queue=3"});
  ASSERT_TRUE(line.ok());
  const Config config = config_of(*line);
  EXPECT_THAT(config.models[0].path, testing::StartsWith("/"));
  EXPECT_THAT(config.models[0].path, testing::EndsWith("/a\"b.gguf"));
  EXPECT_EQ(config.daemon.runtime_dir, "/y");
  EXPECT_EQ(config.scheduler.queue, 3u);
}

TEST(CommandLine, MistakesSayWhatWasMeant) {
  EXPECT_THAT(parse({"--modle", "x"}).error().message(), HasSubstr("did you mean --model?"));
  EXPECT_THAT(parse({"--model"}).error().message(), HasSubstr("needs a value"));
  EXPECT_THAT(parse({"--set="}).error().message(), HasSubstr("not empty"));
  EXPECT_THAT(parse({"--version=2"}).error().message(), HasSubstr("takes no value"));
  EXPECT_THAT(parse({"model.gguf"}).error().message(), HasSubstr("unknown argument"));
}

}  // namespace
}  // namespace inferd::daemon
