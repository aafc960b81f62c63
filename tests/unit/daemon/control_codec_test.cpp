#include "daemon/control_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace inferd::daemon {
namespace {

using namespace std::string_literals;
using testing::HasSubstr;

TEST(ControlCodec, ACallIsTakenApart) {
  const auto call = parse_control_call(
      R"({"method":"org.inferd.Control.Cancel","parameters":{"sequence":5},"oneway":true})");
  ASSERT_TRUE(call.ok());
  EXPECT_EQ(call->interface, "org.inferd.Control");
  EXPECT_EQ(call->method, "Cancel");
  EXPECT_EQ(call->parameters["sequence"], 5);
  EXPECT_TRUE(call->oneway);
  EXPECT_FALSE(call->more);
}

TEST(ControlCodec, ParametersMayBeLeftOut) {
  const auto call = parse_control_call(R"({"method":"a.B"})");
  ASSERT_TRUE(call.ok());
  EXPECT_TRUE(call->parameters.is_object());
}

TEST(ControlCodec, WhatIsNoCallIsAnErrorThatSaysWhy) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "not valid JSON"},
      {"{", "not valid JSON"},
      {"[1]", "not a JSON object"},
      {"{}", "no member 'method'"},
      {R"({"method":5})", "no member 'method'"},
      {R"({"method":"Status"})", "interface.Method"},
      {R"({"method":".Status"})", "interface.Method"},
      {R"({"method":"a."})", "interface.Method"},
      {R"({"method":"a.B","parameters":[]})", "'parameters'"},
      {R"({"method":"a.B","oneway":1})", "true or false"},
      {R"({"method":"a.B","upgrade":true})", "upgrades"},
  };
  for (const auto& [message, expected] : cases) {
    const auto call = parse_control_call(message);
    ASSERT_FALSE(call.ok()) << message;
    EXPECT_THAT(call.error().message(), HasSubstr(expected)) << message;
  }
}

TEST(ControlCodec, DeepNestingIsRefused) {
  const std::string deep = R"({"method":"a.B","parameters":)" + std::string(30000, '[');
  EXPECT_FALSE(parse_control_call(deep).ok());
  const std::string closed = R"({"method":"a.B","parameters":{"x":)" + std::string(100, '[') +
                             std::string(100, ']') + "}}";
  ASSERT_FALSE(parse_control_call(closed).ok());
  EXPECT_THAT(parse_control_call(closed).error().message(), HasSubstr("nested too deeply"));
}

TEST(ControlCodec, RepliesEndInOneNulAndAreValidWhateverAClientIsCalled) {
  const std::string reply = encode_control_reply({{"client", "\xff\xfe\0x"s}});
  EXPECT_EQ(reply.find('\0'), reply.size() - 1);
  EXPECT_TRUE(Json::accept(reply.substr(0, reply.size() - 1)));
  EXPECT_EQ(encode_control_error("a.E", {{"m", 1}}), "{\"error\":\"a.E\",\"parameters\":{\"m\":1}}\0"s);
}

TEST(ControlFramer, MessagesComeOutWholeHoweverTheyArrive) {
  const std::string stream = "one\0\0three\0fo"s;
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    ControlFramer framer;
    std::vector<std::string> messages;
    for (size_t at = 0; at < stream.size(); at += piece) {
      ASSERT_TRUE(framer.add(std::string_view(stream).substr(at, piece)));
      while (auto message = framer.next()) messages.push_back(*message);
    }
    EXPECT_THAT(messages, testing::ElementsAre("one", "", "three"));
    EXPECT_EQ(framer.buffered_bytes(), 2u);
  }
}

TEST(ControlFramer, AMessageThatNeverEndsIsRefused) {
  ControlFramer framer;
  const std::string piece(16384, 'x');
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(framer.add(piece));
  EXPECT_FALSE(framer.add("x"));
  EXPECT_FALSE(framer.add("\0"s));
}

}  // namespace
}  // namespace inferd::daemon
