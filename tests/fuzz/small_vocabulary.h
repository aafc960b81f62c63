// Small vocabularies of each kind of tokenizer, for the fuzz targets: every byte can be written, a few
// merges apply to "abc", 0 is the control token "<end>" and 1 the added token "<tool>".
// Owner: tests/fuzz. Any thread. Must not know what is fuzzed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/vocabulary.h"
#include "text/text_tables.h"

namespace inferd::fuzz {

enum class VocabularyKind : uint8_t { kByteLevel = 0, kSentencePiece = 1, kCharacters = 2 };
inline constexpr uint8_t kVocabularyKinds = 3;
inline constexpr TokenId kEndToken = 0;
inline constexpr TokenId kToolToken = 1;

// GPT-2's printable form of a byte: itself if it prints in Latin-1, else the next free character from
// U+0100 up.
inline std::string printable_byte(int byte) {
  const auto prints = [](int b) {
    return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
  };
  int code_point = byte;
  if (!prints(byte)) {
    code_point = 0x100;
    for (int b = 0; b < byte; ++b) code_point += prints(b) ? 0 : 1;
  }
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xc0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3f))};
}

// `pre` names the pre-tokenizer; SentencePiece has none.
inline Vocabulary small_vocabulary(VocabularyKind kind, std::string pre) {
  Vocabulary v;
  const auto add = [&v](const std::string& text, TokenType type, float score) {
    v.tokens.push_back(text);
    v.types.push_back(type);
    v.scores.push_back(score);
  };
  add("<end>", TokenType::kControl, 0);
  add("<tool>", TokenType::kUserDefined, 0);
  for (int b = 0; b < 256; ++b) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", b);
    if (kind == VocabularyKind::kByteLevel) {
      add(printable_byte(b), TokenType::kNormal, 0);
    } else {
      add(name, TokenType::kByte, 0);
    }
  }
  if (kind != VocabularyKind::kByteLevel) {
    for (char c = '!'; c <= '~'; ++c) add(std::string(1, c), TokenType::kNormal, -20);
    add("\u2581", TokenType::kNormal, -20);
    add("é", TokenType::kNormal, -20);
  }
  for (const char* piece : {"ab", "abc", "bc", "aa", "aaa"}) add(piece, TokenType::kNormal, -2);
  constexpr const char* kModels[] = {"gpt2", "llama", "gemma4"};
  v.model = kModels[static_cast<size_t>(kind)];
  v.pre = std::move(pre);
  if (kind != VocabularyKind::kSentencePiece) v.merges = {"a b", "ab c", "b c", "a a", "aa a"};
  v.bos = v.eos = kEndToken;
  v.end_of_generation = {kEndToken};
  v.add_bos = v.add_space_prefix = kind == VocabularyKind::kSentencePiece;
  return v;
}

// The vocabulary as text tables, 8-byte words because those must be aligned; `bytes` is their size.
inline std::vector<uint64_t> built_tables(const Vocabulary& vocabulary, size_t& bytes) {
  const auto block = build_text_tables(vocabulary);
  INFERD_CHECK(block.ok());
  bytes = block->size();
  std::vector<uint64_t> words((bytes + 7) / 8);
  std::copy(block->begin(), block->end(), reinterpret_cast<uint8_t*>(words.data()));
  return words;
}

}  // namespace inferd::fuzz
