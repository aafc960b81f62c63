// The tokenizer over small vocabularies made here. Equality with a reference over real vocabularies
// is tested with the sample model, in tests/integration.
#include "text/tokenizer.h"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/prng.h"

namespace inferd {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Keeps the block that a tokenizer works on.
struct Built {
  std::vector<uint64_t> block;
  std::unique_ptr<Tokenizer> tokenizer;
};

Built build(const Vocabulary& vocabulary) {
  Built built;
  const auto bytes = build_text_tables(vocabulary);
  EXPECT_TRUE(bytes) << (bytes ? "" : bytes.error().message());
  built.block.resize((bytes->size() + 7) / 8);
  std::memcpy(built.block.data(), bytes->data(), bytes->size());
  const auto tables =
      TextTables::open({reinterpret_cast<const uint8_t*>(built.block.data()), bytes->size()});
  EXPECT_TRUE(tables) << (tables ? "" : tables.error().message());
  auto tokenizer = Tokenizer::create(*tables);
  EXPECT_TRUE(tokenizer);
  built.tokenizer = std::make_unique<Tokenizer>(std::move(*tokenizer));
  return built;
}

void add(Vocabulary& vocabulary, const std::string& text, TokenType type, float score = 0) {
  vocabulary.tokens.push_back(text);
  vocabulary.types.push_back(type);
  vocabulary.scores.push_back(score);
}

// 0 "<end>" (control), 1 "<tool>" (added), 2.. bytes that are their own printable form, then
// merges.
Built byte_level() {
  Vocabulary v;
  v.model = "gpt2";
  v.pre = "gpt-2";
  add(v, "<end>", TokenType::kControl);
  add(v, "<tool>", TokenType::kUserDefined);
  for (char c = '!'; c <= '~'; ++c) add(v, std::string(1, c), TokenType::kNormal);
  add(v, "Ġ", TokenType::kNormal);
  for (const char* merge : {"a b", "ab c", "Ġ a"}) {
    v.merges.push_back(merge);
    std::string joined(merge);
    joined.erase(joined.find(' '), 1);
    add(v, joined, TokenType::kNormal);
  }
  v.eos = 0;
  v.end_of_generation = {0};
  return build(v);
}

TokenId byte(char c) { return 2 + c - '!'; }
constexpr TokenId kSpace = 2 + '~' - '!' + 1;
constexpr TokenId kAb = kSpace + 1, kAbc = kSpace + 2, kSpaceA = kSpace + 3;

// 0 unknown, 1 "<s>", 2..257 byte tokens, then pieces by score.
Built sentencepiece() {
  Vocabulary v;
  v.model = "llama";
  add(v, "<unk>", TokenType::kUnknown);
  add(v, "<s>", TokenType::kControl);
  for (int b = 0; b < 256; ++b) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", b);
    add(v, name, TokenType::kByte);
  }
  float score = 0;
  for (const char* piece : {"▁", "h", "e", "l", "o", "lo", "he", "hello", "▁hello", "hel"}) {
    add(v, piece, TokenType::kNormal, score);
    score -= 1;
  }
  v.unknown = 0;
  v.bos = 1;
  v.add_bos = true;
  v.add_space_prefix = true;
  return build(v);
}

TEST(Tokenizer, MergesByRank) {
  const Built t = byte_level();
  EXPECT_THAT(t.tokenizer->encode("abc").value(), ElementsAre(kAbc));
  EXPECT_THAT(t.tokenizer->encode("aabcb").value(), ElementsAre(byte('a'), kAbc, byte('b')));
  EXPECT_THAT(t.tokenizer->encode("x ab").value(), ElementsAre(byte('x'), kSpace, kAb));
  EXPECT_THAT(t.tokenizer->encode("x ax").value(), ElementsAre(byte('x'), kSpaceA, byte('x')));
  EXPECT_THAT(t.tokenizer->encode("").value(), IsEmpty());
}

TEST(Tokenizer, ControlTokensComeOnlyWhenAskedForAndAddedOnesAlways) {
  const Built t = byte_level();
  EXPECT_THAT(t.tokenizer->encode("a<tool>b<tool>").value(),
              ElementsAre(byte('a'), 1, byte('b'), 1));
  EXPECT_THAT(t.tokenizer->encode("a<end>", {.parse_special = true}).value(),
              ElementsAre(byte('a'), 0));
  EXPECT_EQ(t.tokenizer->encode("a<end>").value().size(), 6u);
}

