#include "tools/inferctl/line_reader.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include <poll.h>
#include <readline/history.h>
#include <readline/readline.h>
#include <sys/stat.h>
#include <unistd.h>

namespace inferd::inferctl {
namespace {

constexpr int kHistoryLinesMax = 1000;

volatile std::sig_atomic_t g_line_interrupted = 0;

extern "C" void on_line_interrupt(int) { g_line_interrupted = 1; }

// The signals let in while a key is awaited, and only then: SIGINT is blocked outside of that wait,
// so that none is lost between looking at the flag and falling asleep.
sigset_t g_waiting_mask;

// Readline's source of keys. Ctrl-C empties the line and accepts it.
int read_key(FILE*) {
  for (;;) {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (::ppoll(&input, 1, nullptr, &g_waiting_mask) < 0 && errno != EINTR) return EOF;
    if (g_line_interrupted != 0) {
      rl_replace_line("", 0);
      return '\n';
    }
    rl_check_signals();  // a change of the window's size
    if (input.revents == 0) continue;
    unsigned char key = 0;
    const ssize_t got = ::read(STDIN_FILENO, &key, 1);
    if (got == 1) return key;
    if (got == 0 || errno != EINTR) return EOF;
  }
}

void make_folders_of(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    ::mkdir(path.substr(0, slash).c_str(), 0700);
  }
}

}  // namespace

std::string default_history_path() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && state[0] == '/') return std::string(state) + "/inferd/chat_history";
  const char* home = std::getenv("HOME");
  if (home == nullptr || home[0] != '/') return "";
  return std::string(home) + "/.local/state/inferd/chat_history";
}

LineReader::LineReader(std::string history_path)
    : interactive_(::isatty(STDIN_FILENO) != 0), history_path_(std::move(history_path)) {
  if (!interactive_) return;
  using_history();
  stifle_history(kHistoryLinesMax);
  if (!history_path_.empty()) read_history(history_path_.c_str());
  // Our own handler ends the line; readline's would end the program.
  rl_catch_signals = 0;
  rl_getc_function = read_key;
  rl_bind_key('\t', rl_insert);
}

LineReader::~LineReader() {
  if (!interactive_ || history_path_.empty() || history_length == 0) return;
  make_folders_of(history_path_);
  const mode_t mask = ::umask(0077);
  write_history(history_path_.c_str());
  ::umask(mask);
}

LineReader::Outcome LineReader::read(const std::string& prompt, std::string& line) {
  line.clear();
  if (!interactive_) return std::getline(std::cin, line) ? Outcome::kLine : Outcome::kEnd;

  g_line_interrupted = 0;
  struct sigaction action {};
  struct sigaction previous {};
  action.sa_handler = on_line_interrupt;
  sigset_t interrupt;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  sigprocmask(SIG_BLOCK, &interrupt, &g_waiting_mask);
  sigaction(SIGINT, &action, &previous);
  char* const typed = ::readline(prompt.c_str());
  sigaction(SIGINT, &previous, nullptr);
  sigprocmask(SIG_SETMASK, &g_waiting_mask, nullptr);
  if (g_line_interrupted != 0) {
    std::free(typed);
    return Outcome::kInterrupted;
  }
  if (typed == nullptr) return Outcome::kEnd;
  line = typed;
  std::free(typed);
  if (line.find_first_not_of(" \t") != std::string::npos) add_history(line.c_str());
  return Outcome::kLine;
}

}  // namespace inferd::inferctl
