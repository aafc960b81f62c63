#include "base/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace inferd {

namespace {

struct Unit {
  std::string_view name;
  uint64_t bytes;
};
constexpr std::array<Unit, 14> kUnits{{{"", 1},
                                       {"B", 1},
                                       {"K", 1ull << 10},
                                       {"KiB", 1ull << 10},
                                       {"M", 1ull << 20},
                                       {"MiB", 1ull << 20},
                                       {"G", 1ull << 30},
                                       {"GiB", 1ull << 30},
                                       {"T", 1ull << 40},
                                       {"TiB", 1ull << 40},
                                       {"kB", 1000},
                                       {"MB", 1000 * 1000},
                                       {"GB", 1000 * 1000 * 1000},
                                       {"TB", 1000ull * 1000 * 1000 * 1000}}};

Error bad_size(std::string_view text) {
  return Error(ErrorCode::kInvalidArgument,
               "'" + std::string(text) +
                   "' is not a size; write a number with an optional unit B, K, M, G, T, KiB, MiB, "
                   "GiB, TiB, kB, MB, GB or TB, for example \"2 GiB\"");
}

}  // namespace

Result<Bytes> parse_bytes(std::string_view text) {
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || !(number >= 0) || !std::isfinite(number)) return bad_size(text);
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  for (const Unit& candidate : kUnits) {
    if (candidate.name != unit) continue;
    const double bytes = number * static_cast<double>(candidate.bytes);
    if (bytes >= 0x1.0p63) return bad_size(text);
    return Bytes(static_cast<uint64_t>(bytes));
  }
  return bad_size(text);
}

std::string format_bytes(Bytes bytes) {
  constexpr std::array<const char*, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes.value);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 40> text{};
  const bool whole = unit == 0 || value >= 100 || value == std::floor(value);
  std::snprintf(text.data(), text.size(), whole ? "%.0f %s" : "%.1f %s", value, kNames[unit]);
  return text.data();
}

}  // namespace inferd
