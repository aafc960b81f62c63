#include "daemon/client_listener.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/units.h"
#include "daemon/engine_session.h"
#include "daemon/logging.h"
#include "daemon/step_loop.h"

namespace inferd::daemon {

namespace asio = boost::asio;

namespace {

constexpr int kAcceptsPerWake = 16;
constexpr std::chrono::milliseconds kAcceptRetry{100};

}  // namespace

struct ClientListener::Connection {
  Connection(asio::io_context& io, int fd) : socket(io, fd), deadline(io) {}

  asio::posix::stream_descriptor socket;  // owns the descriptor
  asio::steady_timer deadline;            // of the handshake
  SessionId id;
  ipc::PeerIdentity peer;
  bool in_engine = false;  // the engine has a session of this id
  Bytes rings;             // of its shared memory, once it was welcomed
  Bytes arena;
  bool closed = false;

  UserId user() const { return UserId(peer.uid); }
  std::array<LogField, 3> fields() const {
    return {{{"INFERD_SESSION", std::to_string(id.value)},
             {"INFERD_CLIENT_PID", std::to_string(peer.pid)},
             {"INFERD_CLIENT_UID", std::to_string(peer.uid)}}};
  }
  std::string described() const {
    return "session " + std::to_string(id.value) + " (pid " + std::to_string(peer.pid) + ", uid " +
           std::to_string(peer.uid) + ")";
  }
};

ClientListener::ClientListener(asio::io_context& io, UniqueFd socket, EngineMailbox& mailbox,
                               const Clock& clock, WelcomeFacts facts,
                               const Config::Limits& limits)
    : io_(io), socket_(io, socket.release()), retry_(io), mailbox_(mailbox), clock_(clock),
      facts_(std::move(facts)), limits_(limits) {}

ClientListener::~ClientListener() { close(); }

void ClientListener::start() { wait_for_connection(); }

void ClientListener::wait_for_connection() {
  socket_.async_wait(asio::posix::stream_descriptor::wait_read,
                     [this](const boost::system::error_code& error) {
                       if (!error) accept_some();
                     });
}

void ClientListener::accept_some() {
  for (int i = 0; i < kAcceptsPerWake; ++i) {
    UniqueFd fd(::accept4(socket_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      out_of_descriptors_ = false;
      open_connection(std::move(fd));
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) break;
    // The connection stays in the backlog and the socket readable: look again, but not at once.
    if (!out_of_descriptors_) {
      log_warn(std::string("cannot accept a client: ") + std::strerror(errno) +
               "; trying again every 100 ms (raise LimitNOFILE, or lower [limits] connections)");
    }
    out_of_descriptors_ = true;
    retry_.expires_after(kAcceptRetry);
    retry_.async_wait([this](const boost::system::error_code& error) {
      if (!error) wait_for_connection();
    });
    return;
  }
  wait_for_connection();
}

Result<void> ClientListener::check_room(UserId user) const {
  if (refusing_) {
    return Error(ErrorCode::kUnavailable,
                 "the daemon is shutting down; connect again when it is back");
  }
  if (connections_.size() >= limits_.connections) {
    return Error(ErrorCode::kResourceExhausted,
                 "the daemon has " + std::to_string(connections_.size()) +
                     " clients, as many as [limits] connections allows; try again later");
  }
  const auto own = by_user_.find(user);
  if (own != by_user_.end() && own->second.connections >= limits_.connections_per_user) {
    return Error(ErrorCode::kResourceExhausted,
                 "user " + std::to_string(user.value) + " has " +
                     std::to_string(own->second.connections) +
                     " connections, as many as [limits] connections_per_user allows; close one");
  }
  return {};
}

Result<void> ClientListener::check_memory(UserId user, const ipc::Geometry& geometry) const {
  const auto check = [&](const char* what, Bytes used, uint64_t more, Bytes limit,
                         const char* key) -> Result<void> {
    if (limit.value == 0 || used.value + more <= limit.value) return {};
    return Error(ErrorCode::kResourceExhausted,
                 "user " + std::to_string(user.value) + "'s connections have " +
                     format_bytes(used) + " of " + what + ", another takes " +
                     format_bytes(Bytes(more)) + ", and [limits] " + key + " allows " +
                     format_bytes(limit) + "; close one");
  };
  const UserUse& own = by_user_.at(user);
  INFERD_TRY(check("rings", own.rings, geometry.ring_bytes(), limits_.user_ring_bytes,
                   "user_ring_bytes"));
  return check("arenas for prompts", own.arenas, geometry.arena_bytes, limits_.user_arena_bytes,
               "user_arena_bytes");
}

void ClientListener::open_connection(UniqueFd socket) {
  const auto peer = ipc::peer_identity(socket.get());
  if (!peer) return;  // it is gone already
  auto connection = std::make_shared<Connection>(io_, socket.release());
  connection->id = SessionId(next_connection_++);
  connection->peer = *peer;
  if (const auto room = check_room(connection->user()); !room) {
    refuse(connection, room.error());
    return;
  }
  connections_.emplace(connection->id, connection);
  ++by_user_[connection->user()].connections;
  connection->deadline.expires_after(std::chrono::milliseconds(limits_.handshake_timeout_ms));
  connection->deadline.async_wait([this, connection](const boost::system::error_code& error) {
    if (!error && !connection->closed) drop(connection, "it did not say hello in time");
  });
  wait_for_message(connection);
}

void ClientListener::wait_for_message(const ConnectionPtr& connection) {
  connection->socket.async_wait(asio::posix::stream_descriptor::wait_read,
                                [this, connection](const boost::system::error_code& error) {
                                  if (!error && !connection->closed) on_readable(connection);
                                });
}

void ClientListener::on_readable(const ConnectionPtr& connection) {
  std::array<std::byte, ipc::kHandshakeBytesMax> buffer;
  const auto message =
      ipc::receive_message(connection->socket.native_handle(), buffer, 0, false);
  if (!message) {
    if (!connection->in_engine) refuse(connection, message.error());
    drop(connection, message.error().message());
    return;
  }
  switch (message->status) {
    case ipc::SocketStatus::kWouldBlock: wait_for_message(connection); return;
    case ipc::SocketStatus::kClosed: drop(connection, ""); return;
    case ipc::SocketStatus::kDone: break;
  }
  if (connection->in_engine) {
    drop(connection, "it sent a message after the handshake");
    return;
  }
  connection->deadline.cancel();
  const auto shaken =
      shake_hands(connection, std::span<const std::byte>(buffer).first(message->bytes));
  if (!shaken) {
    refuse(connection, shaken.error());
    drop(connection, shaken.error().message());
    return;
  }
  wait_for_message(connection);
}

Result<void> ClientListener::shake_hands(const ConnectionPtr& connection,
                                         std::span<const std::byte> message) {
  INFERD_ASSIGN(const ipc::Hello hello, ipc::decode_hello(message));
  INFERD_ASSIGN(const uint64_t features, ipc::agree_features(hello, ipc::kFeatures, 0));
  INFERD_ASSIGN(const ipc::ModelInfo* model, model_named(hello.model_name));
  INFERD_ASSIGN(const CacheDomain domain, shared_domain(connection->socket.native_handle(),
                                                        connection->peer, hello.cache_domain));
  const ipc::Geometry geometry = session_geometry(
      limits_.sequences_per_session, facts_.running_max, model->context_tokens);
  INFERD_TRY(check_memory(connection->user(), geometry));
  INFERD_ASSIGN(std::unique_ptr<ipc::ServerSession> session,
                ipc::ServerSession::create(geometry, connection->id, features));
  ipc::Welcome welcome;
  welcome.features = features;
  welcome.session_id = connection->id.value;
  welcome.geometry = geometry;
  welcome.text_tables_bytes = facts_.text_tables_bytes;
  welcome.model = *model;
  welcome.models = facts_.models;
  welcome.daemon_version = INFERD_VERSION;
  INFERD_ASSIGN(const ipc::SocketStatus sent,
                ipc::send_message(connection->socket.native_handle(), ipc::encode_welcome(welcome),
                                  session->client_fds(facts_.text_tables_fd)));
  if (sent != ipc::SocketStatus::kDone) {
    return Error(ErrorCode::kUnavailable, "the client left before it was welcomed");
  }
  session->close_client_fds();
  SessionFacts facts;
  facts.id = connection->id;
  facts.user = connection->user();
  facts.pid = connection->peer.pid;
  facts.client = printable(hello.client_name);
  facts.connected_ns = clock_.now_ns();
  facts.domain = domain;
  facts.weight = facts_.weights.of(facts.user);
  facts.privileged = facts.user == UserId(0) || facts.user == facts_.admin;
  connection->in_engine = true;
  connection->rings = Bytes(geometry.ring_bytes());
  connection->arena = Bytes(geometry.arena_bytes);
  UserUse& own = by_user_.at(connection->user());
  own.rings += connection->rings;
  own.arenas += connection->arena;
  // std::function wants to be copied, a session cannot be.
  auto box = std::make_shared<std::unique_ptr<ipc::ServerSession>>(std::move(session));
  mailbox_.post([box, facts, sequences_max = limits_.sequences_per_session](StepLoop& loop) {
    loop.add_session(std::move(*box), facts, sequences_max);
  });
  log_message(LogLevel::kDebug, connection->described() + " connected: " + facts.client,
              connection->fields());
  return {};
}

// The model that a hello names; the first if it names none.
Result<const ipc::ModelInfo*> ClientListener::model_named(const std::string& name) const {
  if (name.empty()) return &facts_.models.front();
  std::string names;
  for (const ipc::ModelInfo& model : facts_.models) {
    if (model.name == name) return &model;
    names += (names.empty() ? "'" : ", '") + model.name + "'";
  }
  return Error(ErrorCode::kNotFound,
               "this daemon has no model '" + printable(name) + "'; it serves " + names);
}

// The domain that a hello names; 0 if it names none.
Result<CacheDomain> ClientListener::shared_domain(int socket, const ipc::PeerIdentity& peer,
                                                  const std::string& name) const {
  if (name.empty()) return CacheDomain();
  INFERD_ASSIGN(std::vector<gid_t> groups, ipc::peer_groups(socket));
  groups.push_back(peer.gid);
  return facts_.cache_domains.shared(name, UserId(peer.uid), groups);
}

void ClientListener::refuse(const ConnectionPtr& connection, const Error& error) {
  // Best effort: who does not take the answer only misses the reason.
  static_cast<void>(
      ipc::send_message(connection->socket.native_handle(), ipc::encode_refusal(error)).ok());
  log_message(LogLevel::kDebug,
              connection->described() + " refused: " + printable(error.message()),
              connection->fields());
}

void ClientListener::drop(const ConnectionPtr& connection, std::string_view reason) {
  if (connection->closed) return;
  connection->closed = true;
  connection->deadline.cancel();
  boost::system::error_code ignored;
  connection->socket.close(ignored);
  if (connections_.erase(connection->id) > 0) {
    const auto own = by_user_.find(connection->user());
    own->second.rings -= connection->rings;
    own->second.arenas -= connection->arena;
    if (--own->second.connections == 0) by_user_.erase(own);
  }
  if (connection->in_engine) {
    mailbox_.post([id = connection->id](StepLoop& loop) { loop.remove_session(id); });
  }
  log_message(LogLevel::kDebug,
              connection->described() + " ended" +
                  (reason.empty() ? std::string() : ": " + printable(reason)),
              connection->fields());
}

void ClientListener::session_ended(SessionId session, const Error& reason) {
  const auto found = connections_.find(session);
  if (found == connections_.end()) return;
  const ConnectionPtr connection = found->second;
  if (reason.code() == ErrorCode::kProtocol || reason.code() == ErrorCode::kTimedOut) {
    log_message(LogLevel::kWarn, connection->described() + ": " + printable(reason.message()),
                connection->fields());
  }
  drop(connection, reason.message());
}

void ClientListener::close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
  retry_.cancel();
  while (!connections_.empty()) {
    const ConnectionPtr connection = connections_.begin()->second;
    drop(connection, "the daemon is shutting down");
  }
}

}  // namespace inferd::daemon
