// Damaged text tables: open() refuses them, or encoding and decoding stay inside of the block. The
// input is a list of changes to a small valid block: four bytes of offset, one of the new value.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/check.h"
#include "text/text_tables_layout.h"
#include "text/tokenizer.h"

namespace {

using namespace inferd;

std::vector<uint8_t> valid_block(uint8_t which) {
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
    if (which != 0) add(name, TokenType::kByte, 0);
  }
  for (char c = '!'; c <= '~'; ++c) add(std::string(1, c), TokenType::kNormal, -20);
  for (const char* piece : {"ab", "abc", "bc", "aa", "aaa"}) add(piece, TokenType::kNormal, -2);
  v.model = which == 0 ? "gpt2" : which == 1 ? "llama" : "gemma4";
  v.pre = which == 0 ? "llama-bpe" : which == 1 ? "" : "gemma4";
  if (which != 1) v.merges = {"a b", "ab c", "b c", "a a", "aa a"};
  v.bos = v.eos = 0;
  v.end_of_generation = {0};
  v.add_bos = v.add_space_prefix = which == 1;
  auto block = build_text_tables(v);
  INFERD_CHECK(block.ok());
  return std::move(block).value();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<uint8_t> blocks[] = {valid_block(0), valid_block(1), valid_block(2)};
  if (size == 0) return 0;
  const std::vector<uint8_t>& valid = blocks[data[0] % 3];
  std::vector<uint64_t> words((valid.size() + 7) / 8);
  auto* const bytes = reinterpret_cast<uint8_t*>(words.data());
  std::memcpy(bytes, valid.data(), valid.size());
  for (size_t at = 1; at + 5 <= size; at += 5) {
    uint32_t offset;
    std::memcpy(&offset, data + at, 4);
    bytes[offset % valid.size()] = data[at + 4];
  }
  TextTablesHeader header;
  std::memcpy(&header, bytes, sizeof header);
  header.checksum = text_header_checksum(header);
  std::memcpy(bytes, &header, sizeof header);
  auto tables = TextTables::open({bytes, valid.size()});
  if (!tables) return 0;
  auto tokenizer = Tokenizer::create(*tables);
  if (!tokenizer) return 0;
  const std::string text = "abcaab <tool><end> x\n\n aaaa\xff\xe2\x82 bc";
  for (const bool special : {false, true}) {
    const auto ids = tokenizer->encode(text, {.parse_special = special, .add_special = true});
    if (ids) static_cast<void>(tokenizer->decode(*ids, {.special = special}));
  }
  for (TokenId id = -2; id < 400; ++id) static_cast<void>(tokenizer->token_bytes(id));
  static_cast<void>(tokenizer->template_tokens());
  static_cast<void>(tables->named_template(0));
  return 0;
}
