#include "client_lib/discovery.h"

#include <cstdlib>

#include "ipc/socket.h"

namespace inferd::client_lib {
namespace {

constexpr const char* kSystemSocket = "/run/inferd/inferd.sock";

std::string environment(const char* name) {
  const char* value = secure_getenv(name);
  return value == nullptr ? std::string() : value;
}

// What the person at the keyboard can do about it.
std::string advice(ErrorCode code, const Candidates& candidates) {
  switch (code) {
    case ErrorCode::kPermissionDenied:
      return "join the group that may connect ('sudo usermod -aG inferd $USER', then log in again)";
    case ErrorCode::kTimedOut:
      return "the daemon is overloaded or stuck: see 'inferctl status' and try again";
    case ErrorCode::kInvalidArgument:
      return candidates.from_environment ? "correct INFERD_SOCKET" : "give a shorter path";
    default:
      break;
  }
  std::string text =
      "start the daemon with 'inferd --model FILE.gguf' or 'systemctl start inferd', or ";
  if (candidates.from_environment) return text + "correct INFERD_SOCKET";
  return text + (candidates.chosen ? "give the path that it listens on" : "set INFERD_SOCKET");
}

}  // namespace

Candidates find_candidates(const char* explicit_path) {
  Candidates candidates;
  if (explicit_path != nullptr && *explicit_path != '\0') {
    candidates.paths = {explicit_path};
    candidates.chosen = true;
    return candidates;
  }
  if (std::string path = environment("INFERD_SOCKET"); !path.empty()) {
    candidates.paths = {std::move(path)};
    candidates.chosen = true;
    candidates.from_environment = true;
    return candidates;
  }
  if (const std::string dir = environment("XDG_RUNTIME_DIR"); !dir.empty()) {
    candidates.paths.push_back(dir + "/inferd/inferd.sock");
  }
  candidates.paths.push_back(kSystemSocket);
  return candidates;
}

Result<UniqueFd> connect_to_any(const Candidates& candidates, int timeout_ms) {
  INFERD_CHECK(!candidates.paths.empty());
  std::string tried;
  ErrorCode code = ErrorCode::kNotFound;
  for (const std::string& path : candidates.paths) {
    auto connected = ipc::connect_to(path, timeout_ms);
    if (connected.ok()) return connected;
    const Error& error = connected.error();
    // "Not there" is the weakest reason: a socket that exists and refuses says more.
    if (code == ErrorCode::kNotFound) code = error.code();
    tried += (tried.empty() ? "" : "; ") + error.message();
  }
  return Error(code == ErrorCode::kNotFound ? ErrorCode::kUnavailable : code,
               tried + "; " + advice(code, candidates));
}

}  // namespace inferd::client_lib
