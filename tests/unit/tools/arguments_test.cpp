#include "tools/inferctl/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inferd::inferctl {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr OptionSpec kOptions[] = {
    {"json", "", "print JSON"},
    {"max-tokens", "N", "a limit"},
    {"temperature", "T", "a temperature"},
    {"stop", "TEXT", "a text", true},
};

Result<Arguments> parse(const std::vector<std::string>& words) {
  return parse_arguments(words, kOptions);
}

std::string complaint(const std::vector<std::string>& words) {
  const auto parsed = parse(words);
  return parsed ? "" : parsed.error().message();
}

TEST(Arguments, OptionsAndPositionalsMayMix) {
  const auto parsed = parse({"a prompt", "--max-tokens", "5", "--json", "--temperature=0.5", "-"});
  ASSERT_TRUE(parsed);
  EXPECT_THAT(parsed->positionals(), ElementsAre("a prompt", "-"));
  EXPECT_TRUE(parsed->has("json"));
  EXPECT_EQ(parsed->text("max-tokens"), "5");
  EXPECT_EQ(parsed->text("temperature"), "0.5");
  EXPECT_FALSE(parsed->has("stop"));
}

TEST(Arguments, WhatFollowsTwoDashesIsNoOption) {
  const auto parsed = parse({"--", "--json", "--"});
  ASSERT_TRUE(parsed);
  EXPECT_THAT(parsed->positionals(), ElementsAre("--json", "--"));
  EXPECT_FALSE(parsed->has("json"));
}

TEST(Arguments, AValueMayBeginWithADash) {
  const auto parsed = parse({"--temperature", "-1", "--stop", "--", "--stop", "--json"});
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->text("temperature"), "-1");
  EXPECT_THAT(parsed->texts("stop"), ElementsAre("--", "--json"));
}

TEST(Arguments, MistakesAreNamed) {
  EXPECT_THAT(complaint({"--max-token", "5"}), HasSubstr("did you mean --max-tokens?"));
  EXPECT_THAT(complaint({"--jsno"}), HasSubstr("did you mean --json?"));
  EXPECT_THAT(complaint({"--wholly-other"}), HasSubstr("--help"));
  EXPECT_THAT(complaint({"--max-tokens"}), HasSubstr("needs a value: --max-tokens N"));
  EXPECT_THAT(complaint({"--json=1"}), HasSubstr("takes no value"));
  EXPECT_THAT(complaint({"--json", "--json"}), HasSubstr("given twice"));
  EXPECT_THAT(complaint({"-j"}), HasSubstr("two dashes"));
}

TEST(Arguments, NumbersOutsideTheirRangeAreRefused) {
  for (const char* wrong : {"0", "11", "-1", "5x", "", " 5", "1e1", "99999999999999999999"}) {
    const auto parsed = parse({"--max-tokens", wrong});
    ASSERT_TRUE(parsed);
    const auto number = parsed->unsigned_number("max-tokens", 3, 1, 10);
    ASSERT_FALSE(number) << wrong;
    EXPECT_THAT(number.error().message(), HasSubstr("from 1 to 10"));
  }
  for (const char* wrong : {"nan", "inf", "-0.1", "2.1", "0,5", "1.0f"}) {
    const auto parsed = parse({"--temperature", wrong});
    ASSERT_TRUE(parsed);
    EXPECT_FALSE(parsed->decimal("temperature", 0, 0, 2)) << wrong;
  }
  const auto parsed = parse({"--max-tokens", "10", "--temperature", "2"});
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->unsigned_number("max-tokens", 3, 1, 10).value(), 10u);
  EXPECT_EQ(parsed->decimal("temperature", 0, 0, 2).value(), 2.0);
}

TEST(Arguments, AMissingNumberIsItsFallback) {
  const auto parsed = parse({});
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->unsigned_number("max-tokens", 3, 5, 10).value(), 3u);
  EXPECT_EQ(parsed->decimal("temperature", 0.25, 1, 2).value(), 0.25);
}

TEST(Arguments, NearestNameKnowsASwapFromAnotherWord) {
  constexpr std::string_view kNames[] = {"run", "reload", "status", "list"};
  EXPECT_EQ(nearest_name("statsu", kNames), "status");
  EXPECT_EQ(nearest_name("rn", kNames), "run");
  EXPECT_EQ(nearest_name("relaod", kNames), "reload");
  EXPECT_EQ(nearest_name("version", kNames), "");
}

TEST(Arguments, IdsAreReadInEachFormThatWePrint) {
  EXPECT_THAT(parse_ids("1,2,3").value(), ElementsAre(1, 2, 3));
  EXPECT_THAT(parse_ids(" 1 2\n3\t4 ").value(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(parse_ids("[1, 2, 3]\n").value(), ElementsAre(1, 2, 3));
  EXPECT_THAT(parse_ids("[]").value(), IsEmpty());
  EXPECT_THAT(parse_ids("").value(), IsEmpty());
}

TEST(Arguments, WhatIsNoIdIsNamed) {
  EXPECT_THAT(parse_ids("1,two").error().message(), HasSubstr("'two'"));
  EXPECT_THAT(parse_ids("1,-2").error().message(), HasSubstr("'-2'"));
  EXPECT_THAT(parse_ids("4294967296").error().message(), HasSubstr("'4294967296'"));
  EXPECT_THAT(parse_ids("1]").error().message(), HasSubstr("']'"));
  EXPECT_THAT(parse_ids("[1").error().message(), HasSubstr("closing"));
  EXPECT_THAT(parse_ids("[1] 2").error().message(), HasSubstr("']'"));
}

TEST(Arguments, HelpListsEveryOptionOnce) {
  const std::string help = describe_options(kOptions);
  EXPECT_THAT(help, HasSubstr("  --max-tokens N   a limit\n"));
  EXPECT_EQ(std::count(help.begin(), help.end(), '\n'), 4);
}

}  // namespace
}  // namespace inferd::inferctl
