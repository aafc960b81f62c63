// The daemon's place in the file system: runtime directory, lock, and the two listening sockets.
// Owner: daemon, at start-up, on the main thread before others start (it changes the umask for a
// moment). The object removes what it made when it goes. Must not know models or clients.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace inferd::daemon {

inline constexpr const char* kClientSocketName = "inferd.sock";
inline constexpr const char* kControlSocketName = "control.sock";
// FileDescriptorName= of the socket units.
inline constexpr const char* kClientActivationName = "clients";
inline constexpr const char* kControlActivationName = "control";

struct RuntimeDirOptions {
  std::string path;
  std::string access;  // "user", "group", "all": who may connect
  std::string group;   // for "group"
};

class RuntimeDir {
 public:
  // Makes the directory if it is missing (not its parents), checks that nobody else can replace what
  // lies in it, and takes the lock. Errors: kUnavailable with the pid of the daemon that holds the
  // lock; kPermissionDenied; kNotFound (parent directory, group); kInvalidArgument; kIo.
  static Result<RuntimeDir> open(const RuntimeDirOptions& options);
  RuntimeDir(RuntimeDir&& other) noexcept;
  RuntimeDir& operator=(RuntimeDir&&) = delete;
  // Removes the sockets that it made, and the lock.
  ~RuntimeDir();

  // A listening, non-blocking socket in the directory: SOCK_SEQPACKET for clients, SOCK_STREAM for
  // control. A socket left by a dead daemon is replaced; one that somebody listens on is
  // kUnavailable.
  Result<UniqueFd> listen_clients();
  Result<UniqueFd> listen_control();

  std::string socket_path(const char* name) const { return options_.path + "/" + name; }

 private:
  explicit RuntimeDir(RuntimeDirOptions options) : options_(std::move(options)) {}
  Result<void> prepare_directory() const;
  Result<void> take_lock();
  Result<UniqueFd> listen_at_name(const char* name, int type);
  Result<void> set_access(const std::string& path) const;

  RuntimeDirOptions options_;
  UniqueFd lock_;
  std::vector<std::string> made_;  // paths to remove
};

// Sockets that the service manager passed (LISTEN_FDS), by name. Absent ones are empty.
struct ActivatedSockets {
  UniqueFd clients;
  UniqueFd control;
};
// Takes them and clears the environment, so that no child sees it. Errors: kInvalidArgument for a
// descriptor of an unknown name or of the wrong kind.
Result<ActivatedSockets> take_activated_sockets();

}  // namespace inferd::daemon
