// Byte-pair merging of one word, in both of its forms: by rank (byte-level BPE)
// and by the score of the piece that results (SentencePiece). Owner: text,
// private to it. A Merger is scratch memory for one thread; its results depend
// on its arguments only. Must not know control tokens or how text is cut into
// words.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/text_tables.h"

namespace inferd::text {

class Merger {
 public:
  explicit Merger(const TextTables& tables) : tables_(tables) {}

  // Appends the tokens of one word. Time is O(n log n) in its bytes.
  void merge_by_rank(std::string_view word, std::vector<TokenId>& ids);
  // The same for a whole SentencePiece text, with "▁" for spaces.
  void merge_by_score(std::string_view text, std::vector<TokenId>& ids);

 private:
  static constexpr uint32_t kNone = 0xffffffff;

  // A part of the word; parts form a list in order. A part that was merged into
  // the one before it has no bytes.
  struct Part {
    std::string_view bytes;
    uint32_t symbol;
    uint32_t previous;
    uint32_t next;
  };
  // Two neighbours that could be merged. Stale once one of them has grown: then
  // their symbols (and so `bytes`) are not those of the list any more.
  struct Pair {
    uint32_t left;
    uint32_t right;
    uint32_t bytes;   // of both together
    uint32_t rank;    // merge_by_rank: lower first
    float score;      // merge_by_score: higher first
    uint32_t result;  // symbol
  };

  // One part a character, as far as the leading bytes tell.
  void add_characters(std::string_view text);
  void add_part(std::string_view bytes, uint32_t symbol);
  bool is_current(const Pair& pair) const;
  void join(const Pair& pair);
  // The byte tokens; `missing` for a byte without one, which is left out if there is none such.
  void append_bytes(std::string_view bytes, TokenId missing, std::vector<TokenId>& ids) const;
  template <typename AddPair, typename Later>
  void merge_all(AddPair add_pair, Later later);

  const TextTables& tables_;
  std::vector<Part> parts_;
  std::vector<Pair> heap_;
};

}  // namespace inferd::text
