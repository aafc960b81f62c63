// What a subcommand of inferctl is: its name, its options, its function. One file per command.
// Owner: inferctl. One thread.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "tools/inferctl/arguments.h"

namespace inferd::inferctl {

// Documented in inferctl(1).
enum class ExitCode : int {
  kOk = 0,
  kFailed = 1,        // the daemon, the model or a file said no; the sentence is on standard error
  kUsage = 2,         // the command line makes no sense
  kNoDaemon = 3,      // no daemon could be reached
  kInterrupted = 130  // Ctrl-C ended it, as a shell reports it
};

// A command returns how it ended, or an error that main() prints as "inferctl: ...".
using CommandFunction = Result<ExitCode> (*)(const Arguments& arguments);

struct Command {
  std::string_view name;
  std::string_view arguments;  // how the positionals are called in the help: "[PROMPT | -]"
  std::string_view summary;    // one line for the list of commands
  std::string_view details;    // paragraphs for the command's own help
  std::span<const OptionSpec> options;
  size_t positionals_max;
  CommandFunction run;
};

// Options that every command takes; main() adds them to each command's table.
inline constexpr OptionSpec kSocketOption{
    "socket", "PATH",
    "the daemon's socket for clients (else $INFERD_SOCKET, then the usual places)"};
inline constexpr OptionSpec kControlSocketOption{
    "control-socket", "PATH",
    "the daemon's control socket (else $INFERD_CONTROL_SOCKET, then beside the clients' socket)"};
inline constexpr OptionSpec kJsonOption{"json", "", "print JSON"};
inline constexpr OptionSpec kHelpOption{"help", "", "print this text"};

const Command& run_command();
const Command& chat_command();
const Command& status_command();
const Command& list_command();
const Command& ps_command();
const Command& top_command();
const Command& vmstat_command();
const Command& cancel_command();
const Command& renice_command();
const Command& cache_command();
const Command& verify_command();
const Command& drain_command();
const Command& reload_command();
const Command& log_level_command();
const Command& metrics_command();
const Command& tokenize_command();
const Command& detokenize_command();
const Command& template_command();

}  // namespace inferd::inferctl
