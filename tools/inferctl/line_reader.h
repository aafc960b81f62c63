// One line at a time from a person (with editing and history) or from a pipe.
// Owner: `inferctl chat`. One thread; one object at a time, since readline is global.
#pragma once

#include <optional>
#include <string>

namespace inferd::inferctl {

class LineReader {
 public:
  enum class Outcome { kLine, kInterrupted, kEnd };

  // With a terminal on standard input: editing, and history kept in `history_path` (mode 0600, made
  // when it first has something to keep; "" keeps none). Otherwise plain lines, no prompt printed.
  explicit LineReader(std::string history_path);
  // Writes the history.
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  bool interactive() const { return interactive_; }
  // Blocks. kInterrupted: Ctrl-C, which throws the unfinished line away. kEnd: Ctrl-D or end of
  // file.
  Outcome read(const std::string& prompt, std::string& line);

 private:
  bool interactive_;
  std::string history_path_;
};

// ${XDG_STATE_HOME:-~/.local/state}/inferd/chat_history, or "" without a home.
std::string default_history_path();

}  // namespace inferd::inferctl
