#include "daemon/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/config_reader.h"
#include "daemon/config_schema.h"
#include "daemon/user_weights.h"

namespace inferd::daemon {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

struct Parsed {
  Config config;
  std::vector<ConfigProblem> problems;
};

Parsed parse(std::string_view text, std::vector<Override> overrides = {}) {
  Parsed parsed;
  parsed.config = parse_config(text, "inferd.toml", overrides, parsed.problems);
  return parsed;
}

constexpr std::string_view kModel = "[[model]]\npath = \"/m.gguf\"\n";

TEST(Config, EveryKeyIsReadFromTheFile) {
  const Parsed parsed = parse(R"([daemon]
runtime_dir = "/tmp/x"
log_level = "debug"
drain_timeout = "2 min"
access = "group"
group = "llm"
[[model]]
path = "/m.gguf"
name = "small"
[memory]
pool = "1.5 GiB"
page_tokens = 16
prefix_cache = false
cache_idle = "90 s"
[scheduler]
step_tokens = 128
max_sequences = 7
queue = 8
itl_target_ms = 40
[cpu]
threads = 2
isa = "avx2"
[limits]
connections = 9
connections_per_user = 3
user_ring_bytes = "3 MiB"
user_arena_bytes = "none"
sequences_per_session = 4
handshake_timeout = 0.5
stall_timeout = "750 ms"
control_connections = 5
user_sequences = 11
user_queue = 12
user_pages = 13
user_tokens_per_s = 14
client_queue = 15
client_pages = 16
client_tokens_per_s = "none"
)");
  ASSERT_THAT(parsed.problems, IsEmpty()) << format_problems(parsed.problems);
  const Config& c = parsed.config;
  EXPECT_EQ(c.daemon.runtime_dir, "/tmp/x");
  EXPECT_EQ(c.daemon.log_level, "debug");
  EXPECT_EQ(c.daemon.drain_timeout_ms, 120'000u);
  EXPECT_EQ(c.daemon.access, "group");
  EXPECT_EQ(c.daemon.group, "llm");
  ASSERT_THAT(c.models, SizeIs(1));
  EXPECT_EQ(c.models[0].path, "/m.gguf");
  EXPECT_EQ(c.models[0].name, "small");
  EXPECT_EQ(c.memory.pool, Bytes(3ull << 29));
  EXPECT_FALSE(c.memory.prefix_cache);
  EXPECT_EQ(c.memory.cache_idle_ms, 90'000u);
  EXPECT_EQ(c.scheduler.step_tokens, 128u);
  EXPECT_EQ(c.scheduler.max_sequences, 7u);
  EXPECT_EQ(c.scheduler.queue, 8u);
  EXPECT_EQ(c.scheduler.itl_target_ms, 40u);
  EXPECT_EQ(c.cpu.threads, 2u);
  EXPECT_EQ(c.cpu.isa, "avx2");
  EXPECT_EQ(c.limits.connections, 9u);
  EXPECT_EQ(c.limits.connections_per_user, 3u);
  EXPECT_EQ(c.limits.user_ring_bytes, Bytes(3u << 20));
  EXPECT_EQ(c.limits.user_arena_bytes, Bytes(0));
  EXPECT_EQ(c.limits.sequences_per_session, 4u);
  EXPECT_EQ(c.limits.handshake_timeout_ms, 500u);
  EXPECT_EQ(c.limits.stall_timeout_ms, 750u);
  EXPECT_EQ(c.limits.control_connections, 5u);
  EXPECT_EQ(c.limits.user_sequences, 11u);
  EXPECT_EQ(c.limits.user_queue, 12u);
  EXPECT_EQ(c.limits.user_pages, 13u);
  EXPECT_EQ(c.limits.user_tokens_per_s, 14u);
  EXPECT_EQ(c.limits.client_queue, 15u);
  EXPECT_EQ(c.limits.client_pages, 16u);
  EXPECT_EQ(c.limits.client_tokens_per_s, 0u);
}

struct Mistake {
  const char* name;
  const char* text;
  uint32_t line;
  uint32_t column;
  const char* expected;
};

class ConfigMistake : public testing::TestWithParam<Mistake> {};

TEST_P(ConfigMistake, IsReportedWithItsPlaceAndWhatWasExpected) {
  const Mistake& mistake = GetParam();
  const Parsed parsed = parse(mistake.text);
  ASSERT_THAT(parsed.problems, SizeIs(1)) << format_problems(parsed.problems);
  EXPECT_EQ(parsed.problems[0].origin, "inferd.toml");
  EXPECT_EQ(parsed.problems[0].line, mistake.line);
  EXPECT_EQ(parsed.problems[0].column, mistake.column);
  EXPECT_THAT(parsed.problems[0].message, HasSubstr(mistake.expected));
}

const Mistake kMistakes[] = {
    {"UnknownKey", "[scheduler]\nstep_token = 3\n", 2, 1, "did you mean 'step_tokens'?"},
    {"UnknownFarKey", "[cpu]\ncolour = 3\n", 2, 1, "expected one of threads, isa"},
    {"KeyOfAnotherSection", "[cpu]\n  queue = 3\n", 2, 3, "it belongs to [scheduler]"},
    {"UnknownSection", "[schedular]\nqueue = 3\n", 1, 2, "did you mean 'scheduler'?"},
    {"KeyOutsideOfASection", "log_level = \"info\"\n", 1, 1, "it belongs to [daemon]"},
    {"SectionThatIsAScalar", "memory = 4\n", 1, 10, "expected a table, written [memory]"},
    {"WrongType", "[scheduler]\nqueue = \"many\"\n", 2, 9,
     "expected an integer from 1 to 65536, got \"many\""},
    {"Float", "[scheduler]\nqueue = 1.5\n", 2, 9, "got 1.5"},
    {"Negative", "[scheduler]\nqueue = -1\n", 2, 9, "expected an integer from 1 to 65536, got -1"},
    {"OutOfRange", "[scheduler]\nstep_tokens = 8193\n", 2, 15, "from 1 to 8192, got 8193"},
    {"Choice", "[daemon]\nlog_level = \"loud\"\n", 2, 13, "one of \"trace\", \"debug\""},
    {"BadSize", "[memory]\npool = \"lots\"\n", 2, 8, "a size such as \"2 GiB\""},
    {"TooSmallSize", "[memory]\npool = \"5 B\"\n", 2, 8, "from 1 MiB"},
    {"PageTokens", "[memory]\npage_tokens = 32\n", 2, 15, "expected 16"},
    {"FlagAsText", "[memory]\nprefix_cache = \"no\"\n", 2, 16, "expected true or false"},
    {"Duration", "[daemon]\ndrain_timeout = \"3 fortnights\"\n", 2, 17, "seconds, or a string"},
    {"NegativeDuration", "[daemon]\ndrain_timeout = -3\n", 2, 17, "got -3"},
    {"RelativeRuntimeDir", "[daemon]\nruntime_dir = \"run\"\n", 2, 15, "an absolute path"},
    {"ModelWithoutPath", "[[model]]\nname = \"x\"\n", 1, 1, "without a path"},
    {"ModelAsTable", "[model]\npath = \"x\"\n", 1, 1, "written [[model]]"},
    {"ModelUnknownKey", "[[model]]\npath = \"x\"\nnmae = \"y\"\n", 3, 1, "did you mean 'name'?"},
    {"ModelPathType", "[[model]]\npath = 3\n", 2, 8, "expected a string that is not empty"},
    {"SecondModel", "[[model]]\npath = \"x\"\n[[model]]\npath = \"y\"\n", 3, 1, "one model per"},
    {"DomainAsTable", "[cache_domain]\nname = \"a\"\n", 1, 1, "written [[cache_domain]]"},
    {"DomainWithoutName", "[[cache_domain]]\nusers = [1]\n", 1, 1, "without a name"},
    {"DomainForNobody", "[[cache_domain]]\nname = \"a\"\n", 1, 1, "nobody may use"},
    {"DomainName", "[[cache_domain]]\nname = \"a b\"\nusers = [1]\n", 2, 8, "letters, digits"},
    {"DomainUsersAsText", "[[cache_domain]]\nname = \"a\"\nusers = \"alice\"\n", 3, 9,
     "expected an array"},
    {"DomainUserNegative", "[[cache_domain]]\nname = \"a\"\nusers = [-1]\n", 3, 10,
     "names or numbers"},
    {"DomainUserTooHigh", "[[cache_domain]]\nname = \"a\"\nusers = [1, 4294967295]\n", 3, 13,
     "names or numbers"},
    {"DomainUserFloat", "[[cache_domain]]\nname = \"a\"\ngroups = [1.0]\n", 3, 11,
     "names or numbers"},
    {"DomainUserEmpty", "[[cache_domain]]\nname = \"a\"\ngroups = [\"\"]\n", 3, 11,
     "names or numbers"},
    {"DomainUnknownKey", "[[cache_domain]]\nname = \"a\"\nusers = [1]\ngruops = []\n", 4, 1,
     "did you mean 'groups'?"},
    {"DomainTwice",
     "[[cache_domain]]\nname = \"a\"\nusers = [1]\n[[cache_domain]]\nname = \"a\"\nusers = [2]\n",
     4, 1, "a second [[cache_domain]]"},
    {"UserAsTable", "[user]\nname = \"a\"\n", 1, 1, "written [[user]]"},
    {"UserWithoutName", "[[user]]\nweight = 5\n", 1, 1, "without a name"},
    {"UserNameEmpty", "[[user]]\nname = \"\"\n", 2, 8, "name or number"},
    {"UserNameNegative", "[[user]]\nname = -1\n", 2, 8, "name or number"},
    {"UserWeightZero", "[[user]]\nname = 1\nweight = 0\n", 3, 10, "from 1 to 10000"},
    {"UserWeightText", "[[user]]\nname = 1\nweight = \"much\"\n", 3, 10, "from 1 to 10000"},
    {"UserUnknownKey", "[[user]]\nname = 1\nwieght = 3\n", 3, 1, "did you mean 'weight'?"},
    {"UserTwice", "[[user]]\nname = \"a\"\n[[user]]\nname = \"a\"\n", 3, 1, "a second [[user]]"},
    {"DomainsSection", "[[cache_domains]]\nname = \"a\"\n", 1, 3, "did you mean 'cache_domain'?"},
    {"Array", "[cpu]\nthreads = [1]\n", 2, 11, "got an array"},
    {"NotToml", "[cpu]\nthreads = = 1\n", 2, 11, "not valid TOML"},
    {"DuplicateKey", "[cpu]\nthreads = 1\nthreads = 2\n", 3, 11, "not valid TOML"},
};

// Values that a key of this kind must refuse, as they are written in the file.
std::vector<std::string> wrong_values(const KeySpec& spec) {
  std::vector<std::string> wrong{"[1]", "{ a = 1 }", "1979-05-27", "nan", "-1", "\"no such\\nvalue\""};
  const auto beyond = std::to_string(spec.high + 1);
  switch (spec.kind) {
    case KeyKind::kText: return {"[1]", "{ a = 1 }", "1979-05-27", "7", "true", "\"\""};
    case KeyKind::kChoice: wrong.insert(wrong.end(), {"7", "true", "\"\"", "\"AUTO\""}); break;
    case KeyKind::kFlag: wrong.insert(wrong.end(), {"0", "\"true\""}); break;
    case KeyKind::kLimit:
      wrong.insert(wrong.end(), {"\"auto\"", "0", beyond, "1.5", "true", "\"7\""});
      break;
    case KeyKind::kCount: wrong.insert(wrong.end(), {"\"auto\""}); [[fallthrough]];
    case KeyKind::kAutoCount:
      wrong.insert(wrong.end(), {"0", beyond, "1.5", "true", "\"7\"", "9223372036854775807"});
      break;
    case KeyKind::kDuration:
      wrong.insert(wrong.end(), {"true", "\"\"", "\"3 fortnights\"", "inf", "\"-1 s\"",
                                 "\"" + beyond + " ms\"", "9223372036854775807"});
      if (spec.low > 0) wrong.push_back("\"" + std::to_string(spec.low - 1) + " ms\"");
      break;
    case KeyKind::kSizeLimit:
    case KeyKind::kAutoSize:
      wrong.insert(wrong.end(), {"true", "0", "1.5", beyond, std::to_string(spec.low - 1),
                                 "\"3 parsecs\"", "9223372036854775807"});
      break;
  }
  return wrong;
}

TEST(Config, EveryKeyRefusesEveryWrongValueWithPlaceAndExpectation) {
  for (const KeySpec& spec : config_keys()) {
    for (const std::string& value : wrong_values(spec)) {
      const std::string line = "   " + std::string(spec.key) + " = " + value;
      const Parsed parsed = parse(std::string(kModel) + "[" + std::string(spec.section) + "]\n" +
                                  line + "\n");
      ASSERT_THAT(parsed.problems, SizeIs(1)) << line << "\n" << format_problems(parsed.problems);
      const ConfigProblem& problem = parsed.problems.front();
      EXPECT_EQ(problem.line, 4u) << line;
      EXPECT_EQ(problem.column, line.find(" = ") + 4) << line;
      EXPECT_THAT(problem.message,
                  HasSubstr(std::string(spec.section) + "." + std::string(spec.key) + ": expected "));
      EXPECT_THAT(problem.message, HasSubstr(", got ")) << line;
      EXPECT_EQ(problem.message.find('\n'), std::string::npos) << "a line of its own: " << line;
      if (spec.check == nullptr) {
        EXPECT_THAT(problem.message, HasSubstr(expectation(spec))) << line;
      }
      // The same on the command line, unless that takes the words for a string.
      if (spec.kind == KeyKind::kText && value != "\"\"") continue;
      const std::string text = std::string(spec.section) + "." + std::string(spec.key) + "=" + value;
      const Parsed typed = parse(kModel, {{text, "--set " + text}});
      ASSERT_THAT(typed.problems, SizeIs(1)) << text;
      EXPECT_EQ(typed.problems.front().origin, "--set " + text);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ConfigMistake, testing::ValuesIn(kMistakes),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Config, AllMistakesAreReportedInTheOrderOfTheFile) {
  const Parsed parsed = parse(
      "[scheduler]\nqueue = 0\nwrong = 1\n\n\n\n\n\n\n[cpu]\n          isa = \"z80\"\n[alarm]\n");
  ASSERT_THAT(parsed.problems, SizeIs(4)) << format_problems(parsed.problems);
  EXPECT_EQ(parsed.problems[0].line, 2u);
  EXPECT_EQ(parsed.problems[1].line, 3u);
  EXPECT_EQ(parsed.problems[2].line, 11u);
  EXPECT_EQ(parsed.problems[3].line, 12u);
}

TEST(Config, ProblemsArePrintedAsFileLineColumnMessage) {
  const Parsed parsed = parse("[cpu]\nthreads = -1\n");
  EXPECT_EQ(format_problems(parsed.problems),
            "inferd.toml:2:11: cpu.threads: expected \"auto\" or an integer from 1 to 1024, got -1");
}

TEST(Config, AFileWithoutAModelIsRefused) {
  const Parsed parsed = parse("");
  ASSERT_THAT(parsed.problems, SizeIs(1));
  EXPECT_THAT(parsed.problems[0].message, HasSubstr("no model to serve"));
}

TEST(Config, AStepMustHoldOneTokenOfEverySequence) {
  const Parsed parsed = parse(std::string(kModel) + "[scheduler]\nstep_tokens = 63\n");
  ASSERT_THAT(parsed.problems, SizeIs(1));
  EXPECT_THAT(parsed.problems[0].message, HasSubstr("must be at least max_sequences"));
}

TEST(Config, TheCommandLineWinsOverTheFile) {
  const Parsed parsed = parse(std::string(kModel) + "[scheduler]\nqueue = 5\n",
                              {{"scheduler.queue=6", "--set"},
                               {"daemon.log_level=debug", "--set"},
                               {"memory.pool=2 GiB", "--set"},
                               {"limits.stall_timeout=\"3 s\"", "--set"},
                               {"model.path=/other.gguf", "--model"}});
  ASSERT_THAT(parsed.problems, IsEmpty()) << format_problems(parsed.problems);
  EXPECT_EQ(parsed.config.scheduler.queue, 6u);
  EXPECT_EQ(parsed.config.daemon.log_level, "debug");
  EXPECT_EQ(parsed.config.memory.pool, Bytes(2ull << 30));
  EXPECT_EQ(parsed.config.limits.stall_timeout_ms, 3000u);
  EXPECT_EQ(parsed.config.models[0].path, "/other.gguf");
}

TEST(Config, AModelOfTheCommandLineNeedsNoFile) {
  const Parsed parsed = parse("", {{"model.path=7", "--model 7"}});
  ASSERT_THAT(parsed.problems, IsEmpty()) << format_problems(parsed.problems);
  EXPECT_EQ(parsed.config.models[0].path, "7");
}

TEST(Config, MistakesOfTheCommandLineNameTheirOption) {
  const Parsed parsed = parse(kModel, {{"queue=6", "--set queue=6"},
                                       {"scheduler.queu=6", "--set scheduler.queu=6"},
                                       {"scheduler.queue=x", "--set scheduler.queue=x"},
                                       {"nothing", "--set nothing"}});
  ASSERT_THAT(parsed.problems, SizeIs(4));
  EXPECT_THAT(format_problems(parsed.problems), HasSubstr("--set queue=6: expected section.key"));
  EXPECT_THAT(format_problems(parsed.problems), HasSubstr("did you mean 'queue'?"));
  EXPECT_THAT(format_problems(parsed.problems), HasSubstr("from 1 to 65536, got \"x\""));
}

TEST(Config, TheHighestPathThatFitsASocketIsAccepted) {
  const auto with_dir = [](size_t bytes) {
    return parse(kModel, {{"daemon.runtime_dir=/" + std::string(bytes - 1, 'a'), "--set"}});
  };
  EXPECT_THAT(with_dir(93).problems, IsEmpty());
  EXPECT_THAT(with_dir(94).problems, SizeIs(1));
}

TEST(Config, AReloadTellsWhatItCanChangeAndWhatNeedsARestart) {
  const Config from = parse(kModel).config;
  const Config to = parse(std::string(kModel) +
                          "name = \"n\"\n[daemon]\nlog_level = \"warn\"\n[cpu]\nthreads = 2\n")
                        .config;
  const std::vector<ConfigDifference> differences = config_differences(from, to);
  ASSERT_THAT(differences, SizeIs(3));
  EXPECT_EQ(differences[0].key, "daemon.log_level");
  EXPECT_TRUE(differences[0].reloadable);
  EXPECT_EQ(differences[1].key, "cpu.threads");
  EXPECT_EQ(differences[1].from, "\"auto\"");
  EXPECT_EQ(differences[1].to, "2");
  EXPECT_FALSE(differences[1].reloadable);
  EXPECT_EQ(differences[2].key, "model.name");
  const Config merged = with_reloadable(from, to);
  EXPECT_EQ(merged.daemon.log_level, "warn");
  EXPECT_EQ(merged.cpu.threads, 0u);
  EXPECT_EQ(merged.models[0].name, "");
}

TEST(Config, UsersHaveWeightsAndNeedARestart) {
  const Parsed parsed = parse(std::string(kModel) +
                              "[[user]]\nname = \"root\"\nweight = 300\n[[user]]\nname = 1001\n");
  ASSERT_THAT(parsed.problems, IsEmpty()) << format_problems(parsed.problems);
  const std::vector<ConfigDifference> differences =
      config_differences(parse(kModel).config, parsed.config);
  ASSERT_THAT(differences, SizeIs(1));
  EXPECT_EQ(differences[0].key, "user");
  EXPECT_FALSE(differences[0].reloadable);
  const Result<UserWeights> weights = UserWeights::resolve(parsed.config.users);
  ASSERT_TRUE(weights.ok());
  EXPECT_EQ(weights->of(UserId(0)), 300u);
  EXPECT_EQ(weights->of(UserId(1001)), 100u);
  EXPECT_EQ(weights->of(UserId(7)), 100u) << "not named";
  const Result<UserWeights> unknown = UserWeights::resolve({{"no-such-user-here", 5}});
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.error().message(), testing::HasSubstr("no-such-user-here"));
}

TEST(Config, CacheDomainsNameUsersAndGroupsAndNeedARestart) {
  const std::string domains = R"([[cache_domain]]
name = "team"
users = ["alice", 1001]
[[cache_domain]]
name = "all.devs-1"
groups = ["devs"]
)";
  const Parsed parsed = parse(std::string(kModel) + domains);
  ASSERT_THAT(parsed.problems, IsEmpty()) << format_problems(parsed.problems);
  ASSERT_THAT(parsed.config.cache_domains, SizeIs(2));
  EXPECT_THAT(parsed.config.cache_domains[0].users, testing::ElementsAre("alice", "1001"));
  EXPECT_THAT(parsed.config.cache_domains[0].groups, IsEmpty());
  EXPECT_EQ(parsed.config.cache_domains[1].name, "all.devs-1");
  EXPECT_THAT(parsed.config.cache_domains[1].groups, testing::ElementsAre("devs"));

  const std::vector<ConfigDifference> differences =
      config_differences(parse(kModel).config, parsed.config);
  ASSERT_THAT(differences, SizeIs(1));
  EXPECT_EQ(differences[0].key, "cache_domain");
  EXPECT_EQ(differences[0].from, "[]");
  EXPECT_THAT(differences[0].to, HasSubstr("\"alice\", \"1001\""));
  EXPECT_FALSE(differences[0].reloadable);
  EXPECT_THAT(parse(kModel, {{"cache_domain.name=x", "--set"}}).problems[0].message,
              HasSubstr("in the configuration file"));
}

TEST(Config, DefaultsWrittenOutAreTheDefaults) {
  // What the documentation prints as a default must read back as that default.
  const Config defaults;
  for (const KeySpec& spec : config_keys()) {
    const Parsed parsed = parse(std::string(kModel) + "[" + std::string(spec.section) + "]\n" +
                                std::string(spec.key) + " = " + written_value(spec, defaults));
    EXPECT_THAT(parsed.problems, IsEmpty()) << spec.key << format_problems(parsed.problems);
    EXPECT_EQ(written_value(spec, parsed.config), written_value(spec, defaults)) << spec.key;
  }
}

TEST(ConfigReader, DurationsTakeTheUnitsThatSystemdTakes) {
  EXPECT_EQ(parse_duration_ms("30"), 30'000u);
  EXPECT_EQ(parse_duration_ms("1.5 s"), 1'500u);
  EXPECT_EQ(parse_duration_ms("250ms"), 250u);
  EXPECT_EQ(parse_duration_ms("2 min"), 120'000u);
  EXPECT_EQ(parse_duration_ms("1h"), 3'600'000u);
  EXPECT_EQ(parse_duration_ms("1d"), 86'400'000u);
  EXPECT_FALSE(parse_duration_ms("-1").has_value());
  EXPECT_FALSE(parse_duration_ms("nan").has_value());
  EXPECT_FALSE(parse_duration_ms("1 y").has_value());
  EXPECT_FALSE(parse_duration_ms("").has_value());
}

TEST(ConfigReader, EditDistanceCountsASwapOnce) {
  EXPECT_EQ(edit_distance("nmae", "name"), 1u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

}  // namespace
}  // namespace inferd::daemon
