// Damaged text tables: open() refuses them, or encoding and decoding stay inside of the block. The
// input is a list of changes to a small valid block: four bytes of offset, one of the new value.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/fuzz/small_vocabulary.h"
#include "text/text_tables_layout.h"
#include "text/tokenizer.h"

namespace {

using namespace inferd;

struct Block {
  std::vector<uint64_t> words;
  size_t bytes = 0;
};

Block valid_block(fuzz::VocabularyKind kind, const char* pre) {
  Block block;
  block.words = fuzz::built_tables(fuzz::small_vocabulary(kind, pre), block.bytes);
  return block;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Block blocks[] = {valid_block(fuzz::VocabularyKind::kByteLevel, "llama-bpe"),
                                 valid_block(fuzz::VocabularyKind::kSentencePiece, ""),
                                 valid_block(fuzz::VocabularyKind::kCharacters, "gemma4")};
  if (size == 0) return 0;
  const Block& valid = blocks[data[0] % fuzz::kVocabularyKinds];
  std::vector<uint64_t> words = valid.words;
  auto* const bytes = reinterpret_cast<uint8_t*>(words.data());
  for (size_t at = 1; at + 5 <= size; at += 5) {
    uint32_t offset;
    std::memcpy(&offset, data + at, 4);
    bytes[offset % valid.bytes] = data[at + 4];
  }
  TextTablesHeader header;
  std::memcpy(&header, bytes, sizeof header);
  header.checksum = text_header_checksum(header);
  std::memcpy(bytes, &header, sizeof header);
  auto tables = TextTables::open({bytes, valid.bytes});
  if (!tables) return 0;
  auto tokenizer = Tokenizer::create(*tables);
  if (!tokenizer) return 0;
  const std::string text = "abcaab <tool><end> x\n\n aaaa\xff\xe2\x82 bc";
  for (const bool special : {false, true}) {
    const auto ids = tokenizer->encode(text, {.parse_special = special, .add_special = true});
    if (ids) static_cast<void>(tokenizer->decode(*ids, {.special = special}));
  }
  for (TokenId id = -2; id < 500; ++id) static_cast<void>(tokenizer->token_bytes(id));
  static_cast<void>(tokenizer->template_tokens());
  static_cast<void>(tables->named_template(0));
  return 0;
}
