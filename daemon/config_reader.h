// Walks a parsed TOML document against the table of keys. Private to config.cpp and its tests.
// Owner: daemon. Pure, any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "daemon/config_schema.h"

namespace inferd::daemon {

// A scalar of the document or the command line; kOther stands for tables, arrays and dates.
struct OtherValue {
  std::string kind;  // "an array"
};
using ConfigValue = std::variant<std::string, int64_t, double, bool, OtherValue>;

// Stores `value` where `spec` says. Returns the complaint ("expected …, got …"), if any; then nothing
// was changed.
std::optional<std::string> store_value(const KeySpec& spec, const ConfigValue& value,
                                       Config& config);

// "30", "30 s", "500ms", "2 min", "1 h" to milliseconds.
std::optional<uint64_t> parse_duration_ms(std::string_view text);

// What to say about a name that no table has: "unknown key 'step_token' in [scheduler]; did you mean
// 'step_tokens'?".
std::string unknown_key_message(std::string_view section, std::string_view key);
std::string unknown_section_message(std::string_view section);

// Insertions, deletions, substitutions and swaps of neighbours between two words.
size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace inferd::daemon
