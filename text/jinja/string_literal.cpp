#include "text/jinja/string_literal.h"

#include <charconv>

#include "text/jinja/unicode.h"

namespace inferd::jinja {
namespace {

Error bad_escape(std::string_view escape, std::string_view why) {
  return Error(ErrorCode::kDataCorrupt,
               "the escape " + std::string(escape) + " in a string " + std::string(why));
}

// `count` hexadecimal digits at `at`.
Result<char32_t> hexadecimal(std::string_view body, size_t at, size_t count) {
  const std::string_view digits = body.substr(at, count);
  uint32_t value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (digits.size() < count || parsed.ptr != digits.data() + count) {
    return bad_escape(body.substr(at - 2, count + 2), "has too few digits");
  }
  if (value >= 0x110000 || (value >= 0xD800 && value < 0xE000)) {
    return bad_escape(body.substr(at - 2, count + 2), "names no character");
  }
  return static_cast<char32_t>(value);
}

// The character of a one-letter escape, or 0.
char simple_escape(char letter) {
  switch (letter) {
    case '\\':
    case '\'':
    case '"':
      return letter;
    case 'n':
      return '\n';
    case 't':
      return '\t';
    case 'r':
      return '\r';
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'v':
      return '\v';
    case 'a':
      return '\a';
    default:
      return 0;
  }
}

}  // namespace

Result<std::string> unescape_literal(std::string_view body) {
  std::string result;
  result.reserve(body.size());
  for (size_t i = 0; i < body.size();) {
    if (body[i] != '\\' || i + 1 >= body.size()) {
      result.push_back(body[i++]);
      continue;
    }
    const char letter = body[i + 1];
    if (const char plain = simple_escape(letter)) {
      result.push_back(plain);
      i += 2;
    } else if (letter == '\n') {
      i += 2;
    } else if (letter == 'x' || letter == 'u' || letter == 'U') {
      const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
      INFERD_ASSIGN(const char32_t character, hexadecimal(body, i + 2, digits));
      append_utf8(&result, character);
      i += 2 + digits;
    } else if (letter >= '0' && letter <= '7') {
      char32_t character = 0;
      size_t end = i + 1;
      for (; end < body.size() && end < i + 4 && body[end] >= '0' && body[end] <= '7'; ++end) {
        character = character * 8 + static_cast<char32_t>(body[end] - '0');
      }
      append_utf8(&result, character);
      i = end;
    } else if (letter == 'N') {
      return bad_escape("\\N", "names a character, which is not supported; use \\u");
    } else {
      // Not an escape: the backslash stays. Jinja2 first spells non-ASCII characters as escapes,
      // whose backslash then pairs with this one.
      result.push_back('\\');
      ++i;
      if (static_cast<unsigned char>(letter) < 0x80) continue;
      const char32_t character = next_character(body, &i);
      char digits[16];
      const auto printed =
          std::to_chars(digits, digits + sizeof(digits), static_cast<uint32_t>(character), 16);
      const std::string hex(digits, printed.ptr);
      const size_t width = character < 0x100 ? 2 : character < 0x10000 ? 4 : 8;
      result.push_back(width == 2 ? 'x' : width == 4 ? 'u' : 'U');
      result.append(width - hex.size(), '0').append(hex);
    }
  }
  return result;
}

}  // namespace inferd::jinja
