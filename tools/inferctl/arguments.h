// Command lines by table: a command names its options once, and parsing, checking and help follow.
// Owner: inferctl. One thread. Must not know what any option means.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace inferd::inferctl {

// One option: `--name`, or `--name VALUE` (also `--name=VALUE`) if `value` is not empty.
struct OptionSpec {
  std::string_view name;   // "max-tokens", without the dashes
  std::string_view value;  // "N": what the help calls the value; empty for a switch
  std::string_view help;   // half a sentence
  bool repeats = false;    // may be given several times
};

// What was typed, checked against a table. Getters take a name from that table.
class Arguments {
 public:
  bool has(std::string_view name) const;
  // The last value given, or nothing.
  std::optional<std::string> text(std::string_view name) const;
  // Every value given, in order.
  std::vector<std::string> texts(std::string_view name) const;
  const std::vector<std::string>& positionals() const { return positionals_; }

  // A whole number or a decimal one within [min, max], or `fallback` if the option was not given.
  // Errors: kInvalidArgument with the range.
  Result<uint64_t> unsigned_number(std::string_view name, uint64_t fallback, uint64_t min,
                                   uint64_t max) const;
  Result<int64_t> whole_number(std::string_view name, int64_t fallback, int64_t min,
                               int64_t max) const;
  Result<double> decimal(std::string_view name, double fallback, double min, double max) const;

 private:
  friend Result<Arguments> parse_arguments(std::span<const std::string> words,
                                           std::span<const OptionSpec> options);
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
  std::vector<std::string> positionals_;
};

// Sorts words into options and positionals. `--` ends the options; a lone `-` is a positional.
// Errors: kInvalidArgument for an unknown option (naming the nearest known one), a missing or
// unwanted value, an option given twice that may not repeat.
Result<Arguments> parse_arguments(std::span<const std::string> words,
                                  std::span<const OptionSpec> options);

// One line per option, aligned, for a command's help.
std::string describe_options(std::span<const OptionSpec> options);

// The candidate that a typing mistake in `word` most likely meant, or "" if none is near.
std::string_view nearest_name(std::string_view word, std::span<const std::string_view> candidates);

// "1,2,3" or "1 2 3" or "[1, 2, 3]" to token ids. Errors: kInvalidArgument naming the bad piece.
Result<std::vector<int32_t>> parse_ids(std::string_view text);

}  // namespace inferd::inferctl
