// Any bytes as a text to tokenize, with every kind of tokenizer and every pre-tokenizer: ids of the
// vocabulary, no control token that the text's writer may not make, the text again when decoded, and the
// same whether it comes whole or token by token. The first byte picks the tokenizer, the second where
// the text is cut.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "tests/fuzz/small_vocabulary.h"
#include "text/pretokenizer_kinds.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace {

using namespace inferd;

struct Built {
  std::vector<uint64_t> block;
  std::unique_ptr<const Tokenizer> tokenizer;
};

// One for each pre-tokenizer that can be built, and one without.
const std::vector<Built>& tokenizers() {
  static const std::vector<Built> all = [] {
    std::vector<Vocabulary> vocabularies;
    vocabularies.push_back(fuzz::small_vocabulary(fuzz::VocabularyKind::kSentencePiece, ""));
    for (const text::PretokenizerKind& kind : text::all_pretokenizers()) {
      if (kind.metaspace) continue;  // no tables are built for it: see text_tables_builder.cpp
      const auto vocabulary_kind = kind.characters ? fuzz::VocabularyKind::kCharacters
                                                   : fuzz::VocabularyKind::kByteLevel;
      vocabularies.push_back(fuzz::small_vocabulary(vocabulary_kind, std::string(kind.name)));
    }
    std::vector<Built> built(vocabularies.size());
    for (size_t i = 0; i < built.size(); ++i) {
      size_t bytes = 0;
      built[i].block = fuzz::built_tables(vocabularies[i], bytes);
      const auto tables =
          TextTables::open({reinterpret_cast<const uint8_t*>(built[i].block.data()), bytes});
      INFERD_CHECK(tables.ok());
      auto tokenizer = Tokenizer::create(*tables);
      INFERD_CHECK(tokenizer.ok());
      built[i].tokenizer = std::make_unique<const Tokenizer>(std::move(*tokenizer));
    }
    return built;
  }();
  return all;
}

size_t control_tokens(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  return static_cast<size_t>(std::count_if(ids.begin(), ids.end(), [&](TokenId id) {
    INFERD_CHECK(tokenizer.tables().contains(id));
    return (tokenizer.tables().token_flags(id) & TextTables::kControl) != 0;
  }));
}

// What decoding must give back.
std::string expected_text(const Tokenizer& tokenizer, std::string_view text) {
  if (tokenizer.tables().tokenizer_model() == TokenizerModel::kByteLevelBpe) {
    return text::canonical_utf8(text);
  }
  std::string spaces;
  constexpr std::string_view kMark = "\u2581";
  while (!text.empty()) {
    const bool marked = text.starts_with(kMark);
    spaces += marked ? ' ' : text.front();
    text.remove_prefix(marked ? kMark.size() : 1);
  }
  return tokenizer.tables().tokenizer_model() == TokenizerModel::kCharacterBpe
             ? text::canonical_utf8(spaces)
             : spaces;
}

void check_decoding(const Tokenizer& tokenizer, std::string_view text,
                    const std::vector<TokenId>& ids) {
  const std::string whole = tokenizer.decode(ids, {.special = true});
  std::string streamed;
  StreamDecoder decoder(tokenizer.tables(), {.special = true});
  for (const TokenId id : ids) {
    streamed += decoder.push(id);
    INFERD_CHECK(decoder.pending_bytes() <= 3);
  }
  streamed += decoder.finish();
  INFERD_CHECK(streamed == whole);
  // As with the reference, SentencePiece puts a space behind a special token, and the lead byte of an
  // ill-formed character takes bytes along that follow it, the mark of a space among them.
  const bool exact =
      tokenizer.tables().tokenizer_model() != TokenizerModel::kSentencePieceBpe ||
      (std::find(ids.begin(), ids.end(), fuzz::kToolToken) == ids.end() &&
       text::canonical_utf8(text) == text);
  if (exact) INFERD_CHECK(whole == expected_text(tokenizer, text));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const Tokenizer& tokenizer = *tokenizers()[data[0] % tokenizers().size()].tokenizer;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const auto plain = tokenizer.encode(text);
  INFERD_CHECK(plain.ok());
  INFERD_CHECK(control_tokens(tokenizer, *plain) == 0);
  check_decoding(tokenizer, text, *plain);

  // The first part is the template's, the rest the user's: no more control tokens than the first makes.
  const size_t cut = std::min<size_t>(data[1], text.size());
  const std::string_view first = text.substr(0, cut);
  const auto trusted = tokenizer.encode(first, {.parse_special = true});
  const std::vector<TextSegment> segments = {{std::string(first), true},
                                             {std::string(text.substr(cut)), false}};
  const auto mixed = tokenizer.encode_segments(segments);
  INFERD_CHECK(trusted.ok() && mixed.ok());
  INFERD_CHECK(control_tokens(tokenizer, *mixed) == control_tokens(tokenizer, *trusted));
  return 0;
}
