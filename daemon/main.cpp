// inferd's main(): command line, configuration, limits of the process, and the exit code.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <sstream>
#include <string>

#include "daemon/command_line.h"
#include "daemon/daemon.h"
#include "daemon/exit_codes.h"
#include "daemon/logging.h"

namespace inferd::daemon {

namespace {

int exit_with(ExitCode code) { return static_cast<int>(code); }

// Descriptors 0 to 2 must be something, or a socket would be one of them and get the log.
void fill_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) == -1) static_cast<void>(::open("/dev/null", O_RDWR));
  }
}

// Prompts and answers lie in this process's memory; they must not end in a core file.
void forbid_core_dumps(bool shared_between_users) {
  // A limit of 1 byte also keeps a core_pattern that pipes to a program from getting one, which a
  // limit of 0 does not: see "special value" in the kernel's fs/coredump.c, and core(5).
  const rlimit one_byte{1, 1};
  ::setrlimit(RLIMIT_CORE, &one_byte);
  // Other processes of the daemon's own user may not look into it, where it holds the work of
  // several users. A private daemon's user may debug it.
  if (shared_between_users) ::prctl(PR_SET_DUMPABLE, 0);
}

// For what goes wrong before the log is there. The journal gets the priority of an error by the prefix
// that sd-daemon(3) names, and not by the journal's own protocol: of a process that ends at once it
// only learns the unit from the stream.
void complain(const std::string& text) {
  const bool journal = is_journal_stream(std::getenv("JOURNAL_STREAM"), STDERR_FILENO);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::fprintf(stderr, "%s%s\n", journal ? "<3>" : "", line.c_str());
  }
}

int serve(Config config, CommandLine command_line) {
  init_logging(parse_log_level(config.daemon.log_level));
  log_info(std::string("inferd ") + INFERD_VERSION + " starts");
  Daemon daemon(std::move(config), std::move(command_line));
  const auto started = daemon.start();
  if (!started) {
    log_error(started.error().message());
    return exit_with(exit_code_for(started.error().code()));
  }
  const auto served = started->has_value() ? daemon.run() : Result<void>();
  if (!served) {
    log_error(served.error().message());
    return exit_with(exit_code_for(served.error().code()));
  }
  return exit_with(ExitCode::kOk);
}

int run_main(int argc, char** argv) {
  const char* user_runtime_dir = std::getenv("XDG_RUNTIME_DIR");
  const auto parsed = parse_command_line({argv + 1, static_cast<size_t>(argc > 0 ? argc - 1 : 0)},
                                         user_runtime_dir != nullptr ? user_runtime_dir : "");
  if (!parsed) {
    complain("inferd: " + parsed.error().message());
    return exit_with(ExitCode::kUsage);
  }
  if (parsed->action == CommandLine::Action::kHelp) {
    std::fputs(help_text().c_str(), stdout);
    return exit_with(ExitCode::kOk);
  }
  if (parsed->action == CommandLine::Action::kVersion) {
    std::printf("inferd %s\n", INFERD_VERSION);
    return exit_with(ExitCode::kOk);
  }
  std::string text;
  if (!parsed->config_path.empty()) {
    auto read = read_config_file(parsed->config_path);
    if (!read) {
      complain("inferd: " + read.error().message() +
               "; name another with --config, or a model with --model");
      return exit_with(exit_code_for(read.error().code()));
    }
    text = std::move(*read);
  }
  std::vector<ConfigProblem> problems;
  const std::string name = parsed->config_path.empty() ? "command line" : parsed->config_path;
  Config config = parse_config(text, name, parsed->overrides, problems);
  if (!problems.empty()) {
    complain(format_problems(problems));
    return exit_with(ExitCode::kConfig);
  }
  if (parsed->action == CommandLine::Action::kCheckConfig) {
    std::printf("%s: no mistakes\n", name.c_str());
    return exit_with(ExitCode::kOk);
  }
  forbid_core_dumps(config.daemon.access != "user");
  return serve(std::move(config), *parsed);
}

}  // namespace

}  // namespace inferd::daemon

int main(int argc, char** argv) {
  using inferd::daemon::ExitCode;
  inferd::daemon::fill_standard_descriptors();
  std::signal(SIGPIPE, SIG_IGN);
  ::umask(0077);
  try {
    return inferd::daemon::run_main(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("inferd: out of memory\n", stderr);
    return static_cast<int>(ExitCode::kOutOfMemory);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "inferd: internal error: %s\n", error.what());
    return static_cast<int>(ExitCode::kSoftware);
  }
}
