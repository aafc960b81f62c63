// Stop strings over streamed text: what is shown, what is held back, which tokens count.
#include "client_lib/text_stream.h"

#include <gtest/gtest.h>

#include "base/prng.h"
#include "fake_server.h"

namespace inferd::client_lib {
namespace {

using test::bytes_as_ids;
using test::kBen;
using test::kD;
using test::kEn;
using test::kEos;
using test::kHello;
using test::kWorld;

class TextStreamTest : public testing::Test {
 protected:
  TextStream stream(std::vector<std::string> stops) {
    return TextStream(std::move(TextTables::open(block_)).value(), {}, std::move(stops));
  }
  std::vector<uint8_t> block_ = test::test_tables();
};

TEST_F(TextStreamTest, WithoutStopsEachTokenIsReleasedAtOnce) {
  TextStream s = stream({});
  EXPECT_FALSE(s.push(kHello));
  EXPECT_EQ(s.text(), "Hello");
  EXPECT_EQ(s.released_tokens(), 1u);
  s.take_text();
  EXPECT_FALSE(s.push(kWorld));
  EXPECT_FALSE(s.push(kEos));
  EXPECT_EQ(s.text(), " world");
  EXPECT_EQ(s.released_tokens(), 3u);
}

TEST_F(TextStreamTest, CharactersComeWhole) {
  TextStream s = stream({});
  s.push(0xC3);
  EXPECT_EQ(s.text(), "");
  EXPECT_EQ(s.released_tokens(), 1u) << "the id need not wait for the character";
  s.push(0xA9);
  EXPECT_EQ(s.text(), "é");
}

TEST_F(TextStreamTest, AMatchEndsTextAndTokensBeforeIt) {
  TextStream s = stream({"END"});
  EXPECT_FALSE(s.push('a'));
  EXPECT_EQ(s.text(), "a");
  EXPECT_FALSE(s.push(kBen));  // "bEN": b is certain, EN may be the start of END
  EXPECT_EQ(s.text(), "ab");
  EXPECT_EQ(s.released_tokens(), 2u);
  EXPECT_TRUE(s.push(kD));
  EXPECT_EQ(s.text(), "ab");
  EXPECT_EQ(s.released_tokens(), 2u);
}

TEST_F(TextStreamTest, WhatTurnsOutToBeNoMatchIsReleased) {
  TextStream s = stream({"END"});
  EXPECT_FALSE(s.push(kEn));
  EXPECT_EQ(s.text(), "");
  EXPECT_EQ(s.released_tokens(), 0u);
  EXPECT_FALSE(s.push('E'));  // "ENE": only the last E may still begin one
  EXPECT_EQ(s.text(), "EN");
  EXPECT_EQ(s.released_tokens(), 1u);
  EXPECT_FALSE(s.finish());
  EXPECT_EQ(s.text(), "ENE");
  EXPECT_EQ(s.released_tokens(), 2u);
}

TEST_F(TextStreamTest, EarliestMatchWinsAmongThoseThatOneTokenCompletes) {
  TextStream s = stream({"orl", "Hello w", "ld"});
  EXPECT_FALSE(s.push(kHello));
  EXPECT_TRUE(s.push(kWorld));
  EXPECT_EQ(s.text(), "");
  EXPECT_EQ(s.released_tokens(), 0u);
}

TEST_F(TextStreamTest, ControlTokensBeforeAMatchAreNotDelivered) {
  TextStream s = stream({"D"});
  s.push('a');
  s.push(kEos);  // no text: it may lie right before a match
  EXPECT_EQ(s.released_tokens(), 1u);
  EXPECT_TRUE(s.push(kD));
  EXPECT_EQ(s.released_tokens(), 1u);
}

TEST_F(TextStreamTest, AnIncompleteCharacterAtTheEndCanCompleteAMatch) {
  TextStream s = stream({"x\xC3"});  // no UTF-8, but a caller may want it
  EXPECT_FALSE(s.push('x'));
  EXPECT_FALSE(s.push(0xC3));
  EXPECT_TRUE(s.finish());
  EXPECT_EQ(s.text(), "");
}

// Against a naive matcher over the whole text, byte by byte.
TEST_F(TextStreamTest, RandomTextsMatchLikeTheWholeText) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE(seed);
    Prng random(seed);
    std::vector<std::string> stops;
    for (uint64_t i = 0, n = 1 + random.below(3); i < n; ++i) {
      std::string stop;
      for (uint64_t k = 0, len = 1 + random.below(4); k < len; ++k) {
        stop += static_cast<char>('a' + random.below(2));
      }
      stops.push_back(stop);
    }
    std::string text, expected, shown;
    uint32_t expected_tokens = 0;
    bool expected_match = false, match = false;
    TextStream s = stream(stops);
    for (int i = 0; i < 12 && !match; ++i) {
      const char c = static_cast<char>('a' + random.below(3));
      text += c;
      match = s.push(c);
      shown += s.text();
      s.take_text();
      // The naive view: the text ends before the earliest match that is complete by now.
      size_t first = std::string::npos;
      for (const std::string& stop : stops) first = std::min(first, text.find(stop));
      expected_match = first != std::string::npos;
      ASSERT_EQ(match, expected_match);
      if (expected_match) {
        expected = text.substr(0, first);
        expected_tokens = static_cast<uint32_t>(first);
      }
      ASSERT_LE(shown.size(), text.size());
      ASSERT_EQ(text.compare(0, shown.size(), shown), 0);
    }
    if (!match) {
      s.finish();
      shown += s.text();
      expected = text;
      expected_tokens = static_cast<uint32_t>(text.size());
    }
    EXPECT_EQ(shown, expected);
    EXPECT_EQ(s.released_tokens(), expected_tokens);
  }
}

}  // namespace
}  // namespace inferd::client_lib
