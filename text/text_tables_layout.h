// How the block of text tables is laid out, and the hashes that place entries in it.
// Owner: text, private to it. Pure functions and plain data, any thread.
//
// Every section starts at a multiple of 8 bytes. Hash tables are open addressing with linear
// probing over a power of two of slots; the header says how far an entry may lie from its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "base/ids.h"

namespace inferd {

enum class TextSection : uint32_t {
  kSymbolOffsets,
  kSymbolBytes,
  kTypes,
  kFlags,
  kScores,
  kTextSlots,
  kMergeSlots,
  kByteSymbols,
  kByteTokens,
  kSpecialNodes,
  kSpecialRoots,
  kSpecialOrder,
  kEndOfGeneration,
  kStringOffsets,
  kStringBytes,
  kCount
};
inline constexpr size_t kTextSections = static_cast<size_t>(TextSection::kCount);

// The strings of the block, by index; named templates follow as pairs of name and text.
enum class TextString : uint32_t {
  kModelName,
  kArchitecture,
  kPreTokenizer,
  kChatTemplate,
  kFirstNamed
};

struct TextTablesHeader {
  static constexpr uint64_t kMagic = 0x3154584554464e49;  // "INFTEXT1", little-endian
  static constexpr uint32_t kVersion = 1;
  static constexpr uint32_t kAddBos = 1;
  static constexpr uint32_t kAddEos = 2;
  static constexpr uint32_t kAddSpacePrefix = 4;
  static constexpr uint32_t kIgnoreMerges = 8;
  // Probes beyond this are not believed: a damaged block must not make lookups endless.
  static constexpr uint32_t kProbesMax = 4096;

  struct Section {
    uint64_t offset;
    uint64_t bytes;
  };

  uint64_t magic;
  uint32_t version;
  uint32_t header_bytes;
  uint64_t total_bytes;
  uint64_t checksum;  // of the header with this field zero
  uint32_t tokenizer_model;
  uint32_t settings;  // kAddBos, ...
  uint32_t token_count;
  uint32_t symbol_count;  // tokens, then pieces that occur in merges only
  uint32_t longest_token_bytes;
  uint32_t text_probes_max;
  uint32_t merge_probes_max;
  TokenId bos, eos, eot, unknown, padding, separator;
  uint32_t reserved;
  Section sections[kTextSections];
};
static_assert(sizeof(TextTablesHeader) % 8 == 0);

// FNV-1a, 64 bits. Source: Fowler, Noll, Vo, "FNV hash".
inline uint64_t text_header_checksum(TextTablesHeader header) noexcept {
  header.checksum = 0;
  uint64_t hash = 0xcbf29ce484222325;
  unsigned char bytes[sizeof(header)];
  std::memcpy(bytes, &header, sizeof(header));
  for (const unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

// A finaliser that spreads every input bit: the multiply-and-fold step of many fast hashes.
inline uint64_t text_mix(uint64_t a, uint64_t b) noexcept {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a ^ 0x9e3779b97f4a7c15) * (b ^ 0xd1b54a32d192ed03);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t text_hash(std::string_view bytes) noexcept {
  uint64_t hash = bytes.size();
  const char* at = bytes.data();
  size_t left = bytes.size();
  while (left >= 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    hash = text_mix(hash, word);
    at += 8;
    left -= 8;
  }
  uint64_t word = 0;
  if (left > 0) std::memcpy(&word, at, left);
  return text_mix(hash, word);
}

inline uint64_t text_merge_hash(uint32_t left, uint32_t right) noexcept {
  return text_mix(left, right);
}

}  // namespace inferd
