#include "daemon/control_server.h"

#include <sys/socket.h>

#include <boost/asio/post.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "daemon/control_codec.h"
#include "daemon/logging.h"
#include "ipc/socket.h"

namespace inferd::daemon {

namespace asio = boost::asio;

namespace {

// An answer must be taken within this time, or its reader is dropped.
constexpr std::chrono::seconds kWriteTimeout{10};
constexpr std::chrono::milliseconds kAcceptRetry{100};
constexpr int kAcceptsPerWake = 16;
constexpr uint32_t kAdminReserve = 16;  // connections beyond the limit

}  // namespace

struct ControlServer::Connection {
  Connection(asio::io_context& io, int fd) : socket(io, fd), deadline(io) {}

  asio::posix::stream_descriptor socket;  // owns the descriptor
  asio::steady_timer deadline;            // of a write
  ControlFramer framer;
  std::string out;  // what is being written
  size_t written = 0;
  UserId user;
  bool closed = false;
};

ControlServer::ControlServer(asio::io_context& io, UniqueFd socket, ControlService& service,
                             uint32_t connections_max)
    : io_(io), socket_(io, socket.release()), retry_(io), service_(service),
      connections_max_(connections_max) {}

ControlServer::~ControlServer() { close(); }

void ControlServer::start() { wait_for_connection(); }

void ControlServer::wait_for_connection() {
  socket_.async_wait(asio::posix::stream_descriptor::wait_read,
                     [this](const boost::system::error_code& error) {
                       if (!error) accept_some();
                     });
}

void ControlServer::accept_some() {
  for (int i = 0; i < kAcceptsPerWake; ++i) {
    UniqueFd fd(::accept4(socket_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) break;
      log_warn(std::string("cannot accept on the control socket: ") + std::strerror(errno));
      retry_.expires_after(kAcceptRetry);
      retry_.async_wait([this](const boost::system::error_code& error) {
        if (!error) wait_for_connection();
      });
      return;
    }
    const auto peer = ipc::peer_identity(fd.get());
    // Over the limit: closing says it. A caller sees the end of the stream and can try again.
    if (!peer || !has_room(UserId(peer->uid))) continue;
    auto connection = std::make_shared<Connection>(io_, fd.release());
    connection->user = UserId(peer->uid);
    connections_.insert(connection);
    next_call(connection);
  }
  wait_for_connection();
}

// An administrator always gets in, and one user takes at most a quarter of the room.
bool ControlServer::has_room(UserId user) const {
  if (service_.is_privileged(user)) return connections_.size() < connections_max_ + kAdminReserve;
  if (connections_.size() >= connections_max_) return false;
  const auto own = std::count_if(connections_.begin(), connections_.end(),
                                 [&](const ConnectionPtr& c) { return c->user == user; });
  return static_cast<uint32_t>(own) < std::max(connections_max_ / 4, 1u);
}

void ControlServer::next_call(const ConnectionPtr& connection) {
  if (connection->closed) return;
  if (const auto message = connection->framer.next()) {
    service_.handle(*message, connection->user, [this, connection](std::string reply) {
      if (!connection->closed) send(connection, std::move(reply));
    });
    return;
  }
  connection->socket.async_wait(asio::posix::stream_descriptor::wait_read,
                                [this, connection](const boost::system::error_code& error) {
                                  if (!error && !connection->closed) read_some(connection);
                                });
}

void ControlServer::read_some(const ConnectionPtr& connection) {
  std::array<char, 16384> buffer;
  const ssize_t got = ::recv(connection->socket.native_handle(), buffer.data(), buffer.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    next_call(connection);
    return;
  }
  if (got <= 0 || !connection->framer.add({buffer.data(), static_cast<size_t>(got)})) {
    drop(connection);
    return;
  }
  next_call(connection);
}

void ControlServer::send(const ConnectionPtr& connection, std::string message) {
  connection->out = std::move(message);
  connection->written = 0;
  connection->deadline.expires_after(kWriteTimeout);
  connection->deadline.async_wait([this, connection](const boost::system::error_code& error) {
    if (!error && !connection->closed) drop(connection);
  });
  write_some(connection);
}

void ControlServer::write_some(const ConnectionPtr& connection) {
  while (connection->written < connection->out.size()) {
    const ssize_t put =
        ::send(connection->socket.native_handle(), connection->out.data() + connection->written,
               connection->out.size() - connection->written, MSG_NOSIGNAL);
    if (put >= 0) {
      connection->written += static_cast<size_t>(put);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      drop(connection);
      return;
    }
    connection->socket.async_wait(asio::posix::stream_descriptor::wait_write,
                                  [this, connection](const boost::system::error_code& error) {
                                    if (!error && !connection->closed) write_some(connection);
                                  });
    return;
  }
  connection->deadline.cancel();
  connection->out.clear();
  // Not called from here: a caller's many small calls would nest.
  asio::post(io_, [this, connection] { next_call(connection); });
}

void ControlServer::drop(const ConnectionPtr& connection) {
  if (connection->closed) return;
  connection->closed = true;
  connection->deadline.cancel();
  boost::system::error_code ignored;
  connection->socket.close(ignored);
  connections_.erase(connection);
}

void ControlServer::close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
  retry_.cancel();
  while (!connections_.empty()) drop(*connections_.begin());
}

}  // namespace inferd::daemon
