#include "tools/inferctl/arguments.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>

namespace inferd::inferctl {
namespace {

const OptionSpec* find_option(std::span<const OptionSpec> options, std::string_view name) {
  for (const OptionSpec& option : options) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

Error unknown_option(std::string_view name, std::span<const OptionSpec> options) {
  std::vector<std::string_view> names;
  for (const OptionSpec& option : options) names.push_back(option.name);
  const std::string_view near = nearest_name(name, names);
  std::string sentence = "there is no option --" + std::string(name);
  sentence += near.empty() ? "; --help lists those there are"
                           : "; did you mean --" + std::string(near) + "?";
  return Error(ErrorCode::kInvalidArgument, sentence);
}

// Steps of typing (insert, delete, replace, swap two neighbours) from one word to another.
// Source: Damerau, "A technique for computer detection and correction of spelling errors", 1964,
// in its restricted form.
size_t typing_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

}  // namespace

bool Arguments::has(std::string_view name) const { return values_.find(name) != values_.end(); }

std::optional<std::string> Arguments::text(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) return std::nullopt;
  return found->second.back();
}

std::vector<std::string> Arguments::texts(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::vector<std::string>() : found->second;
}

Result<uint64_t> Arguments::unsigned_number(std::string_view name, uint64_t fallback, uint64_t min,
                                            uint64_t max) const {
  const std::optional<std::string> typed = text(name);
  if (!typed) return fallback;
  uint64_t value = 0;
  const char* end = typed->data() + typed->size();
  const auto [stop, error] = std::from_chars(typed->data(), end, value);
  if (error != std::errc() || stop != end || value < min || value > max) {
    std::string range = "from " + std::to_string(min);
    if (max != std::numeric_limits<uint64_t>::max()) range += " to " + std::to_string(max);
    return Error(ErrorCode::kInvalidArgument, "--" + std::string(name) + " takes a whole number " +
                                                  range + ", not '" + *typed + "'");
  }
  return value;
}

Result<int64_t> Arguments::whole_number(std::string_view name, int64_t fallback, int64_t min,
                                        int64_t max) const {
  const std::optional<std::string> typed = text(name);
  if (!typed) return fallback;
  int64_t value = 0;
  const char* end = typed->data() + typed->size();
  const auto [stop, error] = std::from_chars(typed->data(), end, value);
  if (error == std::errc() && stop == end && value >= min && value <= max) return value;
  return Error(ErrorCode::kInvalidArgument,
               "--" + std::string(name) + " takes a whole number from " + std::to_string(min) +
                   " to " + std::to_string(max) + ", not '" + *typed + "'");
}

Result<double> Arguments::decimal(std::string_view name, double fallback, double min,
                                  double max) const {
  const std::optional<std::string> typed = text(name);
  if (!typed) return fallback;
  double value = 0;
  const char* end = typed->data() + typed->size();
  const auto [stop, error] = std::from_chars(typed->data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value) || value < min || value > max) {
    char range[64];
    std::snprintf(range, sizeof range, "from %g to %g", min, max);
    return Error(ErrorCode::kInvalidArgument,
                 "--" + std::string(name) + " takes a number " + range + ", not '" + *typed + "'");
  }
  return value;
}

Result<Arguments> parse_arguments(std::span<const std::string> words,
                                  std::span<const OptionSpec> options) {
  Arguments arguments;
  bool options_ended = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (options_ended || word == "-" || !word.starts_with('-')) {
      arguments.positionals_.push_back(word);
      continue;
    }
    if (word == "--") {
      options_ended = true;
      continue;
    }
    if (!word.starts_with("--")) {
      return Error(ErrorCode::kInvalidArgument,
                   "'" + word +
                       "' is no option (they begin with two dashes); to pass it as a text, " +
                       "write -- before it");
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    const OptionSpec* option = find_option(options, name);
    if (option == nullptr) return unknown_option(name, options);
    std::vector<std::string>& values = arguments.values_[name];
    if (!values.empty() && !option->repeats) {
      return Error(ErrorCode::kInvalidArgument, "--" + name + " is given twice; give it once");
    }
    if (option->value.empty()) {
      if (equals != std::string::npos) {
        return Error(ErrorCode::kInvalidArgument, "--" + name + " takes no value");
      }
      values.emplace_back();
    } else if (equals != std::string::npos) {
      values.push_back(word.substr(equals + 1));
    } else if (i + 1 < words.size()) {
      values.push_back(words[++i]);
    } else {
      return Error(ErrorCode::kInvalidArgument,
                   "--" + name + " needs a value: --" + name + " " + std::string(option->value));
    }
  }
  return arguments;
}

std::string describe_options(std::span<const OptionSpec> options) {
  const auto left_side = [](const OptionSpec& option) {
    std::string text = "  --" + std::string(option.name);
    if (!option.value.empty()) text += " " + std::string(option.value);
    return text;
  };
  size_t width = 0;
  for (const OptionSpec& option : options) width = std::max(width, left_side(option).size());
  std::string text;
  for (const OptionSpec& option : options) {
    std::string line = left_side(option);
    line.resize(width + 2, ' ');
    text += line + std::string(option.help) + "\n";
  }
  return text;
}

std::string_view nearest_name(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  // More than a third of the letters wrong is another word, not a mistake.
  size_t best_distance = std::max<size_t>(word.size() / 3, 1) + 1;
  for (const std::string_view candidate : candidates) {
    const size_t distance = typing_distance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

Result<std::vector<int32_t>> parse_ids(std::string_view text) {
  constexpr std::string_view kBetween = " \t\r\n,";
  std::string_view rest = text;
  const auto trim = [&] {
    const size_t first = rest.find_first_not_of(kBetween);
    rest.remove_prefix(std::min(first, rest.size()));
  };
  trim();
  const bool bracketed = rest.starts_with('[');
  if (bracketed) rest.remove_prefix(1);
  std::vector<int32_t> ids;
  for (trim(); !rest.empty(); trim()) {
    if (bracketed && rest.front() == ']') {
      const std::string_view after = rest.substr(1);
      if (after.find_first_not_of(kBetween) == std::string_view::npos) return ids;
    }
    const std::string_view piece = rest.substr(0, rest.find_first_of(" \t\r\n,]"));
    int32_t id = 0;
    const auto [stop, error] = std::from_chars(piece.data(), piece.data() + piece.size(), id);
    if (piece.empty() || error != std::errc() || stop != piece.data() + piece.size() || id < 0) {
      return Error(ErrorCode::kInvalidArgument,
                   "'" + std::string(piece.empty() ? rest.substr(0, 1) : piece) +
                       "' is not a token id; ids are whole numbers, separated by commas or spaces");
    }
    ids.push_back(id);
    rest.remove_prefix(piece.size());
  }
  if (bracketed) {
    return Error(ErrorCode::kInvalidArgument, "the list of token ids lacks its closing ]");
  }
  return ids;
}

}  // namespace inferd::inferctl
