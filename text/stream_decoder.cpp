// Token ids to text as they come (declared in tokenizer.h).
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace inferd {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";    // "▁", U+2581
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// "<0x0A>" to 10; the caller knows that it is a byte token.
char byte_of_name(std::string_view name) {
  unsigned value = 0;
  for (const char digit : name.substr(3, 2)) {
    value = value * 16 + static_cast<unsigned>(digit <= '9' ? digit - '0' : digit - 'A' + 10);
  }
  return static_cast<char>(value);
}

// What a token adds to the text, spaces as spaces.
void append_token(const TextTables& tables, const DecodeOptions& options, TokenId id,
                  std::string& out) {
  if (!tables.contains(id)) return;
  if ((tables.token_flags(id) & TextTables::kHidden) != 0 && !options.special) return;
  const std::string_view text = tables.token_text(id);
  const bool plain = (tables.token_flags(id) & TextTables::kControl) != 0 ||
                     tables.tokenizer_model() == TokenizerModel::kByteLevelBpe;
  if (plain) {
    out += text;
    return;
  }
  if (tables.token_type(id) == TokenType::kByte && text.size() == 6 && text.starts_with("<0x")) {
    out += byte_of_name(text);
    return;
  }
  for (size_t at = 0; at < text.size();) {
    if (text.substr(at).starts_with(kSpaceMark)) {
      out += ' ';
      at += kSpaceMark.size();
    } else {
      out += text[at++];
    }
  }
}

}  // namespace

StreamDecoder::StreamDecoder(const TextTables& tables, const DecodeOptions& options)
    : tables_(tables),
      options_(options),
      strip_next_(options.strip_space_prefix && tables.add_space_prefix() &&
                  tables.tokenizer_model() != TokenizerModel::kByteLevelBpe) {}

std::string_view StreamDecoder::push(TokenId id) {
  ready_.clear();
  const size_t held = pending_.size();
  append_token(tables_, options_, id, pending_);
  if (strip_next_ && pending_.size() > held) {
    // Control tokens stand before the text that lost its space, not in place of
    // it.
    if ((tables_.token_flags(id) & TextTables::kControl) == 0) {
      if (pending_[held] == ' ') pending_.erase(held, 1);
      strip_next_ = false;
    }
  }
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const text::Utf8Unit unit = text::next_utf8_unit(rest);
    if (unit.kind == text::Utf8Unit::Kind::kIncomplete) break;
    const bool replace = unit.kind == text::Utf8Unit::Kind::kInvalid && options_.replace_invalid;
    ready_ += replace ? kReplacement : rest.substr(0, unit.bytes);
    rest.remove_prefix(unit.bytes);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return ready_;
}

std::string_view StreamDecoder::finish() {
  ready_ = options_.replace_invalid && !pending_.empty() ? std::string(kReplacement) : pending_;
  pending_.clear();
  strip_next_ = options_.strip_space_prefix && tables_.add_space_prefix() &&
                tables_.tokenizer_model() != TokenizerModel::kByteLevelBpe;
  return ready_;
}

}  // namespace inferd
