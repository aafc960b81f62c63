#include "ipc/socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace inferd::ipc {
namespace {

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return Error(ErrorCode::kInvalidArgument, "the socket path '" + path + "' must have 1 to " +
                                                  std::to_string(sizeof(address.sun_path) - 1) +
                                                  " characters");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

// Takes ownership of every descriptor in the control data, wanted or not.
std::vector<UniqueFd> take_fds(msghdr& message) {
  std::vector<UniqueFd> fds;
  fds.reserve(kMessageFdsMax);
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
  return fds;
}

ErrorCode code_of_connect_errno(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return ErrorCode::kNotFound;
    case EACCES:
    case EPERM:
      return ErrorCode::kPermissionDenied;
    case ECONNREFUSED:
      return ErrorCode::kUnavailable;
    default:
      return ErrorCode::kIo;
  }
}

Error connect_error(const std::string& path, int error) {
  return Error(code_of_connect_errno(error),
               "cannot connect to " + path + ": " + std::strerror(error));
}

}  // namespace

Result<SocketStatus> send_message(int socket, std::span<const std::byte> bytes,
                                  std::span<const int> fds) {
  INFERD_CHECK(fds.size() <= kMessageFdsMax);
  iovec part = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMessageFdsMax * sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return SocketStatus::kDone;
  if (errno == EAGAIN || errno == EWOULDBLOCK) return SocketStatus::kWouldBlock;
  if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN) return SocketStatus::kClosed;
  return errno_error("cannot send on the socket", errno);
}

Result<Message> receive_message(int socket, std::span<std::byte> buffer, size_t fds_max,
                                bool block) {
  INFERD_CHECK(fds_max <= kMessageFdsMax);
  iovec part = {buffer.data(), buffer.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMessageFdsMax * sizeof(int))];
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  // Where none belong, none are taken: to close one that a peer sent may take as long as that peer likes
  // (the flush of a file of a file system of its own making). The kernel drops them without that.
  if (fds_max > 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
  }
  ssize_t received;
  bool reset = false;
  do {
    received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | (block ? 0 : MSG_DONTWAIT));
    // A peer that closed with something unread is told once, before what it had sent last.
  } while (received < 0 &&
           (errno == EINTR || (errno == ECONNRESET && !std::exchange(reset, true))));
  if (received < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Message{SocketStatus::kWouldBlock, 0, {}};
    if (errno == ECONNRESET || errno == EPIPE) return Message{SocketStatus::kClosed, 0, {}};
    return errno_error("cannot receive on the socket", errno);
  }
  Message result;
  result.fds = take_fds(message);
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return Error(ErrorCode::kProtocol, "the peer sent a message longer than " +
                                           std::to_string(buffer.size()) +
                                           " bytes or with more descriptors than could be taken");
  }
  if (result.fds.size() > fds_max) {
    return Error(ErrorCode::kProtocol, "the peer sent " + std::to_string(result.fds.size()) +
                                           " descriptors where at most " + std::to_string(fds_max) +
                                           " belong");
  }
  // An empty message and end of file look alike on this kind of socket; neither is ever sent on
  // purpose.
  result.status = received == 0 ? SocketStatus::kClosed : SocketStatus::kDone;
  result.bytes = static_cast<size_t>(received);
  return result;
}

Result<PeerIdentity> peer_identity(int socket) {
  ucred credentials = {};
  socklen_t bytes = sizeof(credentials);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) {
    return errno_error("cannot learn who is connected (SO_PEERCRED)", errno);
  }
  return PeerIdentity{credentials.pid, credentials.uid, credentials.gid};
}

Result<std::vector<gid_t>> peer_groups(int socket) {
  std::vector<gid_t> groups(32);
  for (;;) {
    auto bytes = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes) == 0) {
      groups.resize(bytes / sizeof(gid_t));
      return groups;
    }
    // ERANGE: the kernel stored how many bytes it takes.
    if (errno != ERANGE || bytes <= groups.size() * sizeof(gid_t)) {
      return errno_error("cannot learn the groups of who is connected (SO_PEERGROUPS)", errno);
    }
    groups.resize(bytes / sizeof(gid_t));
  }
}

Result<UniqueFd> listen_at(const std::string& path, int backlog) {
  INFERD_ASSIGN(const sockaddr_un address, address_of(path));
  struct stat status = {};
  if (lstat(path.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode)) {
      return Error(ErrorCode::kInvalidArgument,
                   path + " exists and is no socket; remove it or choose another path");
    }
    const auto probe = connect_to(path, 0);
    if (probe.ok() || probe.error().code() == ErrorCode::kTimedOut) {
      return Error(ErrorCode::kUnavailable, "another process already listens on " + path +
                                                "; stop it or choose another path");
    }
    if (probe.error().code() == ErrorCode::kUnavailable) unlink(path.c_str());
  }
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return errno_error("cannot create a socket", errno);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const int error = errno;
    if (error == EACCES || error == EPERM) {
      return Error(ErrorCode::kPermissionDenied,
                   "cannot create the socket " + path + ": " + std::strerror(error));
    }
    return errno_error("cannot create the socket " + path, error);
  }
  if (listen(fd.get(), backlog) != 0) return errno_error("cannot listen on " + path, errno);
  return fd;
}

Result<UniqueFd> connect_to(const std::string& path, int timeout_ms) {
  INFERD_ASSIGN(const sockaddr_un address, address_of(path));
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return errno_error("cannot create a socket", errno);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno == EINTR) continue;
    if (errno == EISCONN) break;
    // A Unix socket with a full backlog says EAGAIN and offers nothing to wait for: try again soon.
    if (errno != EAGAIN) return connect_error(path, errno);
    if (std::chrono::steady_clock::now() >= deadline) {
      return Error(ErrorCode::kTimedOut, "cannot connect to " + path +
                                             ": its queue of connections stayed full for " +
                                             std::to_string(timeout_ms) + " ms");
    }
    poll(nullptr, 0, 2);
  }
  const int flags = fcntl(fd.get(), F_GETFL);
  if (flags < 0 || fcntl(fd.get(), F_SETFL, flags & ~O_NONBLOCK) != 0) {
    return errno_error("cannot set up the socket", errno);
  }
  return fd;
}

}  // namespace inferd::ipc
