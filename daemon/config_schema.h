// The table of configuration keys: name, kind, range, explanation, and where the value lives in Config.
// Owner: daemon (config.cpp and the documentation test only). Immutable, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "daemon/config.h"

namespace inferd::daemon {

// Where a key's value lives. The alternative tells its kind as well.
using TextSlot = std::string& (*)(Config&);
using CountSlot = uint32_t& (*)(Config&);
using SizeSlot = Bytes& (*)(Config&);
using FlagSlot = bool& (*)(Config&);

enum class KeyKind {
  kText,         // any string that `check` accepts
  kChoice,       // one of `choices`
  kCount,        // an integer within [low, high]
  kAutoCount,    // the same, or "auto" (stored as 0)
  kLimit,        // the same, or "none" (stored as 0)
  kDuration,     // seconds, or a string such as "500 ms"; stored in milliseconds, within [low, high]
  kAutoSize,     // "auto" (stored as 0) or bytes such as "2 GiB", within [low, high]
  kSizeLimit,    // the same with "none" in the place of "auto"
  kFlag,         // true or false
};

struct KeySpec {
  std::string_view section;
  std::string_view key;
  KeyKind kind;
  std::variant<TextSlot, CountSlot, SizeSlot, FlagSlot> slot;
  uint64_t low = 0;
  uint64_t high = 0;
  std::span<const std::string_view> choices{};
  bool reloadable = false;
  // Further condition on a value of the right kind: empty if fine, else what was expected.
  std::string (*check)(const Config&) = nullptr;
};

// All keys outside of [[model]], grouped by section.
std::span<const KeySpec> config_keys();

// Keys of a [[model]] table.
struct ModelKeySpec {
  std::string_view key;
  std::string Config::Model::* slot;
};
std::span<const ModelKeySpec> model_keys();

// "an integer from 1 to 8192", "\"auto\" or a size such as \"2 GiB\"", ...
std::string expectation(const KeySpec& spec);

// The value as it would be written in the file: 512, "info", "30s".
std::string written_value(const KeySpec& spec, const Config& config);

}  // namespace inferd::daemon
