// What the control socket's methods do. Knows calls and replies, not sockets or bytes.
// Owner: the daemon. Control thread only. The engine's state is asked for through the mailbox, so a
// reply may come later; it always comes on the control thread, unless the engine has stopped.
#pragma once

#include <boost/asio/io_context.hpp>

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "daemon/accounts.h"
#include "daemon/cache_domains.h"
#include "daemon/config.h"
#include "daemon/control_codec.h"
#include "daemon/engine_mailbox.h"
#include "daemon/engine_snapshot.h"
#include "engine/engine.h"

namespace inferd::daemon {

// What a reload did.
struct ReloadReport {
  std::vector<ConfigDifference> applied;
  std::vector<ConfigDifference> needs_restart;
};

// What the service asks of the daemon around it. Control thread.
class ControlHost {
 public:
  virtual ~ControlHost() = default;
  virtual void start_drain() = 0;
  virtual Result<ReloadReport> reload() = 0;
  virtual void change_log_level(std::string_view level) = 0;
  virtual const CacheDomains& cache_domains() const = 0;
};

class ControlService {
 public:
  // A whole message, its NUL included, to be sent to the caller.
  using Reply = std::function<void(std::string message)>;

  // All borrowed things outlive the service. `admin` is the daemon's own uid; root is one as well.
  ControlService(boost::asio::io_context& io, EngineMailbox& mailbox, const Clock& clock,
                 ControlHost& host, std::vector<engine::ModelInfo> models, UserId admin);

  // Answers one message of `caller` (without its NUL), now or later, exactly once. A oneway call is
  // answered with an empty string: nothing is to be sent, and the next message may be handled.
  void handle(std::string_view message, UserId caller, const Reply& reply);

  // Root, and the user that the daemon runs as.
  bool is_privileged(UserId user) const { return user == UserId(0) || user == admin_; }

 private:
  struct Call {
    ControlCall message;
    UserId caller;
    bool privileged = false;
    Reply reply;
  };
  using Method = void (ControlService::*)(const Call&);
  struct MethodSpec {
    std::string_view name;
    Method method;
    bool privileged;
    std::vector<std::string_view> parameters;  // those that it takes
  };
  static const std::vector<MethodSpec>& methods();

  void handle_service(const Call& call);
  void handle_control(const Call& call);
  void status(const Call& call);
  void list(const Call& call);
  void ps(const Call& call);
  void top(const Call& call);
  void vmstat(const Call& call);
  void cancel(const Call& call);
  void renice(const Call& call);
  void cache_stat(const Call& call);   // control_cache.cpp
  void cache_flush(const Call& call);  // control_cache.cpp
  void cache_pin(const Call& call);    // control_cache.cpp
  void cache_unpin(const Call& call);  // control_cache.cpp
  void verify(const Call& call);
  void drain(const Call& call);
  void reload(const Call& call);
  void log_level(const Call& call);
  void metrics(const Call& call);

  // Takes a snapshot on the engine thread, and calls `then` with it on the control thread.
  void with_snapshot(std::function<void(const EngineSnapshot&)> then);
  // The same with the accounts, taken between the same two steps.
  void with_accounts(
      std::function<void(const EngineSnapshot&, const AccountsSnapshot&)> then);
  double uptime_s() const;

  boost::asio::io_context& io_;
  EngineMailbox& mailbox_;
  const Clock& clock_;
  ControlHost& host_;
  const std::vector<engine::ModelInfo> models_;
  const UserId admin_;
  const int64_t started_ns_;
};

}  // namespace inferd::daemon
