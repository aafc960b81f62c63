// Cuts a text into words by a pre-tokenizer's splitting steps.
// Owner: text, private to it. Immutable once compiled; split() may be called by
// several threads at once. Must not know tokens.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/pretokenizer_kinds.h"

namespace inferd::text {

class Pretokenizer {
 public:
  // Compiles the patterns of `kind`. Errors: kInternal for a pattern that PCRE2
  // does not take.
  static Result<std::unique_ptr<const Pretokenizer>> compile(const PretokenizerKind& kind);
  ~Pretokenizer();

  // The words of `text` (UTF-8, see canonical_utf8), in order and without gaps;
  // views into it. Errors: kResourceExhausted for a text beyond what the
  // pattern matcher can take.
  Result<std::vector<std::string_view>> split(std::string_view text) const;

 private:
  struct Step;
  Pretokenizer();
  std::vector<Step> steps_;
};

}  // namespace inferd::text
