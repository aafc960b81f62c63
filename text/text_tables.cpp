#include "text/text_tables.h"

#include <algorithm>
#include <string>

#include "text/text_tables_layout.h"

namespace inferd {

namespace {

Error corrupt(std::string_view what) {
  return Error(ErrorCode::kDataCorrupt, "the text tables are damaged: " + std::string(what) +
                                            "; restart the daemon to publish them anew");
}

// The bytes between two offsets, or none if the offsets are not believable.
std::string_view slice(std::span<const uint32_t> offsets, std::span<const char> bytes,
                       uint32_t index) noexcept {
  if (static_cast<size_t>(index) + 1 >= offsets.size()) return {};
  const uint32_t begin = offsets[index];
  const uint32_t end = offsets[index + 1];
  if (begin > end || end > bytes.size()) return {};
  return {bytes.data() + begin, end - begin};
}

// Sets `out` to the section's elements; false if the section does not hold whole ones.
template <typename T>
bool take(std::span<const uint8_t> block, const TextTablesHeader& header, TextSection which,
          std::span<const T>& out) {
  const auto& section = header.sections[static_cast<size_t>(which)];
  if (section.offset % 8 != 0 || section.offset < sizeof(TextTablesHeader)) return false;
  if (section.offset > block.size() || section.bytes > block.size() - section.offset) return false;
  if (section.bytes % sizeof(T) != 0) return false;
  out = {reinterpret_cast<const T*>(block.data() + section.offset), section.bytes / sizeof(T)};
  return true;
}

bool is_table_size(size_t slots) { return slots != 0 && (slots & (slots - 1)) == 0; }

}  // namespace

Result<TextTables> TextTables::open(std::span<const uint8_t> block) {
  if (block.size() < sizeof(TextTablesHeader)) return corrupt("they are shorter than their header");
  if (reinterpret_cast<uintptr_t>(block.data()) % 8 != 0) {
    return Error(ErrorCode::kInvalidArgument, "text tables must be aligned to 8 bytes");
  }
  const auto& header = *reinterpret_cast<const TextTablesHeader*>(block.data());
  if (header.magic != TextTablesHeader::kMagic) return corrupt("they do not start as such");
  if (header.version != TextTablesHeader::kVersion) {
    return Error(ErrorCode::kVersionMismatch,
                 "the daemon's text tables have version " + std::to_string(header.version) +
                     ", this library reads version " + std::to_string(TextTablesHeader::kVersion) +
                     "; install the same version of both");
  }
  if (header.header_bytes != sizeof(TextTablesHeader) ||
      header.checksum != text_header_checksum(header)) {
    return corrupt("the checksum of their header does not match");
  }
  if (header.total_bytes > block.size()) return corrupt("they are cut off");
  block = block.first(header.total_bytes);

  TextTables t;
  t.header_ = &header;
  using S = TextSection;
  const bool whole = take(block, header, S::kSymbolOffsets, t.symbol_offsets_) &&
                     take(block, header, S::kSymbolBytes, t.symbol_bytes_) &&
                     take(block, header, S::kTypes, t.types_) &&
                     take(block, header, S::kFlags, t.flags_) &&
                     take(block, header, S::kScores, t.scores_) &&
                     take(block, header, S::kTextSlots, t.text_slots_) &&
                     take(block, header, S::kMergeSlots, t.merge_slots_) &&
                     take(block, header, S::kByteSymbols, t.byte_symbols_) &&
                     take(block, header, S::kByteTokens, t.byte_tokens_) &&
                     take(block, header, S::kSpecialNodes, t.special_nodes_) &&
                     take(block, header, S::kSpecialRoots, t.special_roots_) &&
                     take(block, header, S::kSpecialOrder, t.special_order_) &&
                     take(block, header, S::kEndOfGeneration, t.end_of_generation_) &&
                     take(block, header, S::kStringOffsets, t.string_offsets_) &&
                     take(block, header, S::kStringBytes, t.string_bytes_);
  const size_t tokens = header.token_count;
  const bool fits = whole && tokens > 0 && tokens <= 0x7fffffff && header.symbol_count >= tokens &&
                    t.symbol_offsets_.size() == size_t{header.symbol_count} + 1 &&
                    t.types_.size() == tokens && t.flags_.size() == tokens &&
                    (t.scores_.empty() || t.scores_.size() == tokens) &&
                    is_table_size(t.text_slots_.size()) && is_table_size(t.merge_slots_.size()) &&
                    t.byte_symbols_.size() == 256 && t.byte_tokens_.size() == 256 &&
                    t.special_roots_.size() == 256 &&
                    header.text_probes_max <= TextTablesHeader::kProbesMax &&
                    header.merge_probes_max <= TextTablesHeader::kProbesMax &&
                    header.tokenizer_model <= 2;
  if (!fits) return corrupt("the sizes in their header do not fit together");
  return t;
}

uint32_t TextTables::token_count() const noexcept { return header_->token_count; }
TokenizerModel TextTables::tokenizer_model() const noexcept {
  return static_cast<TokenizerModel>(header_->tokenizer_model);
}
uint32_t TextTables::longest_token_bytes() const noexcept { return header_->longest_token_bytes; }

std::string_view TextTables::token_text(TokenId id) const noexcept {
  return contains(id) ? symbol_text(static_cast<uint32_t>(id)) : std::string_view{};
}

TokenType TextTables::token_type(TokenId id) const noexcept {
  if (!contains(id)) return TokenType::kUndefined;
  const uint8_t type = types_[static_cast<size_t>(id)];
  return type <= static_cast<uint8_t>(TokenType::kByte) ? static_cast<TokenType>(type)
                                                        : TokenType::kUndefined;
}

uint8_t TextTables::token_flags(TokenId id) const noexcept {
  return contains(id) ? flags_[static_cast<size_t>(id)] : 0;
}

float TextTables::token_score(TokenId id) const noexcept {
  return contains(id) && !scores_.empty() ? scores_[static_cast<size_t>(id)] : 0.0f;
}

TokenId TextTables::find_token(std::string_view text) const noexcept {
  const uint64_t hash = text_hash(text);
  const auto tag = static_cast<uint32_t>(hash >> 32);
  const size_t mask = text_slots_.size() - 1;
  for (size_t probe = 0; probe < header_->text_probes_max; ++probe) {
    const TextSlot slot = text_slots_[(hash + probe) & mask];
    if (slot.symbol == kNoSymbol) return kNoToken;
    if (slot.tag == tag && slot.symbol < header_->token_count && symbol_text(slot.symbol) == text) {
      return static_cast<TokenId>(slot.symbol);
    }
  }
  return kNoToken;
}

uint32_t TextTables::find_symbol(std::string_view bytes) const noexcept {
  const uint64_t hash = text_hash(bytes);
  const auto tag = static_cast<uint32_t>(hash >> 32);
  const size_t mask = text_slots_.size() - 1;
  for (size_t probe = 0; probe < header_->text_probes_max; ++probe) {
    const TextSlot slot = text_slots_[(hash + probe) & mask];
    if (slot.symbol == kNoSymbol) return kNoSymbol;
    if (slot.tag != tag || slot.symbol >= header_->symbol_count) continue;
    if (slot.symbol < header_->token_count && (flags_[slot.symbol] & kOrdinary) == 0) continue;
    if (symbol_text(slot.symbol) == bytes) return slot.symbol;
  }
  return kNoSymbol;
}

std::string_view TextTables::symbol_text(uint32_t symbol) const noexcept {
  return slice(symbol_offsets_, symbol_bytes_, symbol);
}

uint32_t TextTables::byte_symbol(uint8_t byte) const noexcept { return byte_symbols_[byte]; }

TokenId TextTables::byte_token(uint8_t byte) const noexcept {
  const TokenId id = byte_tokens_[byte];
  return contains(id) ? id : kNoToken;
}

bool TextTables::find_merge(uint32_t left, uint32_t right, Merge& merge) const noexcept {
  if (left == kNoSymbol || right == kNoSymbol) return false;
  const uint64_t hash = text_merge_hash(left, right);
  const size_t mask = merge_slots_.size() - 1;
  for (size_t probe = 0; probe < header_->merge_probes_max; ++probe) {
    const MergeSlot& slot = merge_slots_[(hash + probe) & mask];
    if (slot.left == left && slot.right == right) {
      merge = {slot.rank, slot.result};
      return slot.result < header_->symbol_count;
    }
    if (slot.left == kNoSymbol) return false;
  }
  return false;
}

TokenId TextTables::bos() const noexcept { return checked(header_->bos); }
TokenId TextTables::eos() const noexcept { return checked(header_->eos); }
TokenId TextTables::eot() const noexcept { return checked(header_->eot); }
TokenId TextTables::unknown() const noexcept { return checked(header_->unknown); }
TokenId TextTables::padding() const noexcept { return checked(header_->padding); }
TokenId TextTables::separator() const noexcept { return checked(header_->separator); }

std::span<const TokenId> TextTables::end_of_generation() const noexcept {
  return end_of_generation_;
}

bool TextTables::is_end_of_generation(TokenId id) const noexcept {
  return std::binary_search(end_of_generation_.begin(), end_of_generation_.end(), id);
}

bool TextTables::add_bos() const noexcept {
  return (header_->settings & TextTablesHeader::kAddBos) != 0;
}
bool TextTables::add_eos() const noexcept {
  return (header_->settings & TextTablesHeader::kAddEos) != 0;
}
bool TextTables::add_space_prefix() const noexcept {
  return (header_->settings & TextTablesHeader::kAddSpacePrefix) != 0;
}
bool TextTables::ignore_merges() const noexcept {
  return (header_->settings & TextTablesHeader::kIgnoreMerges) != 0;
}

std::string_view TextTables::string_at(uint32_t index) const noexcept {
  return slice(string_offsets_, string_bytes_, index);
}
std::string_view TextTables::model_name() const noexcept {
  return string_at(static_cast<uint32_t>(TextString::kModelName));
}
std::string_view TextTables::architecture() const noexcept {
  return string_at(static_cast<uint32_t>(TextString::kArchitecture));
}
std::string_view TextTables::pre_tokenizer() const noexcept {
  return string_at(static_cast<uint32_t>(TextString::kPreTokenizer));
}
std::string_view TextTables::chat_template() const noexcept {
  return string_at(static_cast<uint32_t>(TextString::kChatTemplate));
}

uint32_t TextTables::named_template_count() const noexcept {
  constexpr size_t kFirst = static_cast<size_t>(TextString::kFirstNamed);
  const size_t strings = string_offsets_.empty() ? 0 : string_offsets_.size() - 1;
  return strings <= kFirst ? 0 : static_cast<uint32_t>((strings - kFirst) / 2);
}
std::string_view TextTables::template_name(uint32_t index) const noexcept {
  if (index >= named_template_count()) return {};
  return string_at(static_cast<uint32_t>(TextString::kFirstNamed) + 2 * index);
}
std::string_view TextTables::named_template(uint32_t index) const noexcept {
  if (index >= named_template_count()) return {};
  return string_at(static_cast<uint32_t>(TextString::kFirstNamed) + 2 * index + 1);
}

uint32_t TextTables::special_child(uint32_t node, uint8_t byte) const noexcept {
  if (node == 0) {
    const uint32_t root = special_roots_[byte];
    return root < special_nodes_.size() ? root : 0;
  }
  if (node >= special_nodes_.size()) return 0;
  const SpecialNode& parent = special_nodes_[node];
  if (parent.first_child > special_nodes_.size() ||
      parent.child_count > special_nodes_.size() - parent.first_child) {
    return 0;
  }
  const auto children = special_nodes_.subspan(parent.first_child, parent.child_count);
  const auto at = std::lower_bound(
      children.begin(), children.end(), byte,
      [](const SpecialNode& child, uint8_t wanted) { return child.byte < wanted; });
  if (at == children.end() || at->byte != byte) return 0;
  return parent.first_child + static_cast<uint32_t>(at - children.begin());
}

uint32_t TextTables::special_at(uint32_t node) const noexcept {
  if (node >= special_nodes_.size()) return kNoSymbol;
  const uint32_t order = special_nodes_[node].special;
  return order < special_order_.size() ? order : kNoSymbol;
}

uint32_t TextTables::special_count() const noexcept {
  return static_cast<uint32_t>(special_order_.size());
}

TokenId TextTables::special_token(uint32_t order) const noexcept {
  if (order >= special_order_.size()) return kNoToken;
  const TokenId id = special_order_[order];
  return contains(id) ? id : kNoToken;
}

}  // namespace inferd
