// UTF-8, one unit at a time: a whole character, or bytes that are none.
// Owner: text, private to it. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace inferd::text {

struct Utf8Unit {
  enum class Kind { kCharacter, kInvalid, kIncomplete };
  Kind kind;
  size_t bytes;  // of a character; else of the longest start of one (at least 1)
};

// What `bytes`, which is not empty, begins with. Source: the Unicode Standard,
// table 3-7 (well-formed UTF-8) and "U+FFFD substitution of maximal subparts".
// kIncomplete: the bytes end before the character does.
Utf8Unit next_utf8_unit(std::string_view bytes) noexcept;

// The text as byte-level BPE sees it: overlong forms and surrogates rewritten
// as the code point that they spell, U+FFFD for each byte that starts nothing.
std::string canonical_utf8(std::string_view text);

}  // namespace inferd::text
