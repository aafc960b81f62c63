// Messages with descriptors over a Unix SOCK_SEQPACKET socket, and who is at its other end.
// Owner: ipc. Functions on a descriptor of the caller's; as thread-safe as the socket is. None of
// them raises SIGPIPE, and none leaks a descriptor: whatever arrives is owned or closed on every
// path. Must not know what the messages mean.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace inferd::ipc {

inline constexpr size_t kMessageFdsMax = 16;  // descriptors that one message can carry

enum class SocketStatus { kDone, kWouldBlock, kClosed };

// Sends one message whole, with copies of `fds` (the caller keeps and closes its own).
// kWouldBlock: a non-blocking socket is full. kClosed: the peer is gone. Other errors: kIo.
Result<SocketStatus> send_message(int socket, std::span<const std::byte> bytes,
                                  std::span<const int> fds = {});

struct Message {
  SocketStatus status = SocketStatus::kClosed;
  size_t bytes = 0;           // of the buffer, with kDone
  std::vector<UniqueFd> fds;  // close-on-exec
};

// Receives one message into `buffer`. A message longer than the buffer, or one with more
// descriptors than `fds_max`, is kProtocol, and its descriptors are closed. kClosed: end of file.
// Other errors: kIo. With block == false it returns kWouldBlock instead of waiting, whatever the
// socket's own mode.
Result<Message> receive_message(int socket, std::span<std::byte> buffer, size_t fds_max,
                                bool block);

// Who made the connection, by the kernel's word at that moment (SO_PEERCRED).
struct PeerIdentity {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};
Result<PeerIdentity> peer_identity(int socket);
// The supplementary groups that the peer had at that moment (SO_PEERGROUPS).
Result<std::vector<gid_t>> peer_groups(int socket);

// A listening socket at `path` (mode as the umask says). A socket file that nobody listens on is
// replaced; one that is in use is kUnavailable. Non-blocking. Errors: kInvalidArgument (path too
// long), kIo, kPermissionDenied.
Result<UniqueFd> listen_at(const std::string& path, int backlog);

// Connects to `path`, waiting up to `timeout_ms` where the backlog is full. Blocking socket.
// Errors carry errno's text: kNotFound, kPermissionDenied, kUnavailable (nobody listens),
// kTimedOut, kInvalidArgument, kIo.
Result<UniqueFd> connect_to(const std::string& path, int timeout_ms);

}  // namespace inferd::ipc
