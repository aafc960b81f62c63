// Case of whole texts, with the origin of each byte kept.
// Owner: text/jinja. Pure functions.
#pragma once

#include "text/jinja/origin_text.h"

namespace inferd::jinja {

enum class CaseMapping : uint8_t {
  kUpper,       // str.upper
  kLower,       // str.lower, a sigma at a word's end included
  kTitle,       // str.title: a capital after every character without case
  kCapitalize,  // str.capitalize: one capital at the beginning
  kSwap,        // str.swapcase
};

OriginText map_case(const OriginText& text, CaseMapping mapping);

}  // namespace inferd::jinja
