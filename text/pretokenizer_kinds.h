// The pre-tokenizers of byte-level and character BPE by the name that a model file gives them, each as
// a list of splitting steps.
// Owner: text, private to it. Constant data, any thread. Must not know vocabularies.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace inferd::text {

enum class StepKind : uint8_t {
  // Every match is a piece, and so is everything between two matches.
  kMatches,
  // The pattern finds runs of digits; each is cut into threes counted from its end, its first group
  // staying with the text before the run.
  kTriples,
  // The same, but a run whose length is a multiple of three is cut from the text before it as well.
  kIsolatedTriples,
};

// A step cuts every piece that the step before it left; a pattern never sees beyond its piece.
struct SplitStep {
  StepKind kind;
  std::string_view pattern;  // PCRE2, UTF and UCP
};

struct PretokenizerKind {
  std::string_view name;
  std::span<const SplitStep> steps;
  bool ignore_merges = false;  // a word that is a token is that token, whatever the merges say
  bool characters = false;     // works on characters with "▁" for a space, not on bytes
  bool metaspace = false;      // each "▁" starts a word, and each line starts with one
};

// Null for a name that is not known. The empty name means "default".
const PretokenizerKind* find_pretokenizer(std::string_view name) noexcept;
std::span<const PretokenizerKind> all_pretokenizers() noexcept;

}  // namespace inferd::text
