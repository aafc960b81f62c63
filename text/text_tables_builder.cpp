// Builds the block that text_tables.h describes.
#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "text/byte_alphabet.h"
#include "text/pretokenizer_kinds.h"
#include "text/text_tables.h"
#include "text/text_tables_layout.h"

namespace inferd {

namespace {

constexpr uint32_t kNoSymbol = TextTables::kNoSymbol;

Error unsupported(std::string message) { return Error(ErrorCode::kUnsupported, std::move(message)); }

Error broken(std::string message) { return Error(ErrorCode::kInvalidArgument, std::move(message)); }

// "<0x0A>" to 10.
std::optional<uint8_t> byte_of_name(std::string_view name) {
  if (name.size() != 6 || !name.starts_with("<0x") || name[5] != '>') return std::nullopt;
  int value = 0;
  for (const char digit : name.substr(3, 2)) {
    value *= 16;
    if (digit >= '0' && digit <= '9') {
      value += digit - '0';
    } else if (digit >= 'A' && digit <= 'F') {
      value += digit - 'A' + 10;
    } else {
      return std::nullopt;
    }
  }
  return static_cast<uint8_t>(value);
}

// The marks between the messages of gpt-oss, which its files give as added tokens.
bool is_message_mark(std::string_view text) {
  for (const std::string_view mark : {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>", "<|end|>"}) {
    if (text == mark) return true;
  }
  return false;
}

}  // namespace

class TextTablesBuilder {
 public:
  explicit TextTablesBuilder(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  Result<std::vector<uint8_t>> build() {
    INFERD_TRY(choose_model());
    INFERD_TRY(add_tokens());
    add_bytes();
    INFERD_TRY(add_merges());
    build_text_slots();
    build_merge_slots();
    build_specials();
    add_strings();
    return finish();
  }

 private:
  using SpecialNode = TextTables::SpecialNode;

  Result<void> choose_model() {
    if (vocabulary_.model == "llama") {
      model_ = TokenizerModel::kSentencePieceBpe;
      return {};
    }
    if (vocabulary_.model != "gpt2" && vocabulary_.model != "gemma4") {
      return unsupported("the model's tokenizer '" + vocabulary_.model +
                         "' is not supported; byte-level BPE ('gpt2'), character BPE ('gemma4') and SentencePiece "
                         "BPE ('llama') are");
    }
    const text::PretokenizerKind* kind = text::find_pretokenizer(vocabulary_.pre);
    // "mmbert" puts a "▁" before words where the text has none: an encoder's vocabulary, refused by name.
    if (kind == nullptr || kind->metaspace || (vocabulary_.model == "gemma4" && !kind->characters)) {
      return unsupported("the model's pre-tokenizer '" + vocabulary_.pre + "' is not supported by this build");
    }
    model_ = kind->characters ? TokenizerModel::kCharacterBpe : TokenizerModel::kByteLevelBpe;
    ignore_merges_ = kind->ignore_merges;
    return {};
  }

  bool byte_level() const { return model_ == TokenizerModel::kByteLevelBpe; }

  Result<void> add_tokens() {
    const size_t count = vocabulary_.tokens.size();
    if (count == 0 || count > 0x7fffffff || vocabulary_.types.size() != count ||
        (!vocabulary_.scores.empty() && vocabulary_.scores.size() != count)) {
      return broken("the vocabulary has no tokens, or not one type and score for each");
    }
    flags_.resize(count);
    for (size_t id = 0; id < count; ++id) {
      const TokenType type = vocabulary_.types[id];
      const bool control = type == TokenType::kControl || type == TokenType::kUnknown;
      const bool added = control || type == TokenType::kUserDefined;
      uint8_t flags = control ? TextTables::kControl | TextTables::kHidden : TextTables::kOrdinary;
      // Shown like text, but a user must not be able to forge them.
      if (type == TokenType::kUserDefined && is_message_mark(vocabulary_.tokens[id])) flags = TextTables::kControl;
      if (added) flags |= TextTables::kAdded;
      if (type == TokenType::kUnused) flags |= TextTables::kHidden;
      flags_[id] = flags;
      std::optional<std::string> bytes;
      if (byte_level() && !added) bytes = text::bytes_of_printable(vocabulary_.tokens[id]);
      symbols_.push_back(bytes ? std::move(*bytes) : vocabulary_.tokens[id]);
      if (symbols_.back().size() > longest_) longest_ = symbols_.back().size();
    }
    for (const TokenId id : vocabulary_.strip_left) flags_[static_cast<size_t>(id)] |= TextTables::kStripLeft;
    for (const TokenId id : vocabulary_.strip_right) flags_[static_cast<size_t>(id)] |= TextTables::kStripRight;
    // Of several tokens with one text the highest id counts.
    for (size_t id = count; id-- > 0;) {
      if ((flags_[id] & TextTables::kOrdinary) != 0) by_text_.emplace(symbols_[id], static_cast<uint32_t>(id));
    }
    return {};
  }

  uint32_t symbol_of(const std::string& bytes) {
    const auto [at, fresh] = by_text_.emplace(bytes, static_cast<uint32_t>(symbols_.size()));
    if (fresh) symbols_.push_back(bytes);
    return at->second;
  }

  void add_bytes() {
    byte_symbols_.assign(256, kNoSymbol);
    byte_tokens_.assign(256, kNoToken);
    if (byte_level()) {
      for (size_t byte = 0; byte < 256; ++byte) {
        byte_symbols_[byte] = symbol_of(std::string(1, static_cast<char>(byte)));
        if (byte_symbols_[byte] < flags_.size()) byte_tokens_[byte] = static_cast<TokenId>(byte_symbols_[byte]);
      }
      return;
    }
    for (size_t id = 0; id < flags_.size(); ++id) {
      if (vocabulary_.types[id] != TokenType::kByte) continue;
      if (const auto byte = byte_of_name(vocabulary_.tokens[id])) byte_tokens_[*byte] = static_cast<TokenId>(id);
    }
  }

  std::optional<std::string> piece(std::string text) const {
    return byte_level() ? text::bytes_of_printable(text) : std::optional(std::move(text));
  }

  Result<void> add_merges() {
    if (model_ == TokenizerModel::kSentencePieceBpe) return {};
    merges_.reserve(vocabulary_.merges.size());
    for (size_t rank = 0; rank < vocabulary_.merges.size(); ++rank) {
      const std::string& merge = vocabulary_.merges[rank];
      // The first byte may itself be a space in a vocabulary that does not spell it "Ġ".
      const size_t space = merge.find(' ', 1);
      if (space == std::string::npos || space + 1 == merge.size()) {
        return broken("merge " + std::to_string(rank) + " ('" + merge + "') is not two pieces");
      }
      const auto left = piece(merge.substr(0, space));
      const auto right = piece(merge.substr(space + 1));
      if (!left || !right) continue;  // pieces outside of the alphabet can never occur
      const uint32_t a = symbol_of(*left), b = symbol_of(*right), result = symbol_of(*left + *right);
      merges_.push_back({a, b, static_cast<uint32_t>(rank), result});
    }
    return {};
  }

  void build_text_slots() {
    const size_t slots = std::bit_ceil(symbols_.size() * 2 + 2);
    text_slots_.assign(slots, {0, kNoSymbol});
    const auto insert = [&](uint32_t symbol) {
      const uint64_t hash = text_hash(symbols_[symbol]);
      for (size_t probe = 0;; ++probe) {
        TextTables::TextSlot& slot = text_slots_[(hash + probe) & (slots - 1)];
        if (slot.symbol != kNoSymbol) continue;
        slot = {static_cast<uint32_t>(hash >> 32), symbol};
        text_probes_ = std::max(text_probes_, static_cast<uint32_t>(probe + 1));
        return;
      }
    };
    // Ordinary before control: the first that a probe meets is the one that counts.
    std::vector<uint32_t> ordinary;
    for (const auto& [bytes, symbol] : by_text_) ordinary.push_back(symbol);
    std::sort(ordinary.begin(), ordinary.end());
    for (const uint32_t symbol : ordinary) insert(symbol);
    std::unordered_map<std::string_view, uint32_t> control;
    for (size_t id = flags_.size(); id-- > 0;) {
      if ((flags_[id] & TextTables::kOrdinary) == 0 &&
          control.emplace(symbols_[id], static_cast<uint32_t>(id)).second) {
        insert(static_cast<uint32_t>(id));
      }
    }
  }

  void build_merge_slots() {
    const size_t slots = std::bit_ceil(merges_.size() * 2 + 2);
    merge_slots_.assign(slots, {kNoSymbol, kNoSymbol, 0, 0});
    for (const TextTables::MergeSlot& merge : merges_) {
      const uint64_t hash = text_merge_hash(merge.left, merge.right);
      for (size_t probe = 0;; ++probe) {
        TextTables::MergeSlot& slot = merge_slots_[(hash + probe) & (slots - 1)];
        if (slot.left == merge.left && slot.right == merge.right) break;  // the better rank stays
        if (slot.left != kNoSymbol) continue;
        slot = merge;
        merge_probes_ = std::max(merge_probes_, static_cast<uint32_t>(probe + 1));
        break;
      }
    }
  }

  // A trie over the names, its nodes in breadth-first order so that children lie side by side.
  void build_specials() {
    for (size_t id = 0; id < flags_.size(); ++id) {
      if ((flags_[id] & TextTables::kAdded) != 0 && !symbols_[id].empty()) {
        special_order_.push_back(static_cast<TokenId>(id));
      }
    }
    const auto name = [&](TokenId id) -> const std::string& { return symbols_[static_cast<size_t>(id)]; };
    std::stable_sort(special_order_.begin(), special_order_.end(),
                     [&](TokenId a, TokenId b) { return name(a).size() > name(b).size(); });
    struct Building {
      std::map<uint8_t, size_t> children;
      uint32_t special = kNoSymbol;
      uint8_t byte = 0;
    };
    std::vector<Building> nodes(1);
    for (uint32_t order = 0; order < special_order_.size(); ++order) {
      size_t node = 0;
      for (const char c : name(special_order_[order])) {
        const auto byte = static_cast<uint8_t>(c);
        const auto [at, fresh] = nodes[node].children.emplace(byte, nodes.size());
        node = at->second;
        if (fresh) {
          nodes.emplace_back();
          nodes.back().byte = byte;
        }
      }
      if (nodes[node].special == kNoSymbol) nodes[node].special = order;
    }
    special_roots_.assign(256, 0);
    std::vector<size_t> queue{0};
    special_nodes_.push_back({0, 0, 0, 0, kNoSymbol});
    for (size_t i = 0; i < queue.size(); ++i) {
      const Building& node = nodes[queue[i]];
      special_nodes_[i].first_child = static_cast<uint32_t>(special_nodes_.size());
      special_nodes_[i].child_count = static_cast<uint16_t>(node.children.size());
      for (const auto& [byte, child] : node.children) {
        if (i == 0) special_roots_[byte] = static_cast<uint32_t>(special_nodes_.size());
        special_nodes_.push_back({0, 0, byte, 0, nodes[child].special});
        queue.push_back(child);
      }
    }
  }

  void add_string(std::string_view text) {
    string_bytes_.append(text);
    string_offsets_.push_back(static_cast<uint32_t>(string_bytes_.size()));
  }

  void add_strings() {
    string_offsets_.push_back(0);
    add_string(vocabulary_.name);
    add_string(vocabulary_.architecture);
    add_string(vocabulary_.pre);
    add_string(vocabulary_.chat_template);
    for (const auto& [name, text] : vocabulary_.named_chat_templates) {
      add_string(name);
      add_string(text);
    }
  }

  template <typename T>
  void put(TextSection which, const T* data, size_t count) {
    block_.resize((block_.size() + 7) / 8 * 8);
    header_.sections[static_cast<size_t>(which)] = {block_.size(), count * sizeof(T)};
    const auto* bytes = reinterpret_cast<const uint8_t*>(data);
    block_.insert(block_.end(), bytes, bytes + count * sizeof(T));
  }

  Result<std::vector<uint8_t>> finish() {
    if (text_probes_ > TextTablesHeader::kProbesMax || merge_probes_ > TextTablesHeader::kProbesMax) {
      return broken("the vocabulary's texts collide too often to be looked up");
    }
    std::vector<uint32_t> offsets{0};
    std::string bytes;
    for (const std::string& symbol : symbols_) {
      bytes += symbol;
      if (bytes.size() > 0xffffffff) return broken("the vocabulary's texts are longer than 4 GiB together");
      offsets.push_back(static_cast<uint32_t>(bytes.size()));
    }
    std::vector<uint8_t> types;
    for (const TokenType type : vocabulary_.types) types.push_back(static_cast<uint8_t>(type));
    block_.resize(sizeof(TextTablesHeader));
    put(TextSection::kSymbolOffsets, offsets.data(), offsets.size());
    put(TextSection::kSymbolBytes, bytes.data(), bytes.size());
    put(TextSection::kTypes, types.data(), types.size());
    put(TextSection::kFlags, flags_.data(), flags_.size());
    put(TextSection::kScores, vocabulary_.scores.data(), vocabulary_.scores.size());
    put(TextSection::kTextSlots, text_slots_.data(), text_slots_.size());
    put(TextSection::kMergeSlots, merge_slots_.data(), merge_slots_.size());
    put(TextSection::kByteSymbols, byte_symbols_.data(), byte_symbols_.size());
    put(TextSection::kByteTokens, byte_tokens_.data(), byte_tokens_.size());
    put(TextSection::kSpecialNodes, special_nodes_.data(), special_nodes_.size());
    put(TextSection::kSpecialRoots, special_roots_.data(), special_roots_.size());
    put(TextSection::kSpecialOrder, special_order_.data(), special_order_.size());
    put(TextSection::kEndOfGeneration, vocabulary_.end_of_generation.data(), vocabulary_.end_of_generation.size());
    put(TextSection::kStringOffsets, string_offsets_.data(), string_offsets_.size());
    put(TextSection::kStringBytes, string_bytes_.data(), string_bytes_.size());
    block_.resize((block_.size() + 7) / 8 * 8);
    fill_header();
    return std::move(block_);
  }

  void fill_header() {
    header_.magic = TextTablesHeader::kMagic;
    header_.version = TextTablesHeader::kVersion;
    header_.header_bytes = sizeof(TextTablesHeader);
    header_.total_bytes = block_.size();
    header_.tokenizer_model = static_cast<uint32_t>(model_);
    header_.settings = (vocabulary_.add_bos ? TextTablesHeader::kAddBos : 0) |
                       (vocabulary_.add_eos ? TextTablesHeader::kAddEos : 0) |
                       (vocabulary_.add_space_prefix ? TextTablesHeader::kAddSpacePrefix : 0) |
                       (ignore_merges_ ? TextTablesHeader::kIgnoreMerges : 0);
    header_.token_count = static_cast<uint32_t>(flags_.size());
    header_.symbol_count = static_cast<uint32_t>(symbols_.size());
    header_.longest_token_bytes = static_cast<uint32_t>(longest_);
    header_.text_probes_max = text_probes_;
    header_.merge_probes_max = merge_probes_;
    header_.bos = vocabulary_.bos;
    header_.eos = vocabulary_.eos;
    header_.eot = vocabulary_.eot;
    header_.unknown = vocabulary_.unknown;
    header_.padding = vocabulary_.padding;
    header_.separator = vocabulary_.separator;
    header_.checksum = text_header_checksum(header_);
    std::memcpy(block_.data(), &header_, sizeof header_);
  }

  const Vocabulary& vocabulary_;
  TokenizerModel model_ = TokenizerModel::kByteLevelBpe;
  bool ignore_merges_ = false;
  std::vector<std::string> symbols_;
  std::vector<uint8_t> flags_;
  size_t longest_ = 0;
  std::unordered_map<std::string, uint32_t> by_text_;  // ordinary tokens and pieces
  std::vector<TextTables::MergeSlot> merges_;           // best first
  std::vector<TextTables::TextSlot> text_slots_;
  std::vector<TextTables::MergeSlot> merge_slots_;
  uint32_t text_probes_ = 1, merge_probes_ = 1;
  std::vector<uint32_t> byte_symbols_;
  std::vector<TokenId> byte_tokens_;
  std::vector<SpecialNode> special_nodes_;
  std::vector<uint32_t> special_roots_;
  std::vector<TokenId> special_order_;
  std::vector<uint32_t> string_offsets_;
  std::string string_bytes_;
  TextTablesHeader header_{};
  std::vector<uint8_t> block_;
};

Result<std::vector<uint8_t>> build_text_tables(const Vocabulary& vocabulary) {
  return TextTablesBuilder(vocabulary).build();
}

}  // namespace inferd