TEST(Tokenizer, AUsersTextNeverBecomesAControlToken) {
  const Built t = byte_level();
  const std::vector<TextSegment> whole{{"<end>", true}, {"<end>", false}};
  EXPECT_THAT(t.tokenizer->encode_segments(whole).value(),
              ElementsAre(0, byte('<'), byte('e'), byte('n'), byte('d'), byte('>')));
  // Half of the name is the user's.
  for (const std::vector<TextSegment>& mixed :
       {std::vector<TextSegment>{{"<en", true}, {"d>", false}}, {{"<en", false}, {"d>", true}}}) {
    EXPECT_EQ(t.tokenizer->encode_segments(mixed).value().size(), 5u);
  }
  const std::vector<TextSegment> joined{{"<en", true}, {"d>", true}};
  EXPECT_THAT(t.tokenizer->encode_segments(joined).value(), ElementsAre(0));
}

TEST(Tokenizer, SentencePieceMergesByScoreAndFallsBackToBytes) {
  const Built t = sentencepiece();
  const TokenId mark = 258, h = 259, lo = 263, he = 264;
  EXPECT_THAT(t.tokenizer->encode("h").value(), ElementsAre(mark, h));
  // "lo" has a better score than "he"; then nothing more fits together but "he".
  EXPECT_THAT(t.tokenizer->encode("helo").value(), ElementsAre(mark, he, lo));
  EXPECT_THAT(t.tokenizer->encode("\n").value(), ElementsAre(mark, 2 + 10));
  EXPECT_THAT(t.tokenizer->encode("é").value(), ElementsAre(mark, 2 + 0xC3, 2 + 0xA9));
  EXPECT_THAT(t.tokenizer->encode("h", {.add_special = true}).value(), ElementsAre(1, mark, h));
}

TEST(Tokenizer, SentencePieceTextComesBack) {
  const Built t = sentencepiece();
  for (const char* text : {"hello", " hello", "hello  hello", "x\n😀", ""}) {
    const auto ids = t.tokenizer->encode(text, {.add_special = true}).value();
    EXPECT_EQ(t.tokenizer->decode(ids), text);
  }
}

TEST(Tokenizer, ALongWordIsNoTrouble) {
  const Built t = byte_level();
  const auto ids = t.tokenizer->encode(std::string(1 << 20, 'a') + "bc").value();
  EXPECT_EQ(ids.size(), size_t{1} << 20);
  EXPECT_EQ(ids.back(), kAbc);
}

TEST(Tokenizer, StreamedTextIsTheWholeTextAndNeverEndsInsideACharacter) {
  const Built t = sentencepiece();
  Prng prng(99);
  for (int round = 0; round < 2000; ++round) {
    std::vector<TokenId> ids;
    for (uint64_t i = prng.below(12); i > 0; --i) {
      // Mostly bytes, among them many that begin or continue a character.
      const uint64_t what = prng.below(4);
      if (what == 0) ids.push_back(static_cast<TokenId>(prng.below(270)));
      if (what == 1) ids.push_back(static_cast<TokenId>(2 + 0x80 + prng.below(0x40)));
      if (what >= 2) ids.push_back(static_cast<TokenId>(2 + 0xC0 + prng.below(0x40)));
    }
    for (const bool replace : {false, true}) {
      const DecodeOptions options{.special = true, .replace_invalid = replace};
      StreamDecoder decoder(t.tokenizer->tables(), options);
      std::string streamed;
      for (const TokenId id : ids) {
        streamed += decoder.push(id);
        ASSERT_LE(decoder.pending_bytes(), 3u);
      }
      streamed += decoder.finish();
      ASSERT_EQ(streamed, t.tokenizer->decode(ids, options)) << "round " << round;
    }
  }
}

TEST(Tokenizer, ACharacterInPiecesIsHeldBackUntilItIsWhole) {
  const Built t = sentencepiece();
  StreamDecoder decoder(t.tokenizer->tables());
  EXPECT_EQ(decoder.push(2 + 0xF0), "");
  EXPECT_EQ(decoder.push(2 + 0x9F), "");
  EXPECT_EQ(decoder.push(2 + 0x98), "");
  EXPECT_EQ(decoder.push(2 + 0x80), "😀");
  EXPECT_EQ(decoder.push(2 + 0xE2), "");
  EXPECT_EQ(decoder.push(2 + 'x'), "\xE2x");
}

TEST(Tokenizer, WhatCannotBeTokenizedWithIsNamed) {
  Vocabulary v;
  v.model = "gpt2";
  v.pre = "no-such";
  add(v, "a", TokenType::kNormal);
  EXPECT_THAT(build_text_tables(v).error().message(), testing::HasSubstr("no-such"));
  v.model = "rwkv";
  EXPECT_THAT(build_text_tables(v).error().message(), testing::HasSubstr("rwkv"));
}

}  // namespace
}  // namespace inferd
