#include "text/byte_alphabet.h"

#include <array>
#include <cstdint>

namespace inferd::text {

namespace {

// Visible Latin-1 bytes stand for themselves; the others, in order, are U+0100, U+0101, ...
constexpr bool is_visible(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

constexpr uint32_t kAlphabetEnd = 0x144;  // U+0100 plus the 68 bytes that are not visible

// Code point to byte, or -1.
constexpr std::array<int16_t, kAlphabetEnd> make_bytes() {
  std::array<int16_t, kAlphabetEnd> bytes{};
  for (int16_t& byte : bytes) byte = -1;
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    bytes[is_visible(byte) ? byte : next++] = static_cast<int16_t>(byte);
  }
  return bytes;
}
constexpr auto kBytes = make_bytes();

}  // namespace

std::optional<std::string> bytes_of_printable(std::string_view printable) {
  std::string bytes;
  bytes.reserve(printable.size());
  for (size_t i = 0; i < printable.size();) {
    const auto lead = static_cast<uint8_t>(printable[i]);
    uint32_t code = lead;
    size_t length = 1;
    if (lead >= 0x80) {
      if ((lead & 0xe0) != 0xc0 || i + 1 >= printable.size()) return std::nullopt;
      const auto next = static_cast<uint8_t>(printable[i + 1]);
      if ((next & 0xc0) != 0x80) return std::nullopt;
      code = (lead & 0x1fu) << 6 | (next & 0x3fu);
      length = 2;
    }
    if (code >= kAlphabetEnd || kBytes[code] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kBytes[code]));
    i += length;
  }
  return bytes;
}

}  // namespace inferd::text
