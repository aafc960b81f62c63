#include "text/jinja/case_mapping.h"

#include "text/jinja/unicode.h"

namespace inferd::jinja {
namespace {

constexpr char32_t kCapitalSigma = 0x3A3;
constexpr char32_t kSmallSigma = 0x3C3;
constexpr char32_t kFinalSigma = 0x3C2;

bool has_case(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

// Marks and punctuation that Unicode ignores when it looks for the end of a word. The common ones.
bool is_case_ignorable(char32_t c) {
  return c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xA8 || c == 0xAD ||
         c == 0xAF || c == 0xB4 || c == 0xB7 || c == 0xB8 || (c >= 0x2B0 && c <= 0x36F) ||
         c == 0x2018 || c == 0x2019;
}

// Whether the sigma in [begin, end) ends a word: a letter with case before it and none behind.
bool is_final(std::string_view text, size_t begin, size_t end) {
  bool before = false;
  for (size_t at = begin; at > 0;) {
    at = previous_character(text, at);
    size_t next = at;
    const char32_t c = next_character(text, &next);
    if (is_case_ignorable(c)) continue;
    before = has_case(c);
    break;
  }
  if (!before) return false;
  for (size_t at = end; at < text.size();) {
    const char32_t c = next_character(text, &at);
    if (!is_case_ignorable(c)) return !has_case(c);
  }
  return true;
}

void append_lower_in(std::string* out, std::string_view text, size_t begin, size_t end,
                     char32_t c) {
  if (c == kCapitalSigma) {
    append_utf8(out, is_final(text, begin, end) ? kFinalSigma : kSmallSigma);
  } else {
    append_lower(out, c);
  }
}

}  // namespace

OriginText map_case(const OriginText& text, CaseMapping mapping) {
  const std::string_view whole = text.view();
  OriginText result("", text.overall());
  result.reserve(whole.size());
  bool after_letter = false;  // the character before has case
  size_t offset = 0;
  text.for_each_run(0, text.size(), [&](std::string_view run, Origin origin) {
    std::string out;
    out.reserve(run.size());
    for (size_t at = 0; at < run.size();) {
      const size_t begin = offset + at;
      const char32_t c = next_character(run, &at);
      const size_t end = offset + at;
      const bool lowers = mapping == CaseMapping::kLower ||
                          (mapping == CaseMapping::kTitle && after_letter) ||
                          (mapping == CaseMapping::kCapitalize && begin > 0) ||
                          (mapping == CaseMapping::kSwap && is_upper(c));
      if (lowers) {
        append_lower_in(&out, whole, begin, end, c);
      } else if (mapping == CaseMapping::kUpper) {
        append_upper(&out, c);
      } else if (mapping == CaseMapping::kSwap) {
        is_lower(c) ? append_upper(&out, c) : append_utf8(&out, c);
      } else {
        append_title(&out, c);
      }
      if (mapping == CaseMapping::kTitle) after_letter = has_case(c);
    }
    offset += run.size();
    result.append(out, origin);
  });
  return result;
}

}  // namespace inferd::jinja
