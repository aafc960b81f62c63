// Accepts clients, shakes hands, and hands their sessions to the engine thread; notices their death.
// Owner: the daemon. Control thread only (the thread of its io_context). Must not know models beyond
// the facts that a welcome tells, nor schedules.
//
// A connection that ends, for whatever reason, is followed by remove_session() on the engine thread,
// which frees all that the client had before the next step.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/cache_domains.h"
#include "daemon/config.h"
#include "daemon/engine_mailbox.h"
#include "daemon/user_weights.h"
#include "ipc/handshake.h"
#include "ipc/server_session.h"
#include "ipc/socket.h"

namespace inferd::daemon {

// What every welcome tells, and what sessions are made of.
struct WelcomeFacts {
  std::vector<ipc::ModelInfo> models;  // at least one, which is who names none is given
  int text_tables_fd = -1;  // borrowed; read-only and immutable
  uint64_t text_tables_bytes = 0;
  uint32_t running_max = 0;  // sequences that run at once, all sessions together
  CacheDomains cache_domains;
  UserWeights weights;
  UserId admin;  // the daemon's own user
};

class ClientListener {
 public:
  // `socket` listens and does not block. Everything borrowed outlives the listener.
  ClientListener(boost::asio::io_context& io, UniqueFd socket, EngineMailbox& mailbox,
                 const Clock& clock, WelcomeFacts facts, const Config::Limits& limits);
  ~ClientListener();

  void start();
  // From now on clients are refused with kUnavailable; those that are connected stay.
  void refuse_new() { refusing_ = true; }
  void set_limits(const Config::Limits& limits) { limits_ = limits; }
  // The engine ended this session: its connection is closed.
  void session_ended(SessionId session, const Error& reason);
  // Closes every connection and the listening socket.
  void close();

  uint32_t connections() const { return static_cast<uint32_t>(connections_.size()); }

 private:
  struct Connection;
  using ConnectionPtr = std::shared_ptr<Connection>;

  void wait_for_connection();
  void accept_some();
  void open_connection(UniqueFd socket);
  void wait_for_message(const ConnectionPtr& connection);
  void on_readable(const ConnectionPtr& connection);
  Result<void> shake_hands(const ConnectionPtr& connection, std::span<const std::byte> message);
  Result<void> check_room(UserId user) const;
  Result<const ipc::ModelInfo*> model_named(const std::string& name) const;
  Result<void> check_memory(UserId user, const ipc::Geometry& geometry) const;
  Result<CacheDomain> shared_domain(int socket, const ipc::PeerIdentity& peer,
                                    const std::string& name) const;
  void refuse(const ConnectionPtr& connection, const Error& error);
  void drop(const ConnectionPtr& connection, std::string_view reason);

  boost::asio::io_context& io_;
  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer retry_;
  EngineMailbox& mailbox_;
  const Clock& clock_;
  const WelcomeFacts facts_;
  Config::Limits limits_;
  bool refusing_ = false;
  bool out_of_descriptors_ = false;  // said so in the log
  uint64_t next_connection_ = 1;
  std::map<SessionId, ConnectionPtr> connections_;  // by the id that the session has or would have
  // What one user's connections come to.
  struct UserUse {
    uint32_t connections = 0;
    Bytes rings;  // of those that were welcomed
    Bytes arenas;
  };
  std::map<UserId, UserUse> by_user_;
};

}  // namespace inferd::daemon
