// Finding the daemon: which socket to try, and what to tell a person when none answers.
// Owner: client_lib. Pure functions of their arguments, but for find_candidates(), which reads the
// environment (never in a process that gained privilege by being executed). Any thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace inferd::client_lib {

// Sockets to try in this order.
struct Candidates {
  std::vector<std::string> paths;
  bool chosen =
      false;  // by the caller or $INFERD_SOCKET: exactly one path, and nothing else is tried
  bool from_environment = false;
};
// `explicit_path`: NULL or empty for $INFERD_SOCKET, $XDG_RUNTIME_DIR/inferd/inferd.sock,
// /run/inferd/inferd.sock.
Candidates find_candidates(const char* explicit_path);

// Connects to the first that answers; waits up to timeout_ms for one whose queue is full. The error
// names every path that was tried and says what to do.
Result<UniqueFd> connect_to_any(const Candidates& candidates, int timeout_ms);

}  // namespace inferd::client_lib
