// The daemon's configuration: one immutable struct, parsed once from TOML and the command line.
// Owner: daemon. A Config is a value; parsing is a pure function of its arguments, any thread. It must
// not know sockets, models or memory: it checks form and range, not whether a file exists.
//
// Every key is described once, in config_schema.cpp; inferd.toml(5) explains them for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace inferd::daemon {

struct Config {
  struct Daemon {
    std::string runtime_dir = "/run/inferd";
    std::string log_level = "info";        // reload
    uint32_t drain_timeout_ms = 30'000;    // reload
    std::string access = "user";           // "user", "group", "all"
    std::string group = "inferd";          // owner group of the sockets where access is "group"
  } daemon;

  struct Model {
    std::string path;
    std::string name;  // empty: the model's own name
  };
  std::vector<Model> models;

  // Who may ask for a prefix cache in common. Users and groups are names or numbers, not yet looked
  // up.
  struct CacheDomain {
    std::string name;
    std::vector<std::string> users;
    std::vector<std::string> groups;
  };
  std::vector<CacheDomain> cache_domains;

  // Of users who differ from others. Names or numbers, not yet looked up.
  struct User {
    std::string name;
    uint32_t weight = 100;  // of their share of the service
  };
  std::vector<User> users;

  struct Memory {
    Bytes pool{0};  // 0: worked out from the machine ("auto")
    uint32_t page_tokens = kPageTokens;
    bool prefix_cache = true;       // keep finished pages, and find them again by their tokens
    uint32_t give_back_ms = 2'000;  // reload; idle pages go back to the system after so long
    uint32_t cache_idle_ms = 600'000;  // reload; a cached page that nobody asked for this long is freed
    Bytes disk{0};                     // for pages that the pool has no room for; 0: none
    std::string disk_path = "auto";    // directory for them; "auto": the service manager's
    bool disk_keep = true;             // what is cached is found again after a restart
  } memory;

  struct Scheduler {
    uint32_t step_tokens = 512;
    uint32_t max_sequences = 64;
    uint32_t queue = 1024;
    uint32_t itl_target_ms = 50;
    uint32_t batch_share_percent = 10;  // of the service, kept for the class
    uint32_t idle_share_percent = 2;
  } scheduler;

  struct Cpu {
    uint32_t threads = 0;  // 0: the processors that the process may run on
    std::string isa = "auto";
  } cpu;

  struct Limits {                            // all of them can be reloaded
    uint32_t connections = 1024;             // clients at once, all users together
    uint32_t connections_per_user = 256;
    // Shared memory of one user's connections, 0: no limit. Rings, and arenas for prompts.
    Bytes user_ring_bytes{256ull << 20};
    Bytes user_arena_bytes{1ull << 30};
    uint32_t sequences_per_session = 256;    // running and waiting
    uint32_t handshake_timeout_ms = 5'000;   // a client that connects and says nothing
    uint32_t stall_timeout_ms = 30'000;      // a client that does not read its completion ring
    uint32_t control_connections = 64;
    // Quotas; 0: none.
    uint32_t user_sequences = 0;
    uint32_t user_queue = 0;
    uint32_t user_pages = 0;
    uint32_t user_tokens_per_s = 0;
    uint32_t user_pinned_pages = 256;  // of cached prefixes
    uint32_t client_queue = 0;
    uint32_t client_pages = 0;
    uint32_t client_tokens_per_s = 0;
  } limits;
};

// One thing that is wrong, and where. `message` says what was expected.
struct ConfigProblem {
  std::string origin;   // "inferd.toml", or "--set scheduler.queue=x"
  uint32_t line = 0;    // from 1; 0 where there is none, as on the command line
  uint32_t column = 0;  // from 1
  std::string message;
};

// "inferd.toml:3:5: message", one per line.
std::string format_problems(const std::vector<ConfigProblem>& problems);

// One `--set section.key=value` of the command line, not yet looked at.
struct Override {
  std::string text;    // "scheduler.queue=7"
  std::string origin;  // how to name it in an error: "--set scheduler.queue=7", "--model"
};

// Defaults, then the TOML in `text` (named `file_name` in errors), then the overrides in order. All
// problems are reported at once; with an empty `problems` the returned Config is complete and in range.
// A missing [[model]] is a problem, since a daemon without one has nothing to do.
Config parse_config(std::string_view text, std::string_view file_name,
                    const std::vector<Override>& overrides, std::vector<ConfigProblem>& problems);

// Reads a config file, at most 1 MiB. Errors: kNotFound, kPermissionDenied, kIo, kInvalidArgument.
Result<std::string> read_config_file(const std::string& path);

// What a reload can change, compared key by key.
struct ConfigDifference {
  std::string key;         // "limits.connections"
  std::string from;        // as it would be written in the file
  std::string to;
  bool reloadable = false; // false: needs a restart
};
std::vector<ConfigDifference> config_differences(const Config& from, const Config& to);

// `current` with the reloadable keys of `next`.
Config with_reloadable(const Config& current, const Config& next);

}  // namespace inferd::daemon
