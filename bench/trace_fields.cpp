#include "bench/trace_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace inferd::bench {

namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr double kSecondsMax = 1e9;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

// Takes `digits` digits from the front.
std::optional<int64_t> take_digits(std::string_view& text, size_t digits) {
  if (text.size() < digits) return std::nullopt;
  int64_t value = 0;
  for (char c : text.substr(0, digits)) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  text.remove_prefix(digits);
  return value;
}

bool take(std::string_view& text, std::string_view any_of) {
  if (text.empty() || any_of.find(text.front()) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return true;
}

// Days from 1970-01-01 in the Gregorian calendar. The year is counted from March, so that the leap
// day is its last one.
int64_t days_since_1970(int64_t year, int64_t month, int64_t day) {
  if (month <= 2) --year;
  const int64_t month_of_year = month > 2 ? month - 3 : month + 9;
  const int64_t day_of_year = (153 * month_of_year + 2) / 5 + day - 1;
  constexpr int64_t kDaysTo1970 = 719'468;  // from 0000-03-01
  return year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - kDaysTo1970;
}

int64_t days_in_month(int64_t year, int64_t month) {
  const bool december = month == 12;
  return days_since_1970(december ? year + 1 : year, december ? 1 : month + 1, 1) -
         days_since_1970(year, month, 1);
}

// ".9799600" and what may stand behind it.
std::optional<int64_t> parse_fraction(std::string_view text) {
  int64_t fraction_ns = 0;
  if (take(text, ".")) {
    int64_t unit_ns = kSecondNs;
    while (!text.empty() && text.front() >= '0' && text.front() <= '9') {
      unit_ns /= 10;
      if (unit_ns == 0) return std::nullopt;
      fraction_ns += (text.front() - '0') * unit_ns;
      text.remove_prefix(1);
    }
  }
  if (!text.empty() && text != "Z" && text != "+00:00") return std::nullopt;
  return fraction_ns;
}

}  // namespace

std::optional<uint64_t> parse_count(std::string_view text, uint64_t max) {
  text = trimmed(text);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > max) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_seconds(std::string_view text) {
  text = trimmed(text);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (!(value >= 0 && value <= kSecondsMax)) return std::nullopt;
  return static_cast<int64_t>(std::llround(value * 1e9));
}

std::optional<int64_t> parse_date(std::string_view text) {
  text = trimmed(text);
  const auto year = take_digits(text, 4);
  if (!year || !take(text, "-") || *year < 1970 || *year > 2199) return std::nullopt;
  const auto month = take_digits(text, 2);
  if (!month || !take(text, "-") || *month < 1 || *month > 12) return std::nullopt;
  const auto day = take_digits(text, 2);
  if (!day || !take(text, " T") || *day < 1 || *day > days_in_month(*year, *month)) {
    return std::nullopt;
  }
  const auto hour = take_digits(text, 2);
  if (!hour || !take(text, ":") || *hour > 23) return std::nullopt;
  const auto minute = take_digits(text, 2);
  if (!minute || !take(text, ":") || *minute > 59) return std::nullopt;
  const auto second = take_digits(text, 2);
  if (!second || *second > 59) return std::nullopt;
  const auto fraction_ns = parse_fraction(text);
  if (!fraction_ns) return std::nullopt;
  const int64_t days = days_since_1970(*year, *month, *day);
  return (((days * 24 + *hour) * 60 + *minute) * 60 + *second) * kSecondNs + *fraction_ns;
}

void split_csv(std::string_view line, std::vector<std::string_view>& fields) {
  fields.clear();
  while (true) {
    const size_t comma = line.find(',');
    std::string_view field = trimmed(line.substr(0, comma));
    if (field.size() >= 2 && field.front() == '"' && field.back() == '"') {
      field = field.substr(1, field.size() - 2);
    }
    fields.push_back(field);
    if (comma == std::string_view::npos) return;
    line.remove_prefix(comma + 1);
  }
}

std::string shown(std::string_view text) {
  constexpr size_t kShownMax = 40;
  std::string out(text.substr(0, kShownMax));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  if (text.size() > kShownMax) out += "...";
  return out;
}

}  // namespace inferd::bench
