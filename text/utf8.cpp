#include "text/utf8.h"

#include <cstdint>

namespace inferd::text {
namespace {

uint8_t byte_at(std::string_view bytes, size_t index) { return static_cast<uint8_t>(bytes[index]); }

bool continues(std::string_view bytes, size_t index) {
  return index < bytes.size() && (byte_at(bytes, index) & 0xC0) == 0x80;
}

void append_code_point(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (code >> 18));
    out += static_cast<char>(0x80 | ((code >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

}  // namespace

Utf8Unit next_utf8_unit(std::string_view bytes) noexcept {
  using Kind = Utf8Unit::Kind;
  const uint8_t lead = byte_at(bytes, 0);
  if (lead < 0x80) return {Kind::kCharacter, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Kind::kInvalid, 1};
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates, and what lies
  // above U+10FFFF.
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (i == bytes.size()) return {Kind::kIncomplete, i};
    const uint8_t byte = byte_at(bytes, i);
    const bool fits = i == 1 ? byte >= low && byte <= high : (byte & 0xC0) == 0x80;
    if (!fits) return {Kind::kInvalid, i};
  }
  return {Kind::kCharacter, length};
}

std::string canonical_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const uint8_t lead = byte_at(rest, 0);
    if (lead < 0x80) {
      out += rest[0];
      ++at;
      continue;
    }
    const size_t length = lead >= 0xF0 && lead < 0xF8 ? 4 : lead >= 0xE0 ? 3 : 2;
    bool whole = lead >= 0xC0 && lead < 0xF8;
    uint32_t code = lead & (0x7Fu >> length);
    for (size_t i = 1; whole && i < length; ++i) {
      whole = continues(rest, i);
      if (whole) code = code << 6 | (byte_at(rest, i) & 0x3F);
    }
    if (whole && code <= 0x10FFFF) {
      append_code_point(out, code);
      at += length;
    } else {
      out += "\xEF\xBF\xBD";
      ++at;
    }
  }
  return out;
}

}  // namespace inferd::text
