// The control socket: connections, bytes in, bytes out. What calls mean is control_service.h's.
// Owner: the daemon. Control thread only (the thread of its io_context).
//
// One call of a connection is worked on at a time; the next is read when its answer is written, so a
// caller can neither queue work nor make answers pile up. Who does not read is dropped.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <memory>
#include <set>

#include "base/unique_fd.h"
#include "daemon/control_service.h"

namespace inferd::daemon {

class ControlServer {
 public:
  // `socket` listens and does not block.
  ControlServer(boost::asio::io_context& io, UniqueFd socket, ControlService& service,
                uint32_t connections_max);
  ~ControlServer();

  void start();
  void set_connections_max(uint32_t connections_max) { connections_max_ = connections_max; }
  void close();

 private:
  struct Connection;
  using ConnectionPtr = std::shared_ptr<Connection>;

  void wait_for_connection();
  void accept_some();
  bool has_room(UserId user) const;
  void read_some(const ConnectionPtr& connection);
  void next_call(const ConnectionPtr& connection);
  void send(const ConnectionPtr& connection, std::string message);
  void write_some(const ConnectionPtr& connection);
  void drop(const ConnectionPtr& connection);

  boost::asio::io_context& io_;
  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer retry_;
  ControlService& service_;
  uint32_t connections_max_;
  std::set<ConnectionPtr> connections_;  // only ever closed together, so their order is of no matter
};

}  // namespace inferd::daemon
