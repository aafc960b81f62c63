// Single fields of a trace's line: numbers, times, names.
// Owner: trace_reader.cpp. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace inferd::bench {

// A whole number up to `max`, and nothing else but spaces around it.
std::optional<uint64_t> parse_count(std::string_view text, uint64_t max);
// Seconds, 0 to 1e9, in nanoseconds.
std::optional<int64_t> parse_seconds(std::string_view text);
// "2023-11-16 18:17:03.9799600", from 1970 to 2199, in nanoseconds since 1970. Up to nine decimals,
// "T" for the space, "Z" or "+00:00" behind it are all right; other time zones are not.
std::optional<int64_t> parse_date(std::string_view text);

// Cuts at the commas; a field in double quotes loses them.
void split_csv(std::string_view line, std::vector<std::string_view>& fields);

// For a sentence: at most 40 characters, those that do not print as '?'.
std::string shown(std::string_view text);

}  // namespace inferd::bench
