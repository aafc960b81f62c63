#include "text/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string>

namespace inferd::text {
namespace {

struct FreeCode {
  void operator()(pcre2_code* code) const noexcept { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* match) const noexcept { pcre2_match_data_free(match); }
};
using Code = std::unique_ptr<pcre2_code, FreeCode>;
using Match = std::unique_ptr<pcre2_match_data, FreeMatch>;
using Words = std::vector<std::string_view>;

// Cuts [start, end) of `piece`, whose first word begins at `cut`, into threes
// of characters counted from the end; moves `cut` to the end.
void cut_triples(std::string_view piece, size_t start, size_t end, bool isolate, size_t& cut,
                 Words& words) {
  std::vector<size_t> characters;  // where each one begins
  for (size_t at = start; at < end; ++at) {
    if ((static_cast<unsigned char>(piece[at]) & 0xC0) != 0x80) characters.push_back(at);
  }
  const auto cut_at = [&](size_t at) {
    if (at > cut) words.push_back(piece.substr(cut, at - cut));
    cut = at;
  };
  const size_t first = characters.size() % 3;
  if (first == 0 && isolate) cut_at(start);
  for (size_t i = first == 0 ? 3 : first; i < characters.size(); i += 3) cut_at(characters[i]);
  cut_at(end);
}

}  // namespace

struct Pretokenizer::Step {
  StepKind kind;
  Code code;

  // The next match at or behind `from`: false if there is none.
  Result<bool> find(std::string_view piece, size_t from, pcre2_match_data* match) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(piece.data());
    int found =
        pcre2_match(code.get(), subject, piece.size(), from, PCRE2_NO_UTF_CHECK, match, nullptr);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
      found = pcre2_match(code.get(), subject, piece.size(), from,
                          PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match, nullptr);
    }
    if (found == PCRE2_ERROR_NOMATCH) return false;
    if (found < 0) {
      return Error(ErrorCode::kResourceExhausted,
                   "the text is beyond what the pattern matcher can take (its error " +
                       std::to_string(found) + "); cut it into smaller parts");
    }
    return true;
  }

  Result<void> split(std::string_view piece, pcre2_match_data* match, Words& words) const {
    size_t cut = 0;  // where the word under way begins
    size_t from = 0;
    while (from < piece.size()) {
      INFERD_ASSIGN(const bool found, find(piece, from, match));
      if (!found) break;
      const PCRE2_SIZE* const bounds = pcre2_get_ovector_pointer(match);
      const size_t start = bounds[0], end = bounds[1];
      if (end <= start) break;  // no pattern of ours matches nothing
      if (kind == StepKind::kMatches) {
        if (start > cut) words.push_back(piece.substr(cut, start - cut));
        words.push_back(piece.substr(start, end - start));
        cut = end;
      } else {
        cut_triples(piece, start, end, kind == StepKind::kIsolatedTriples, cut, words);
      }
      from = end;
    }
    if (cut < piece.size()) words.push_back(piece.substr(cut));
    return {};
  }
};

Pretokenizer::Pretokenizer() = default;
Pretokenizer::~Pretokenizer() = default;

Result<std::unique_ptr<const Pretokenizer>> Pretokenizer::compile(const PretokenizerKind& kind) {
  std::unique_ptr<Pretokenizer> made(new Pretokenizer);
  for (const SplitStep& step : kind.steps) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(step.pattern.data()), step.pattern.size(),
                            PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
    if (!code) {
      return Error(ErrorCode::kInternal, "a pattern of the pre-tokenizer '" +
                                             std::string(kind.name) + "' is wrong at byte " +
                                             std::to_string(offset));
    }
    // Where there is no JIT the interpreter does the same, slower.
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
    made->steps_.push_back({step.kind, std::move(code)});
  }
  return std::unique_ptr<const Pretokenizer>(std::move(made));
}

Result<std::vector<std::string_view>> Pretokenizer::split(std::string_view text) const {
  Words words{text};
  Words next;
  const Match match(pcre2_match_data_create(1, nullptr));
  if (!match)
    return Error(ErrorCode::kResourceExhausted, "there is no memory left to split a text");
  for (const Step& step : steps_) {
    next.clear();
    for (const std::string_view word : words) INFERD_TRY(step.split(word, match.get(), next));
    words.swap(next);
  }
  return words;
}

}  // namespace inferd::text
