#include "text/merger.h"

#include <algorithm>

namespace inferd::text {

void Merger::add_part(std::string_view bytes, uint32_t symbol) {
  const auto index = static_cast<uint32_t>(parts_.size());
  if (index > 0) parts_.back().next = index;
  parts_.push_back({bytes, symbol, index == 0 ? kNone : index - 1, kNone});
}

void Merger::add_characters(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto lead = static_cast<unsigned char>(text[at]);
    const size_t length = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    const std::string_view character = text.substr(at, length);
    add_part(character, tables_.find_symbol(character));
    at += character.size();
  }
}

bool Merger::is_current(const Pair& pair) const {
  const Part& left = parts_[pair.left];
  const Part& right = parts_[pair.right];
  return !left.bytes.empty() && !right.bytes.empty() && left.next == pair.right &&
         left.bytes.size() + right.bytes.size() == pair.bytes;
}

void Merger::join(const Pair& pair) {
  Part& left = parts_[pair.left];
  Part& right = parts_[pair.right];
  left.bytes = std::string_view(left.bytes.data(), pair.bytes);
  left.symbol = pair.result;
  left.next = right.next;
  if (right.next != kNone) parts_[right.next].previous = pair.left;
  right.bytes = {};
}

void Merger::append_bytes(std::string_view bytes, TokenId missing,
                          std::vector<TokenId>& ids) const {
  for (const char byte : bytes) {
    TokenId id = tables_.byte_token(static_cast<uint8_t>(byte));
    if (id == kNoToken) id = missing;
    if (id != kNoToken) ids.push_back(id);
  }
}

template <typename AddPair, typename Later>
void Merger::merge_all(AddPair add_pair, Later later) {
  const auto push = [&](uint32_t left, uint32_t right) {
    if (left == kNone || right == kNone) return;
    if (add_pair(left, right)) std::push_heap(heap_.begin(), heap_.end(), later);
  };
  for (uint32_t i = 1; i < parts_.size(); ++i) push(i - 1, i);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Pair pair = heap_.back();
    heap_.pop_back();
    if (!is_current(pair)) continue;
    join(pair);
    push(parts_[pair.left].previous, pair.left);
    push(pair.left, parts_[pair.left].next);
  }
}

void Merger::merge_by_rank(std::string_view word, std::vector<TokenId>& ids) {
  parts_.clear();
  heap_.clear();
  if (tables_.tokenizer_model() == TokenizerModel::kByteLevelBpe) {
    for (size_t i = 0; i < word.size(); ++i) {
      add_part(word.substr(i, 1), tables_.byte_symbol(static_cast<uint8_t>(word[i])));
    }
  } else {
    add_characters(word);
  }
  const auto add_pair = [this](uint32_t left, uint32_t right) {
    TextTables::Merge merge{};
    if (!tables_.find_merge(parts_[left].symbol, parts_[right].symbol, merge)) return false;
    const size_t bytes = parts_[left].bytes.size() + parts_[right].bytes.size();
    heap_.push_back({left, right, static_cast<uint32_t>(bytes), merge.rank, 0, merge.result});
    return true;
  };
  merge_all(add_pair, [](const Pair& a, const Pair& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  });
  for (uint32_t i = parts_.empty() ? kNone : 0; i != kNone; i = parts_[i].next) {
    if (parts_[i].symbol < tables_.token_count()) {
      ids.push_back(static_cast<TokenId>(parts_[i].symbol));
    } else {
      append_bytes(parts_[i].bytes, kNoToken, ids);
    }
  }
}

void Merger::merge_by_score(std::string_view text, std::vector<TokenId>& ids) {
  parts_.clear();
  heap_.clear();
  add_characters(text);
  const auto add_pair = [this](uint32_t left, uint32_t right) {
    const size_t bytes = parts_[left].bytes.size() + parts_[right].bytes.size();
    if (bytes > tables_.longest_token_bytes()) return false;
    const uint32_t result = tables_.find_symbol({parts_[left].bytes.data(), bytes});
    if (result >= tables_.token_count()) return false;
    const float score = tables_.token_score(static_cast<TokenId>(result));
    heap_.push_back({left, right, static_cast<uint32_t>(bytes), 0, score, result});
    return true;
  };
  merge_all(add_pair, [](const Pair& a, const Pair& b) {
    return a.score != b.score ? a.score < b.score : a.left > b.left;
  });
  for (uint32_t i = parts_.empty() ? kNone : 0; i != kNone; i = parts_[i].next) {
    if (parts_[i].symbol < tables_.token_count()) {
      ids.push_back(static_cast<TokenId>(parts_[i].symbol));
    } else {
      append_bytes(parts_[i].bytes, tables_.unknown(), ids);
    }
  }
}

}  // namespace inferd::text
