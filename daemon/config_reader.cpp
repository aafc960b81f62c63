#include "daemon/config_reader.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/units.h"
#include "daemon/config_domains.h"
#include "daemon/config_users.h"
#include "daemon/config_users.h"
#include "daemon/logging.h"

namespace inferd::daemon {

namespace {

std::string shown(const ConfigValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    return "\"" + printable(*text) + "\"";
  }
  if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  if (const auto* number = std::get_if<double>(&value)) {
    std::string text = std::to_string(*number);
    text.erase(std::max(text.find_last_not_of('0') + 1, text.find('.') + 2));
    return text;
  }
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  return std::get<OtherValue>(value).kind;
}

bool store_count(const KeySpec& spec, const ConfigValue& value, Config& config) {
  const auto* text = std::get_if<std::string>(&value);
  const bool none = (spec.kind == KeyKind::kAutoCount && text != nullptr && *text == "auto") ||
                    (spec.kind == KeyKind::kLimit && text != nullptr && *text == "none");
  if (none) {
    std::get<CountSlot>(spec.slot)(config) = 0;
    return true;
  }
  const auto* integer = std::get_if<int64_t>(&value);
  if (integer == nullptr || *integer < 0) return false;
  const auto count = static_cast<uint64_t>(*integer);
  if (count < spec.low || count > spec.high) return false;
  std::get<CountSlot>(spec.slot)(config) = static_cast<uint32_t>(count);
  return true;
}

bool store_duration(const KeySpec& spec, const ConfigValue& value, Config& config) {
  std::optional<uint64_t> ms;
  if (const auto* text = std::get_if<std::string>(&value)) ms = parse_duration_ms(*text);
  if (const auto* seconds = std::get_if<int64_t>(&value)) {
    if (*seconds >= 0 && *seconds <= 1'000'000'000) ms = static_cast<uint64_t>(*seconds) * 1000;
  }
  if (const auto* seconds = std::get_if<double>(&value)) {
    if (*seconds >= 0 && *seconds <= 1e9) ms = static_cast<uint64_t>(std::llround(*seconds * 1e3));
  }
  if (!ms || *ms < spec.low || *ms > spec.high) return false;
  std::get<CountSlot>(spec.slot)(config) = static_cast<uint32_t>(*ms);
  return true;
}

bool store_size(const KeySpec& spec, const ConfigValue& value, Config& config) {
  Bytes size{0};
  if (const auto* text = std::get_if<std::string>(&value)) {
    if (*text == (spec.kind == KeyKind::kAutoSize ? "auto" : "none")) {
      std::get<SizeSlot>(spec.slot)(config) = Bytes(0);
      return true;
    }
    const Result<Bytes> parsed = parse_bytes(*text);
    if (!parsed) return false;
    size = *parsed;
  } else if (const auto* integer = std::get_if<int64_t>(&value); integer && *integer > 0) {
    size = Bytes(static_cast<uint64_t>(*integer));
  } else {
    return false;
  }
  if (size.value < spec.low || size.value > spec.high) return false;
  std::get<SizeSlot>(spec.slot)(config) = size;
  return true;
}

bool store_text(const KeySpec& spec, const ConfigValue& value, Config& config) {
  const auto* text = std::get_if<std::string>(&value);
  // A NUL would end a path early, where the check of its length saw all of it.
  if (text == nullptr || text->find('\0') != std::string::npos) return false;
  if (spec.kind == KeyKind::kChoice &&
      std::find(spec.choices.begin(), spec.choices.end(), *text) == spec.choices.end()) {
    return false;
  }
  std::get<TextSlot>(spec.slot)(config) = *text;
  return true;
}

bool store_unchecked(const KeySpec& spec, const ConfigValue& value, Config& config) {
  switch (spec.kind) {
    case KeyKind::kText:
    case KeyKind::kChoice: return store_text(spec, value, config);
    case KeyKind::kCount:
    case KeyKind::kAutoCount:
    case KeyKind::kLimit:
      return store_count(spec, value, config);
    case KeyKind::kDuration: return store_duration(spec, value, config);
    case KeyKind::kSizeLimit:
    case KeyKind::kAutoSize: return store_size(spec, value, config);
    case KeyKind::kFlag: {
      const auto* flag = std::get_if<bool>(&value);
      if (flag != nullptr) std::get<FlagSlot>(spec.slot)(config) = *flag;
      return flag != nullptr;
    }
  }
  return false;
}

// The candidate nearest to `word`, if near enough to be what was meant.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  size_t best_distance = word.size() / 3 + 2;
  for (std::string_view candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

}  // namespace

std::optional<std::string> store_value(const KeySpec& spec, const ConfigValue& value,
                                       Config& config) {
  Config changed = config;
  if (!store_unchecked(spec, value, changed)) {
    return "expected " + expectation(spec) + ", got " + shown(value);
  }
  if (spec.check != nullptr) {
    if (std::string expected = spec.check(changed); !expected.empty()) {
      return "expected " + expected + ", got " + shown(value);
    }
  }
  config = std::move(changed);
  return std::nullopt;
}

std::optional<uint64_t> parse_duration_ms(std::string_view text) {
  double number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || !(number >= 0) || number > 1e12) return std::nullopt;
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  struct Unit {
    std::string_view name;
    double ms;
  };
  constexpr std::array<Unit, 8> kUnits{{{"", 1e3}, {"s", 1e3}, {"sec", 1e3}, {"ms", 1},
                                        {"m", 6e4}, {"min", 6e4}, {"h", 3.6e6}, {"d", 8.64e7}}};
  for (const Unit& candidate : kUnits) {
    if (candidate.name == unit) return static_cast<uint64_t>(std::llround(number * candidate.ms));
  }
  return std::nullopt;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  // Names of keys are short; longer input is cut, which only makes it no near match.
  constexpr size_t kWordMax = 64;
  a = a.substr(0, kWordMax);
  b = b.substr(0, kWordMax);
  std::array<std::array<size_t, kWordMax + 1>, kWordMax + 1> cost{};
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t differs = a[i - 1] == b[j - 1] ? 0 : 1;
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + differs});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

