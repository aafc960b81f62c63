#include "text/utf8.h"

#include <gtest/gtest.h>

namespace inferd::text {
namespace {

using Kind = Utf8Unit::Kind;

void expect_unit(std::string_view bytes, Kind kind, size_t length) {
  const Utf8Unit unit = next_utf8_unit(bytes);
  EXPECT_EQ(static_cast<int>(unit.kind), static_cast<int>(kind)) << bytes;
  EXPECT_EQ(unit.bytes, length) << bytes;
}

TEST(Utf8, WholeCharactersAreOneUnit) {
  expect_unit("az", Kind::kCharacter, 1);
  expect_unit("é", Kind::kCharacter, 2);
  expect_unit("漢字", Kind::kCharacter, 3);
  expect_unit("😀", Kind::kCharacter, 4);
  expect_unit("\xF4\x8F\xBF\xBF", Kind::kCharacter, 4);  // U+10FFFF
}

TEST(Utf8, WhatCannotBecomeACharacterIsKnownAtOnce) {
  expect_unit("\x80", Kind::kInvalid, 1);
  expect_unit("\xC0\xAF", Kind::kInvalid, 1);          // overlong
  expect_unit("\xE0\x80\x80", Kind::kInvalid, 1);      // overlong
  expect_unit("\xED\xA0\x80", Kind::kInvalid, 1);      // a surrogate
  expect_unit("\xF4\x90\x80\x80", Kind::kInvalid, 1);  // above U+10FFFF
  expect_unit("\xF5", Kind::kInvalid, 1);
  expect_unit("\xE2\x82x", Kind::kInvalid, 2);
}

TEST(Utf8, ABeginningIsIncomplete) {
  expect_unit("\xC3", Kind::kIncomplete, 1);
  expect_unit("\xE2\x82", Kind::kIncomplete, 2);
  expect_unit("\xF0\x9F\x98", Kind::kIncomplete, 3);
}

TEST(Utf8, CanonicalTextIsWellFormedButForSurrogates) {
  EXPECT_EQ(canonical_utf8("plain é 😀"), "plain é 😀");
  EXPECT_EQ(canonical_utf8("a\xFFz"), "a\uFFFDz");
  EXPECT_EQ(canonical_utf8("\xC0\xAF"), "/");
  EXPECT_EQ(canonical_utf8("\xE2\x82"), "\uFFFD\uFFFD");
  EXPECT_EQ(canonical_utf8("\xF7\xBF\xBF\xBF").substr(0, 3), "\uFFFD");
  EXPECT_EQ(canonical_utf8("\xED\xA0\x80"), "\xED\xA0\x80");
}

}  // namespace
}  // namespace inferd::text
