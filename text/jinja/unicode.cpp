// Case and printability come from the C library's tables of the locale C.UTF-8, which glibc carries
// built in; letters and digits from PCRE2's properties, because C's classes count marks as letters.
#include "text/jinja/unicode.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <locale.h>
#include <pcre2.h>
#include <wctype.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "base/check.h"

namespace inferd::jinja {
namespace {

struct SpecialUpper {
  char32_t character;
  std::array<char32_t, 3> upper;  // filled up with 0
};

constexpr SpecialUpper kSpecialUpper[] = {
#include "text/jinja/unicode_special.inc"
};

const SpecialUpper* special_upper(char32_t character) {
  const auto* found = std::lower_bound(
      std::begin(kSpecialUpper), std::end(kSpecialUpper), character,
      [](const SpecialUpper& entry, char32_t wanted) { return entry.character < wanted; });
  return found != std::end(kSpecialUpper) && found->character == character ? found : nullptr;
}

// Never freed: it lives as long as the process, like the tables that it names.
locale_t utf8_locale() {
  static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  INFERD_CHECK(locale != nullptr);
  return locale;
}

// A pattern for exactly one character; never freed, for the same reason.
class Property {
 public:
  explicit Property(const char* pattern) {
    int error = 0;
    size_t offset = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern), PCRE2_ZERO_TERMINATED,
                          PCRE2_UTF | PCRE2_ANCHORED, &error, &offset, nullptr);
    INFERD_CHECK(code_ != nullptr);
  }
  bool holds(char32_t character) const {
    std::string text;
    append_utf8(&text, character);
    pcre2_match_data* match = pcre2_match_data_create(1, nullptr);
    const int found = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                                  PCRE2_NO_UTF_CHECK, match, nullptr);
    pcre2_match_data_free(match);
    return found >= 0;
  }

 private:
  pcre2_code* code_;
};

bool is_ascii_letter(char32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_ascii_digit(char32_t c) { return c >= '0' && c <= '9'; }

wint_t wide(char32_t character) { return static_cast<wint_t>(character); }

}  // namespace

bool is_utf8(std::string_view text) {
  const auto* at = reinterpret_cast<const unsigned char*>(text.data());
  const auto* const end = at + text.size();
  while (at < end) {
    const unsigned char lead = *at++;
    if (lead < 0x80) continue;
    int more = 0;
    unsigned char low = 0x80;   // bounds of the second byte exclude overlong forms,
    unsigned char high = 0xBF;  // surrogates and what lies past U+10FFFF
    if (lead >= 0xC2 && lead <= 0xDF) {
      more = 1;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
      more = 2;
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
      more = 3;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    } else {
      return false;
    }
    for (; more > 0; --more, low = 0x80, high = 0xBF) {
      if (at == end || *at < low || *at > high) return false;
      ++at;
    }
  }
  return true;
}

char32_t next_character(std::string_view text, size_t* position) {
  INFERD_DCHECK(*position < text.size());
  const auto byte = [text](size_t at) { return static_cast<unsigned char>(text[at]); };
  const char32_t lead = byte((*position)++);
  if (lead < 0x80) return lead;
  int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  char32_t character = lead & (0x3Fu >> more);
  for (; more > 0 && *position < text.size(); --more) {
    character = (character << 6) | (byte((*position)++) & 0x3Fu);
  }
  return character;
}

void append_utf8(std::string* out, char32_t c) {
  const auto put = [out](char32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    INFERD_CHECK(c < 0x110000);
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  }));
}

size_t byte_of_character(std::string_view text, size_t index) {
  size_t position = 0;
  while (index > 0 && position < text.size()) {
    next_character(text, &position);
    --index;
  }
  return position;
}

size_t previous_character(std::string_view text, size_t position) {
  INFERD_DCHECK(position > 0 && position <= text.size());
  --position;
  while (position > 0 && (static_cast<unsigned char>(text[position]) & 0xC0) == 0x80) --position;
  return position;
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool is_printable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7F;
  if (is_space(c) || iswprint_l(wide(c), utf8_locale()) == 0) return false;
  // Format and private-use characters, which C calls printable.
  static const Property hidden("[\\p{Cf}\\p{Co}]");
  return !hidden.holds(c);
}

bool is_title(char32_t c) {
  return c == 0x1C5 || c == 0x1C8 || c == 0x1CB || c == 0x1F2 || (c >= 0x1F88 && c <= 0x1F8F) ||
         (c >= 0x1F98 && c <= 0x1F9F) || (c >= 0x1FA8 && c <= 0x1FAF) || c == 0x1FBC ||
         c == 0x1FCC || c == 0x1FFC;
}

bool is_upper(char32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z';
  return !is_title(c) && iswupper_l(wide(c), utf8_locale()) != 0;
}

bool is_lower(char32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z';
  return !is_title(c) && iswlower_l(wide(c), utf8_locale()) != 0;
}

bool is_letter(char32_t c) {
  if (c < 0x80) return is_ascii_letter(c);
  static const Property letter("\\p{L}");
  return letter.holds(c);
}

bool is_decimal(char32_t c) {
  if (c < 0x80) return is_ascii_digit(c);
  static const Property decimal("\\p{Nd}");
  return decimal.holds(c);
}

bool is_numeric(char32_t c) {
  if (c < 0x80) return is_ascii_digit(c);
  static const Property numeric("\\p{N}");
  return numeric.holds(c);
}

void append_upper(std::string* out, char32_t c) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c));
    return;
  }
  if (const SpecialUpper* special = special_upper(c)) {
    for (const char32_t part : special->upper) {
      if (part != 0) append_utf8(out, part);
    }
    return;
  }
  append_utf8(out, towupper_l(wide(c), utf8_locale()));
}

void append_lower(std::string* out, char32_t c) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  } else if (c == 0x130) {  // capital I with dot: the one whose lower case is two characters
    out->append("i\xCC\x87");
  } else {
    append_utf8(out, towlower_l(wide(c), utf8_locale()));
  }
}

void append_title(std::string* out, char32_t c) {
  // The four Croatian digraphs have a title case of their own; so do letters with iota subscript.
  if (c == 0x1C4 || c == 0x1C6) return append_utf8(out, 0x1C5);
  if (c == 0x1C7 || c == 0x1C9) return append_utf8(out, 0x1C8);
  if (c == 0x1CA || c == 0x1CC) return append_utf8(out, 0x1CB);
  if (c == 0x1F1 || c == 0x1F3) return append_utf8(out, 0x1F2);
  if (is_title(c) || (c >= 0x10D0 && c <= 0x10FF)) return append_utf8(out, c);  // Georgian stays
  const SpecialUpper* special = special_upper(c);
  if (special == nullptr) return append_upper(out, c);
  if (c >= 0x1F80 && c <= 0x1FFF) {
    // Of a Greek letter with iota subscript the iota stays small or below.
    if (c <= 0x1FAF) return append_utf8(out, c | 8u);
    if (c == 0x1FB3 || c == 0x1FC3 || c == 0x1FF3) return append_utf8(out, c + 9);
  }
  append_utf8(out, special->upper[0]);
  for (size_t i = 1; i < special->upper.size(); ++i) {
    const char32_t part = special->upper[i];
    if (part == 0) continue;
    if (part == 0x399) {
      append_utf8(out, 0x345);  // iota subscript
    } else {
      append_lower(out, part);
    }
  }
}

}  // namespace inferd::jinja