std::string unknown_key_message(std::string_view section, std::string_view key) {
  std::vector<std::string_view> here;
  std::string_view elsewhere;
  if (section == "model") {
    for (const ModelKeySpec& spec : model_keys()) here.push_back(spec.key);
  }
  if (section == "cache_domain") here.assign(kCacheDomainKeys.begin(), kCacheDomainKeys.end());
  if (section == "user") here.assign(kUserKeys.begin(), kUserKeys.end());
  for (const KeySpec& spec : config_keys()) {
    if (spec.section == section) here.push_back(spec.key);
    else if (spec.key == key) elsewhere = spec.section;
  }
  std::string message = "unknown key " + quoted(key) + " in [" + std::string(section) + "]";
  if (const std::string_view meant = nearest(key, here); !meant.empty()) {
    return message + "; did you mean " + quoted(meant) + "?";
  }
  if (!elsewhere.empty()) return message + "; it belongs to [" + std::string(elsewhere) + "]";
  message += "; expected one of ";
  for (size_t i = 0; i < here.size(); ++i) message += (i > 0 ? ", " : "") + std::string(here[i]);
  return message;
}

std::string unknown_section_message(std::string_view section) {
  std::vector<std::string_view> sections;
  for (const KeySpec& spec : config_keys()) {
    if (sections.empty() || sections.back() != spec.section) sections.push_back(spec.section);
    if (spec.key == section) {
      return "unknown section or key " + quoted(section) + "; it belongs to [" +
             std::string(spec.section) + "]";
    }
  }
  sections.push_back("model");
  sections.push_back("cache_domain");
  sections.push_back("user");
  std::string message = "unknown section " + quoted(section);
  if (const std::string_view meant = nearest(section, sections); !meant.empty()) {
    return message + "; did you mean " + quoted(meant) + "?";
  }
  message += "; expected one of ";
  for (size_t i = 0; i < sections.size(); ++i) {
    message += (i > 0 ? ", " : "") + std::string(sections[i]);
  }
  return message;
}

}  // namespace inferd::daemon
