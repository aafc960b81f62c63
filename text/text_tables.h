// A model's vocabulary as one relocatable block of bytes: built once by the daemon, published in a
// sealed read-only memfd, and used in place by every client.
// Owner: text. build_text_tables() and every const member may be called by any thread. Must not
// know files, daemons or how text is cut into words.
//
// The block holds indices, never pointers, in the machine's own byte order. open() looks at the
// header alone, so its cost does not depend on the vocabulary's size. Whatever lies behind the header
// is checked where it is read: a damaged block gives wrong tokens, never an access outside it.
// The block must not change while it is open.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/vocabulary.h"

namespace inferd {

struct TextTablesHeader;

// Builds the block. Takes time in proportion to the vocabulary (tens of milliseconds for 50,000
// tokens, a few hundred for 256,000).
// Errors: kUnsupported for a tokenizer model or pre-tokenizer that is not implemented, naming it;
// kInvalidArgument for a vocabulary that breaks the invariants of base/vocabulary.h.
Result<std::vector<uint8_t>> build_text_tables(const Vocabulary& vocabulary);

// How the tokenizer turns text into tokens. The numbers are part of the block.
enum class TokenizerModel : uint32_t {
  kByteLevelBpe = 0,      // merges over GPT-2's printable form of bytes
  kCharacterBpe = 1,      // merges over characters, "▁" for a space, bytes as "<0x0A>"
  kSentencePieceBpe = 2,  // merges by the score of the piece that results, "▁" for a space
};

class TextTables {
 public:
  // What a token is, as bits.
  static constexpr uint8_t kControl = 1;     // only the template or an explicit request makes it
  static constexpr uint8_t kHidden = 2;      // left out of decoded text unless asked for
  static constexpr uint8_t kAdded = 4;       // found in text as a whole, before anything else
  static constexpr uint8_t kStripLeft = 8;   // swallows white space before it
  static constexpr uint8_t kStripRight = 16; // swallows white space behind it
  static constexpr uint8_t kWholeWord = 32;  // a word of exactly these bytes is this one token
  static constexpr uint8_t kOrdinary = 64;     // can come out of ordinary text

  // A merge of two symbols. Symbols are token ids and, from token_count() up, pieces that occur in
  // merges but are no tokens.
  struct Merge {
    uint32_t rank;    // lower merges first
    uint32_t result;  // symbol
  };
  static constexpr uint32_t kNoSymbol = 0xffffffff;

  // Borrows `block`, which must stay mapped and unchanged as long as this and its copies are used, and
  // be aligned to 8 bytes. Checks magic, version, checksum and bounds of the header only; no work
  // per token. Errors: kDataCorrupt; kVersionMismatch for a block of another version.
  static Result<TextTables> open(std::span<const uint8_t> block);

  uint32_t token_count() const noexcept;
  TokenizerModel tokenizer_model() const noexcept;
  bool contains(TokenId id) const noexcept {
    return id >= 0 && static_cast<uint32_t>(id) < token_count();
  }

  // The bytes that the token stands for; for control and added tokens, their name. With
  // kCharacterBpe and kSentencePieceBpe, "▁" stands for a space, and byte tokens are spelt "<0x0A>".
  // Empty for an id outside the vocabulary.
  std::string_view token_text(TokenId id) const noexcept;
  TokenType token_type(TokenId id) const noexcept;  // kUndefined outside the vocabulary
  uint8_t token_flags(TokenId id) const noexcept;   // 0 outside the vocabulary
  float token_score(TokenId id) const noexcept;     // 0 outside the vocabulary
  uint32_t longest_token_bytes() const noexcept;

  // The token, or kNoToken. Of several with one text: an ordinary one before a control one, then the one
  // with the highest id.
  TokenId find_token(std::string_view text) const noexcept;
  // The same among tokens that ordinary text may become; or a symbol beyond the tokens; or kNoSymbol.
  uint32_t find_symbol(std::string_view bytes) const noexcept;
  std::string_view symbol_text(uint32_t symbol) const noexcept;
  uint32_t byte_symbol(uint8_t byte) const noexcept;   // of a single byte, as a start for merges
  TokenId byte_token(uint8_t byte) const noexcept;     // what a byte becomes that nothing covers
  // False if the two do not merge. O(1).
  bool find_merge(uint32_t left, uint32_t right, Merge& merge) const noexcept;

  TokenId bos() const noexcept;
  TokenId eos() const noexcept;
  TokenId eot() const noexcept;
  TokenId unknown() const noexcept;
  TokenId padding() const noexcept;
  TokenId separator() const noexcept;
  // Ascending.
  std::span<const TokenId> end_of_generation() const noexcept;
  bool is_end_of_generation(TokenId id) const noexcept;

  bool add_bos() const noexcept;
  bool add_eos() const noexcept;
  bool add_space_prefix() const noexcept;
  bool ignore_merges() const noexcept;  // a word that is a token is that token, whatever the merges

  // Texts, empty where the model has none.
  std::string_view model_name() const noexcept;
  std::string_view architecture() const noexcept;
  std::string_view pre_tokenizer() const noexcept;
  std::string_view chat_template() const noexcept;
  // Further templates by name; both empty for an index outside.
  uint32_t named_template_count() const noexcept;
  std::string_view template_name(uint32_t index) const noexcept;
  std::string_view named_template(uint32_t index) const noexcept;

  // The added and control tokens as a trie over their names. Node 0 is the root.
  struct SpecialNode {
    uint32_t first_child;
    uint16_t child_count;
    uint8_t byte;
    uint8_t reserved;
    uint32_t special;  // order number of the token that ends here, or kNoSymbol
  };
  // The node reached from `node` by `byte`, or 0.
  uint32_t special_child(uint32_t node, uint8_t byte) const noexcept;
  uint32_t special_at(uint32_t node) const noexcept;  // an order number, or kNoSymbol
  uint32_t special_count() const noexcept;
  // Tokens in the order in which they are looked for in a text: long before short, then by id.
  TokenId special_token(uint32_t order) const noexcept;

 private:
  TextTables() = default;
  TokenId checked(TokenId id) const noexcept { return contains(id) ? id : kNoToken; }
  std::string_view string_at(uint32_t index) const noexcept;

  struct TextSlot {
    uint32_t tag;  // upper half of the text's hash
    uint32_t symbol;
  };
  struct MergeSlot {
    uint32_t left;
    uint32_t right;
    uint32_t rank;
    uint32_t result;
  };
  friend class TextTablesBuilder;

  const TextTablesHeader* header_ = nullptr;
  std::span<const uint32_t> symbol_offsets_;   // [symbols + 1]
  std::span<const char> symbol_bytes_;
  std::span<const uint8_t> types_;             // [tokens]
  std::span<const uint8_t> flags_;             // [tokens]
  std::span<const float> scores_;              // [tokens], or empty: all 0
  std::span<const TextSlot> text_slots_;       // hash table of symbols by their bytes
  std::span<const MergeSlot> merge_slots_;     // hash table of merges by their two symbols
  std::span<const uint32_t> byte_symbols_;     // [256]
  std::span<const TokenId> byte_tokens_;       // [256]
  std::span<const SpecialNode> special_nodes_;
  std::span<const uint32_t> special_roots_;    // [256] children of the root by byte
  std::span<const TokenId> special_order_;
  std::span<const TokenId> end_of_generation_;
  std::span<const uint32_t> string_offsets_;   // [strings + 1]
  std::span<const char> string_bytes_;
};

}  // namespace inferd
