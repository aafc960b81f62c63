#include "text/tokenizer.h"

#include <algorithm>
#include <mutex>
#include <optional>

#include "text/merger.h"
#include "text/pretokenizer.h"
#include "text/utf8.h"

namespace inferd {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // "▁", U+2581

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

void append_marked(std::string_view text, std::string& marked) {
  for (const char c : text) {
    if (c == ' ') {
      marked += kSpaceMark;
    } else {
      marked += c;
    }
  }
}

// An occurrence of an added or control token's name.
struct Occurrence {
  uint32_t order;  // in which names are looked for
  size_t start;
  size_t bytes;
  TokenId id;
};

// A stretch of ordinary text, or one token.
struct Fragment {
  std::string_view text;
  TokenId id = kNoToken;
};

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(const TextTables& given) : tables(given) {}

  Result<const text::Pretokenizer*> pretokenizer() const {
    std::call_once(compile_once, [this] {
      const text::PretokenizerKind* kind = text::find_pretokenizer(tables.pre_tokenizer());
      INFERD_CHECK(kind != nullptr);  // create() looked
      auto made = text::Pretokenizer::compile(*kind);
      if (made) {
        compiled = std::move(*made);
      } else {
        compile_error = made.error();
      }
    });
    if (compile_error) return *compile_error;
    return compiled.get();
  }

  bool byte_level() const { return tables.tokenizer_model() == TokenizerModel::kByteLevelBpe; }

  // `may_be_control(start, bytes)`: whether that part of the text may name a
  // control token.
  template <typename MayBeControl>
  std::vector<Fragment> cut_specials(std::string_view text, MayBeControl may_be_control) const;
  Result<void> encode_fragments(const std::vector<Fragment>& fragments, bool starts_text,
                                std::vector<TokenId>& ids) const;
  template <typename MayBeControl>
  Result<void> encode(std::string_view text, bool add_special, MayBeControl may_be_control,
                      std::vector<TokenId>& ids) const;

  const TextTables tables;
  mutable std::once_flag compile_once;
  mutable std::unique_ptr<const text::Pretokenizer> compiled;
  mutable std::optional<Error> compile_error;
};

template <typename MayBeControl>
std::vector<Fragment> Tokenizer::Impl::cut_specials(std::string_view text,
                                                    MayBeControl may_be_control) const {
  std::vector<Occurrence> found;
  for (size_t start = 0; start < text.size(); ++start) {
    uint32_t node = 0;
    for (size_t at = start; at < text.size(); ++at) {
      node = tables.special_child(node, static_cast<uint8_t>(text[at]));
      if (node == 0) break;
      const uint32_t order = tables.special_at(node);
      if (order == TextTables::kNoSymbol) continue;
      const TokenId id = tables.special_token(order);
      const size_t bytes = at + 1 - start;
      const bool control = (tables.token_flags(id) & TextTables::kControl) != 0;
      if (!control || may_be_control(start, bytes)) found.push_back({order, start, bytes, id});
    }
  }
  // The names are looked for one after the other, each from left to right in
  // what is still text.
  std::sort(found.begin(), found.end(), [](const Occurrence& a, const Occurrence& b) {
    return a.order != b.order ? a.order < b.order : a.start < b.start;
  });
  std::vector<bool> taken(found.empty() ? 0 : text.size());
  std::vector<Occurrence> kept;
  for (const Occurrence& one : found) {
    const auto first = taken.begin() + static_cast<std::ptrdiff_t>(one.start);
    const auto last = first + static_cast<std::ptrdiff_t>(one.bytes);
    if (std::find(first, last, true) != last) continue;
    std::fill(first, last, true);
    kept.push_back(one);
  }
  std::sort(kept.begin(), kept.end(),
            [](const Occurrence& a, const Occurrence& b) { return a.start < b.start; });

  std::vector<Fragment> fragments;
  size_t at = 0;
  const auto add_text = [&](size_t end) {
    if (end > at) fragments.push_back({text.substr(at, end - at), kNoToken});
  };
  for (const Occurrence& one : kept) {
    const uint8_t flags = tables.token_flags(one.id);
    size_t end = one.start;
    if ((flags & TextTables::kStripLeft) != 0) {
      while (end > at && is_space(text[end - 1])) --end;
    }
    add_text(end);
    fragments.push_back({{}, one.id});
    at = one.start + one.bytes;
    if ((flags & TextTables::kStripRight) != 0) {
      while (at < text.size() && is_space(text[at]) && !taken[at]) ++at;
    }
  }
  add_text(text.size());
  return fragments;
}

