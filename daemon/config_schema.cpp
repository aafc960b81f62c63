#include "daemon/config_schema.h"

#include <array>

#include "base/units.h"

namespace inferd::daemon {

namespace {

using std::string_view_literals::operator""sv;

constexpr std::array kLogLevels{"trace"sv, "debug"sv, "info"sv, "warn"sv, "error"sv, "off"sv};
constexpr std::array kAccess{"user"sv, "group"sv, "all"sv};
constexpr std::array kIsa{"auto"sv,   "portable"sv,   "avx2"sv,
                          "avx512"sv, "avx512vnni"sv, "avx512bf16"sv};

constexpr uint64_t kSecond = 1000;
constexpr uint64_t kHour = 3600 * kSecond;

std::string check_runtime_dir(const Config& config) {
  const std::string& dir = config.daemon.runtime_dir;
  if (dir.empty() || dir.front() != '/') return "an absolute path";
  // sockaddr_un.sun_path has 108 bytes, the longest name below the directory is "/control.sock".
  constexpr size_t kPathMax = 107 - sizeof("/control.sock");
  if (dir.size() > kPathMax) {
    return "a path of at most " + std::to_string(kPathMax) +
           " bytes, because a Unix socket's whole path has 107";
  }
  return {};
}

std::string check_group(const Config& config) {
  return config.daemon.group.empty() ? "the name of a group" : std::string();
}

std::string check_disk_path(const Config& config) {
  const std::string& path = config.memory.disk_path;
  if (path == "auto" || (path.size() > 1 && path.front() == '/')) return {};
  return "\"auto\" or an absolute path";
}

std::string check_page_tokens(const Config& config) {
  if (config.memory.page_tokens == kPageTokens) return {};
  return std::to_string(kPageTokens) + ", the only page size that this version's kernels have";
}

const KeySpec kKeys[] = {
    {.section = "daemon", .key = "runtime_dir", .kind = KeyKind::kText,
     .slot = +[](Config& c) -> std::string& { return c.daemon.runtime_dir; },
     .check = check_runtime_dir},
    {.section = "daemon", .key = "log_level", .kind = KeyKind::kChoice,
     .slot = +[](Config& c) -> std::string& { return c.daemon.log_level; },
     .choices = kLogLevels, .reloadable = true},
    {.section = "daemon", .key = "drain_timeout", .kind = KeyKind::kDuration,
     .slot = +[](Config& c) -> uint32_t& { return c.daemon.drain_timeout_ms; },
     .low = 0, .high = 24 * kHour, .reloadable = true},
    {.section = "daemon", .key = "access", .kind = KeyKind::kChoice,
     .slot = +[](Config& c) -> std::string& { return c.daemon.access; }, .choices = kAccess},
    {.section = "daemon", .key = "group", .kind = KeyKind::kText,
     .slot = +[](Config& c) -> std::string& { return c.daemon.group; }, .check = check_group},

    {.section = "memory", .key = "pool", .kind = KeyKind::kAutoSize,
     .slot = +[](Config& c) -> Bytes& { return c.memory.pool; },
     .low = 1ull << 20, .high = 1ull << 46},
    {.section = "memory", .key = "page_tokens", .kind = KeyKind::kCount,
     .slot = +[](Config& c) -> uint32_t& { return c.memory.page_tokens; },
     .low = 1, .high = 1024, .check = check_page_tokens},
    {.section = "memory", .key = "prefix_cache", .kind = KeyKind::kFlag,
     .slot = +[](Config& c) -> bool& { return c.memory.prefix_cache; }},
    {.section = "memory", .key = "give_back", .kind = KeyKind::kDuration,
     .slot = +[](Config& c) -> uint32_t& { return c.memory.give_back_ms; },
     .low = 100, .high = 24 * kHour, .reloadable = true},
    {.section = "memory", .key = "cache_idle", .kind = KeyKind::kDuration,
     .slot = +[](Config& c) -> uint32_t& { return c.memory.cache_idle_ms; },
     .low = 1000, .high = 24 * kHour, .reloadable = true},
    {.section = "memory", .key = "disk", .kind = KeyKind::kSizeLimit,
     .slot = +[](Config& c) -> Bytes& { return c.memory.disk; },
     .low = 1ull << 20, .high = 1ull << 46},
    {.section = "memory", .key = "disk_path", .kind = KeyKind::kText,
     .slot = +[](Config& c) -> std::string& { return c.memory.disk_path; },
     .check = check_disk_path},
    {.section = "memory", .key = "disk_keep", .kind = KeyKind::kFlag,
     .slot = +[](Config& c) -> bool& { return c.memory.disk_keep; }},

    {.section = "scheduler", .key = "step_tokens", .kind = KeyKind::kCount,
     .slot = +[](Config& c) -> uint32_t& { return c.scheduler.step_tokens; },
     .low = 1, .high = 8192},
    {.section = "scheduler", .key = "max_sequences", .kind = KeyKind::kCount,
     .slot = +[](Config& c) -> uint32_t& { return c.scheduler.max_sequences; },
     .low = 1, .high = 1024},
    {.section = "scheduler", .key = "queue", .kind = KeyKind::kCount,
     .slot = +[](Config& c) -> uint32_t& { return c.scheduler.queue; }, .low = 1, .high = 65536},
    {.section = "scheduler", .key = "itl_target_ms", .kind = KeyKind::kCount,
     .slot = +[](Config& c) -> uint32_t& { return c.scheduler.itl_target_ms; },
     .low = 1, .high = 60'000},
    {.section = "scheduler", .key = "batch_share_percent", .kind = KeyKind::kCount,
     .slot = +[](Config& c) -> uint32_t& { return c.scheduler.batch_share_percent; },
     .low = 1, .high = 50},
    {.section = "scheduler", .key = "idle_share_percent", .kind = KeyKind::kCount,
     .slot = +[](Config& c) -> uint32_t& { return c.scheduler.idle_share_percent; },
     .low = 1, .high = 50},

    {.section = "cpu", .key = "threads", .kind = KeyKind::kAutoCount,
     .slot = +[](Config& c) -> uint32_t& { return c.cpu.threads; }, .low = 1, .high = 1024},
    {.section = "cpu", .key = "isa", .kind = KeyKind::kChoice,
     .slot = +[](Config& c) -> std::string& { return c.cpu.isa; }, .choices = kIsa},

    {.section = "limits", .key = "connections", .kind = KeyKind::kCount,
     .slot = +[](Config& c) -> uint32_t& { return c.limits.connections; },
     .low = 1, .high = 65536, .reloadable = true},
    {.section = "limits", .key = "connections_per_user", .kind = KeyKind::kCount,
     .slot = +[](Config& c) -> uint32_t& { return c.limits.connections_per_user; },
     .low = 1, .high = 65536, .reloadable = true},
    {.section = "limits", .key = "user_ring_bytes", .kind = KeyKind::kSizeLimit,
     .slot = +[](Config& c) -> Bytes& { return c.limits.user_ring_bytes; },
     .low = 1ull << 10, .high = 1ull << 46, .reloadable = true},
    {.section = "limits", .key = "user_arena_bytes", .kind = KeyKind::kSizeLimit,
     .slot = +[](Config& c) -> Bytes& { return c.limits.user_arena_bytes; },
     .low = 1ull << 10, .high = 1ull << 46, .reloadable = true},
    {.section = "limits", .key = "sequences_per_session", .kind = KeyKind::kCount,
     .slot = +[](Config& c) -> uint32_t& { return c.limits.sequences_per_session; },
     .low = 1, .high = 65536, .reloadable = true},
    {.section = "limits", .key = "handshake_timeout", .kind = KeyKind::kDuration,
     .slot = +[](Config& c) -> uint32_t& { return c.limits.handshake_timeout_ms; },
     .low = 10, .high = kHour, .reloadable = true},
    {.section = "limits", .key = "stall_timeout", .kind = KeyKind::kDuration,
     .slot = +[](Config& c) -> uint32_t& { return c.limits.stall_timeout_ms; },
     .low = 10, .high = 24 * kHour, .reloadable = true},
    {.section = "limits", .key = "control_connections", .kind = KeyKind::kCount,
     .slot = +[](Config& c) -> uint32_t& { return c.limits.control_connections; },
     .low = 1, .high = 1024, .reloadable = true},
    {.section = "limits", .key = "user_sequences", .kind = KeyKind::kLimit,
     .slot = +[](Config& c) -> uint32_t& { return c.limits.user_sequences; },
     .low = 1, .high = 1'000'000, .reloadable = true},
    {.section = "limits", .key = "user_queue", .kind = KeyKind::kLimit,
     .slot = +[](Config& c) -> uint32_t& { return c.limits.user_queue; },
     .low = 1, .high = 1'000'000, .reloadable = true},
    {.section = "limits", .key = "user_pages", .kind = KeyKind::kLimit,
     .slot = +[](Config& c) -> uint32_t& { return c.limits.user_pages; },
     .low = 1, .high = 1'000'000'000, .reloadable = true},
    {.section = "limits", .key = "user_tokens_per_s", .kind = KeyKind::kLimit,
     .slot = +[](Config& c) -> uint32_t& { return c.limits.user_tokens_per_s; },
     .low = 1, .high = 1'000'000'000, .reloadable = true},
    {.section = "limits", .key = "user_pinned_pages", .kind = KeyKind::kCount,
     .slot = +[](Config& c) -> uint32_t& { return c.limits.user_pinned_pages; },
     .low = 1, .high = 1'000'000'000, .reloadable = true},
    {.section = "limits", .key = "client_queue", .kind = KeyKind::kLimit,
     .slot = +[](Config& c) -> uint32_t& { return c.limits.client_queue; },
     .low = 1, .high = 1'000'000, .reloadable = true},
    {.section = "limits", .key = "client_pages", .kind = KeyKind::kLimit,
     .slot = +[](Config& c) -> uint32_t& { return c.limits.client_pages; },
     .low = 1, .high = 1'000'000'000, .reloadable = true},
    {.section = "limits", .key = "client_tokens_per_s", .kind = KeyKind::kLimit,
     .slot = +[](Config& c) -> uint32_t& { return c.limits.client_tokens_per_s; },
     .low = 1, .high = 1'000'000'000, .reloadable = true},
};

constexpr std::array<ModelKeySpec, 2> kModelKeys{{
    {"path", &Config::Model::path},
    {"name", &Config::Model::name},
}};

// With a unit where that is exact.
std::string written_size(Bytes size) {
  const std::string text = format_bytes(size);
  const Result<Bytes> same = parse_bytes(text);
  return same && *same == size ? "\"" + text + "\"" : std::to_string(size.value);
}

std::string written_duration(uint64_t ms) {
  return ms % kSecond == 0 ? "\"" + std::to_string(ms / kSecond) + " s\""
                           : "\"" + std::to_string(ms) + " ms\"";
}

}  // namespace

std::span<const KeySpec> config_keys() { return kKeys; }
std::span<const ModelKeySpec> model_keys() { return kModelKeys; }

std::string expectation(const KeySpec& spec) {
  const auto range = [&] {
    return "from " + std::to_string(spec.low) + " to " + std::to_string(spec.high);
  };
  switch (spec.kind) {
    case KeyKind::kText: return "a string";
    case KeyKind::kFlag: return "true or false";
    case KeyKind::kCount: return "an integer " + range();
    case KeyKind::kAutoCount: return "\"auto\" or an integer " + range();
    case KeyKind::kLimit: return "\"none\" or an integer " + range();
    case KeyKind::kDuration:
      return "seconds, or a string such as \"500 ms\", \"30 s\", \"2 min\" or \"1 h\", from " +
             written_duration(spec.low) + " to " + written_duration(spec.high);
    case KeyKind::kSizeLimit:
      return "\"none\", or a size such as \"2 GiB\", from " + format_bytes(Bytes(spec.low)) +
             " to " + format_bytes(Bytes(spec.high));
    case KeyKind::kAutoSize:
      return "\"auto\", or a size such as \"2 GiB\", from " + format_bytes(Bytes(spec.low)) +
             " to " + format_bytes(Bytes(spec.high));
    case KeyKind::kChoice: {
      std::string text = "one of ";
      for (size_t i = 0; i < spec.choices.size(); ++i) {
        if (i > 0) text += ", ";
        text.append("\"").append(spec.choices[i]).append("\"");
      }
      return text;
    }
  }
  return {};
}

std::string written_value(const KeySpec& spec, const Config& config) {
  // The slots return references into what they are given; they do not change it.
  Config& values = const_cast<Config&>(config);
  switch (spec.kind) {
    case KeyKind::kText:
    case KeyKind::kChoice: return "\"" + std::get<TextSlot>(spec.slot)(values) + "\"";
    case KeyKind::kFlag: return std::get<FlagSlot>(spec.slot)(values) ? "true" : "false";
    case KeyKind::kCount: return std::to_string(std::get<CountSlot>(spec.slot)(values));
    case KeyKind::kAutoCount: {
      const uint32_t count = std::get<CountSlot>(spec.slot)(values);
      return count == 0 ? "\"auto\"" : std::to_string(count);
    }
    case KeyKind::kLimit: {
      const uint32_t count = std::get<CountSlot>(spec.slot)(values);
      return count == 0 ? "\"none\"" : std::to_string(count);
    }
    case KeyKind::kDuration: return written_duration(std::get<CountSlot>(spec.slot)(values));
    case KeyKind::kSizeLimit:
    case KeyKind::kAutoSize: {
      const Bytes size = std::get<SizeSlot>(spec.slot)(values);
      const char* const zero = spec.kind == KeyKind::kAutoSize ? "\"auto\"" : "\"none\"";
      return size.value == 0 ? zero : written_size(size);
    }
  }
  return {};
}

}  // namespace inferd::daemon
