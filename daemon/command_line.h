// The daemon's command line: what it says, before any of it is acted on.
// Owner: daemon. Pure functions but for the working directory, which relative paths refer to.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "daemon/config.h"

namespace inferd::daemon {

inline constexpr const char* kDefaultConfigPath = "/etc/inferd/inferd.toml";

struct CommandLine {
  enum class Action { kServe, kCheckConfig, kVersion, kHelp };
  Action action = Action::kServe;
  std::string config_path;           // empty: no file (a private daemon)
  std::vector<Override> overrides;   // in the order of the options
};

// `arguments` without the program's name. `user_runtime_dir` is $XDG_RUNTIME_DIR, or empty: where a
// private daemon lives unless told otherwise. Errors: kInvalidArgument.
Result<CommandLine> parse_command_line(std::span<const char* const> arguments,
                                       const std::string& user_runtime_dir);

// The text of --help.
std::string help_text();

}  // namespace inferd::daemon