Result<void> Tokenizer::Impl::encode_fragments(const std::vector<Fragment>& fragments,
                                               bool starts_text, std::vector<TokenId>& ids) const {
  text::Merger merger(tables);
  bool after_special = starts_text;
  for (const Fragment& fragment : fragments) {
    if (fragment.id != kNoToken) {
      ids.push_back(fragment.id);
      after_special = true;
      continue;
    }
    if (tables.tokenizer_model() == TokenizerModel::kSentencePieceBpe) {
      std::string marked;
      if (tables.add_space_prefix() && after_special) marked += kSpaceMark;
      append_marked(fragment.text, marked);
      merger.merge_by_score(marked, ids);
      after_special = false;
      continue;
    }
    INFERD_ASSIGN(const text::Pretokenizer* const splitter, pretokenizer());
    std::string marked;
    if (!byte_level()) append_marked(fragment.text, marked);
    const std::string canonical = text::canonical_utf8(byte_level() ? fragment.text : marked);
    INFERD_ASSIGN(const std::vector<std::string_view> words, splitter->split(canonical));
    for (const std::string_view word : words) {
      // Gemma's tokens of several newlines have no merges.
      const bool as_a_whole = tables.ignore_merges() || (!byte_level() && word[0] == '\n');
      const uint32_t whole = as_a_whole ? tables.find_symbol(word) : TextTables::kNoSymbol;
      if (whole < tables.token_count()) {
        ids.push_back(static_cast<TokenId>(whole));
      } else {
        merger.merge_by_rank(word, ids);
      }
    }
  }
  return {};
}

template <typename MayBeControl>
Result<void> Tokenizer::Impl::encode(std::string_view text, bool add_special,
                                     MayBeControl may_be_control, std::vector<TokenId>& ids) const {
  if (text.size() > kTextBytesMax) {
    return Error(ErrorCode::kResourceExhausted,
                 "the text has " + std::to_string(text.size()) + " bytes; at most " +
                     std::to_string(kTextBytesMax) + " can be tokenized at once");
  }
  const size_t before = ids.size();
  if (add_special && tables.add_bos() && tables.bos() != kNoToken) ids.push_back(tables.bos());
  const Result<void> encoded = encode_fragments(cut_specials(text, may_be_control), true, ids);
  if (!encoded) {
    ids.resize(before);
    return encoded.error();
  }
  if (add_special && tables.add_eos() && tables.eos() != kNoToken) ids.push_back(tables.eos());
  return {};
}

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::create(TextTables tables) {
  if (tables.tokenizer_model() != TokenizerModel::kSentencePieceBpe &&
      text::find_pretokenizer(tables.pre_tokenizer()) == nullptr) {
    return Error(ErrorCode::kUnsupported, "the model's pre-tokenizer '" +
                                              std::string(tables.pre_tokenizer()) +
                                              "' is not supported by this build");
  }
  return Tokenizer(std::make_unique<const Impl>(tables));
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text,
                                               const EncodeOptions& options) const {
  std::vector<TokenId> ids;
  INFERD_TRY(encode(text, options, ids));
  return ids;
}

Result<void> Tokenizer::encode(std::string_view text, const EncodeOptions& options,
                               std::vector<TokenId>& ids) const {
  const bool special = options.parse_special;
  return impl_->encode(
      text, options.add_special, [special](size_t, size_t) { return special; }, ids);
}

Result<std::vector<TokenId>> Tokenizer::encode_segments(std::span<const TextSegment> segments,
                                                        const EncodeOptions& options) const {
  std::string text;
  std::vector<bool> by_user;  // [bytes]
  for (const TextSegment& segment : segments) {
    text += segment.text;
    by_user.resize(text.size(), !segment.from_template);
  }
  const auto may_be_control = [&by_user](size_t start, size_t bytes) {
    const auto first = by_user.begin() + static_cast<std::ptrdiff_t>(start);
    const auto last = first + static_cast<std::ptrdiff_t>(bytes);
    return std::find(first, last, true) == last;
  };
  std::vector<TokenId> ids;
  INFERD_TRY(impl_->encode(text, options.add_special, may_be_control, ids));
  return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, const DecodeOptions& options) const {
  StreamDecoder decoder(impl_->tables, options);
  std::string text;
  for (const TokenId id : ids) text += decoder.push(id);
  text += decoder.finish();
  return text;
}

std::string Tokenizer::token_bytes(TokenId id) const {
  StreamDecoder decoder(impl_->tables, {.special = true, .strip_space_prefix = false});
  std::string bytes(decoder.push(id));
  bytes += decoder.finish();
  return bytes;
}

TokenId Tokenizer::find_token(std::string_view text) const {
  if (impl_->byte_level()) return impl_->tables.find_token(text);
  std::string marked;
  for (const char c : text) marked += c == ' ' ? std::string(kSpaceMark) : std::string(1, c);
  return impl_->tables.find_token(marked);
}

bool Tokenizer::is_end_of_generation(TokenId id) const noexcept {
  return impl_->tables.is_end_of_generation(id);
}

const TextTables& Tokenizer::tables() const noexcept { return impl_->tables; }

TemplateTokens Tokenizer::template_tokens() const {
  const TextTables& tables = impl_->tables;
  const auto name = [&tables](TokenId id) { return std::string(tables.token_text(id)); };
  return {name(tables.bos()), name(tables.eos()), name(tables.unknown()), name(tables.padding())};
}

}  // namespace inferd
