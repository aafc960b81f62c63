#include "client_lib/text_stream.h"

#include <algorithm>

#include "base/check.h"

namespace inferd::client_lib {

TextStream::TextStream(const TextTables& tables, const DecodeOptions& options,
                       std::vector<std::string> stops, std::span<const TokenId> before)
    : decoder_(tables, options), stops_(std::move(stops)) {
  for (const std::string& stop : stops_) INFERD_CHECK(!stop.empty());
  for (const TokenId id : before) decoder_.push(id);
}

bool TextStream::push(TokenId id) {
  INFERD_CHECK(!matched_);
  const std::string_view piece = decoder_.push(id);
  if (stops_.empty()) {
    ready_ += piece;
    ++released_tokens_;
    return false;
  }
  // A token that only completes a character begins where that character does: its bytes so far are
  // not in the text yet.
  held_tokens_.push_back(text_bytes_);
  return take_piece(piece);
}

bool TextStream::finish() {
  if (matched_) return true;
  const std::string_view piece = decoder_.finish();
  if (stops_.empty()) {
    ready_ += piece;
    return false;
  }
  if (take_piece(piece)) return true;
  release(held_.size());
  released_tokens_ += static_cast<uint32_t>(held_tokens_.size());  // those without any text
  held_tokens_.clear();
  return false;
}

bool TextStream::take_piece(std::string_view piece) {
  if (piece.empty()) return false;
  held_ += piece;
  text_bytes_ += piece.size();
  size_t match = std::string::npos;
  for (const std::string& stop : stops_) match = std::min(match, held_.find(stop));
  if (match == std::string::npos) {
    release(held_.size() - held_back_bytes());
    return false;
  }
  matched_ = true;
  release(match);
  held_.clear();
  held_tokens_.clear();
  return true;
}

// Bytes at the end of held_ that may be the start of a stop string.
size_t TextStream::held_back_bytes() const {
  size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (size_t bytes = std::min(held_.size(), stop.size() - 1); bytes > longest; --bytes) {
      if (held_.compare(held_.size() - bytes, bytes, stop, 0, bytes) == 0) longest = bytes;
    }
  }
  return longest;
}

void TextStream::release(size_t bytes) {
  ready_.append(held_, 0, bytes);
  held_.erase(0, bytes);
  const uint64_t released_bytes = text_bytes_ - held_.size();
  while (!held_tokens_.empty() && held_tokens_.front() < released_bytes) {
    held_tokens_.pop_front();
    ++released_tokens_;
  }
}

}  // namespace inferd::client_lib
