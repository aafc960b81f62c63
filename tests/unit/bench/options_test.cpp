#include "bench/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inferd::bench {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Parsed {
  bool flag = false;
  std::string text = "default";
  uint32_t number = 7;
  double real = 0.5;
  std::vector<uint32_t> list = {1};
};

Result<bool> parse(Parsed& parsed, std::vector<std::string> arguments) {
  Options options("test", "for the test");
  options.add("flag", &parsed.flag, "");
  options.add("text", &parsed.text, "");
  options.add("number", &parsed.number, "");
  options.add("real", &parsed.real, "");
  options.add("list", &parsed.list, "");
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  return options.parse(pointers);
}

TEST(Options, WhatDoesNotOccurKeepsItsDefault) {
  Parsed parsed;
  ASSERT_TRUE(parse(parsed, {}).ok());
  EXPECT_EQ(parsed.text, "default");
  EXPECT_EQ(parsed.number, 7u);
  EXPECT_FALSE(parsed.flag);
}

TEST(Options, BothFormsOfEachKindAreRead) {
  Parsed parsed;
  const Result<bool> result =
      parse(parsed, {"--flag", "--text", "a=b", "--number=12", "--real", "2.5", "--list=0,2048,3"});
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(*result);
  EXPECT_TRUE(parsed.flag);
  EXPECT_EQ(parsed.text, "a=b");
  EXPECT_EQ(parsed.number, 12u);
  EXPECT_EQ(parsed.real, 2.5);
  EXPECT_THAT(parsed.list, ElementsAre(0u, 2048u, 3u));
}

TEST(Options, MistakesAreNamed) {
  const std::vector<std::vector<std::string>> wrong = {
      {"--unknown"},      {"positional"},         {"--number"},     {"--number", "-1"},
      {"--number", "1x"}, {"--real", ""},         {"--list", "1,"}, {"--flag=true"},
      {"-n", "1"},        {"--number=4294967296"}};
  for (const std::vector<std::string>& arguments : wrong) {
    Parsed parsed;
    const Result<bool> result = parse(parsed, arguments);
    ASSERT_FALSE(result.ok()) << arguments[0];
    EXPECT_EQ(result.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(result.error().message(),
                HasSubstr(arguments[0].substr(0, arguments[0].find('='))));
  }
}

TEST(Options, NumbersOutsideOfTheirRangeAreRefusedWithIt) {
  uint32_t number = 5;
  std::vector<uint32_t> list;
  Options options("test", "for the test");
  options.add("number", &number, {2, 9}, "");
  options.add("list", &list, {0, 64}, "");
  const auto parse = [&](std::string argument) {
    char* const pointer = argument.data();
    return options.parse(std::span(&pointer, 1));
  };
  for (const char* argument : {"--number=2", "--number=9", "--list=0,64"}) {
    EXPECT_TRUE(parse(argument).ok()) << argument;
  }
  EXPECT_EQ(number, 9u);
  EXPECT_EQ(parse("--number=1").error().message(), "--number must be from 2 to 9, not 1");
  EXPECT_EQ(parse("--number=10").error().message(), "--number must be from 2 to 9, not 10");
  EXPECT_EQ(parse("--list=3,65").error().message(), "--list must be from 0 to 64, not 65");
}

TEST(Options, HelpListsEveryOptionAndStops) {
  Parsed parsed;
  testing::internal::CaptureStdout();
  const Result<bool> result = parse(parsed, {"--help"});
  const std::string help = testing::internal::GetCapturedStdout();
  ASSERT_TRUE(result.ok());
  EXPECT_FALSE(*result);
  for (const char* name : {"--flag", "--text VALUE", "--number VALUE", "--list VALUE"}) {
    EXPECT_THAT(help, HasSubstr(name));
  }
}

}  // namespace
}  // namespace inferd::bench
