// One sequence's way from token ids to text that may be shown: whole UTF-8 characters only, nothing
// of a stop string, and no token that lies behind one.
// Owner: client_lib. Belongs to the one thread that reads its sequence. Must not know connections.
//
// A token is released once it is certain that some of its text comes before any match; without stop
// strings, at once. So a match on "END" after tokens "a", "bE", "ND" releases "a" and "bE", and the
// text "ab". Matching goes token by token, so that it does not depend on how many arrive together.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer.h"

namespace inferd::client_lib {

class TextStream {
 public:
  // `stops`: no empty strings. `before`: tokens that the first one pushed goes on from; their text
  // is given by somebody else, but for a character that they leave incomplete.
  TextStream(const TextTables& tables, const DecodeOptions& options, std::vector<std::string> stops,
             std::span<const TokenId> before = {});

  // Takes the next token. True if a stop string matched: then no more is to be pushed.
  bool push(TokenId id);
  // No more tokens come: releases what was held back. True if a stop string matched at the very
  // end.
  bool finish();

  // Text released since the last take_text(). NUL-terminated behind its end.
  std::string_view text() const { return ready_; }
  void take_text() { ready_.clear(); }

  // Of all pushed tokens, how many (the first ones) are released.
  uint32_t released_tokens() const { return released_tokens_; }
  bool matched() const { return matched_; }

 private:
  bool take_piece(std::string_view piece);
  void release(size_t bytes);
  size_t held_back_bytes() const;

  StreamDecoder decoder_;
  std::vector<std::string> stops_;
  std::string ready_;                 // released, not yet taken
  std::string held_;                  // may be the start of a stop string
  uint64_t text_bytes_ = 0;           // of all text so far, held_ included
  std::deque<uint64_t> held_tokens_;  // where in the text each token that is not released begins
  uint32_t released_tokens_ = 0;
  bool matched_ = false;
};

}  // namespace inferd::client_lib
