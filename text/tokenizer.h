// Text to token ids and back, over a model's text tables.
// Owner: text. A Tokenizer may be used by any number of threads at once; a StreamDecoder belongs to
// one thread. Must not know files, models or the daemon.
//
// Ids equal llama.cpp's for the same vocabulary and text, with three differences, all of them on text that
// a user typed: it never becomes a control token (llama.cpp's merges can make one in SentencePiece
// vocabularies); the message marks of gpt-oss ("<|channel|>" and its kin) count as control tokens; and
// bytes that form a code point above U+10FFFF count as invalid UTF-8 one by one.
//
// Invalid UTF-8: byte-level and character BPE see U+FFFD for each byte that starts no well-formed
// character, and read overlong forms and surrogates as the code point that they spell;
// SentencePiece BPE keeps the bytes as they are and falls back to byte tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/chat_template.h"
#include "text/text_tables.h"

namespace inferd {

struct EncodeOptions {
  bool parse_special = false;  // names of control tokens in the text become those tokens
  bool add_special = false;    // BOS in front, EOS behind, where the model wants them
};

struct DecodeOptions {
  bool special = false;          // write control tokens out by name instead of leaving them out
  bool replace_invalid = false;  // U+FFFD for bytes that are no UTF-8, instead of the bytes
  // Drop the space that a SentencePiece vocabulary puts before a text. Turn it off for a text that
  // continues another one.
  bool strip_space_prefix = true;
};

class Tokenizer {
 public:
  // Longest text that encode() takes.
  static constexpr size_t kTextBytesMax = size_t{1} << 26;

  // Cheap: patterns are compiled by the first encode(). The block under `tables` must outlive the
  // tokenizer. Errors: kUnsupported if the block names a pre-tokenizer that this build does not know.
  static Result<Tokenizer> create(TextTables tables);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Time is near-linear in the text, also for one word of a megabyte; no allocation per token once
  // warm. Errors: kResourceExhausted for a text above kTextBytesMax or beyond what the pattern matcher can take.
  Result<std::vector<TokenId>> encode(std::string_view text,
                                      const EncodeOptions& options = {}) const;
  // Appends to `ids`; on error `ids` is as it was.
  Result<void> encode(std::string_view text, const EncodeOptions& options,
                      std::vector<TokenId>& ids) const;
  // The ids of the concatenated text, where names of control tokens count only if every byte of them came
  // from the template. options.parse_special is not looked at.
  Result<std::vector<TokenId>> encode_segments(std::span<const TextSegment> segments,
                                               const EncodeOptions& options = {}) const;

  // Ids outside the vocabulary give no text.
  std::string decode(std::span<const TokenId> ids, const DecodeOptions& options = {}) const;

  // The bytes one token contributes, control tokens by name; "▁" as a space, byte tokens as the byte.
  // May be a part of a character.
  std::string token_bytes(TokenId id) const;
  // The id of the token with that name or text, or kNoToken. Spaces are written as spaces.
  TokenId find_token(std::string_view text) const;
  bool is_end_of_generation(TokenId id) const noexcept;

  const TextTables& tables() const noexcept;
  // Names of bos, eos, unk and pad as chat templates want them.
  TemplateTokens template_tokens() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

// Decodes ids as they come. Each push() returns the text that has become complete: it never ends inside a
// UTF-8 character, and all returned texts and that of finish() together equal Tokenizer::decode() of all ids.
// Bytes that cannot become a character are passed on (or replaced) as soon as that is certain.
class StreamDecoder {
 public:
  // Keeps a copy of `tables`; the block under them must outlive it.
  explicit StreamDecoder(const TextTables& tables, const DecodeOptions& options = {});

  // Valid until the next call. Often empty.
  std::string_view push(TokenId id);
  // What was held back, at most three bytes (or one U+FFFD); then the decoder starts afresh.
  std::string_view finish();
  // Bytes held back because they may be the start of a character.
  size_t pending_bytes() const noexcept { return pending_.size(); }

 private:
  TextTables tables_;
  DecodeOptions options_;
  bool strip_next_;      // the next text loses its first space
  std::string pending_;  // at most three bytes between calls
  std::string ready_;
};

}  // namespace inferd
