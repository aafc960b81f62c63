// The ends of the three ways that `inferd-bench ipc` compares: our rings, a Unix stream socket, and
// a TCP connection over loopback that carries server-sent events. Owner: bench. Both ends are made
// before fork(); each is then used by one process, one thread. Must not know what is measured.
//
// A request and a record have 64 bytes on the ring and on the Unix socket; an event is a line of
// JSON, as HTTP servers send it, and costs nobody any formatting or parsing here.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/ids.h"
#include "base/result.h"
#include "ipc/server_session.h"

namespace inferd::bench {

enum class Way : uint8_t { kRing, kUnix, kSse };
inline constexpr std::array kWays = {Way::kRing, Way::kUnix, Way::kSse};
const char* way_name(Way way);

// The daemon's end: what the engine thread does with one client's rings.
class DaemonEnd {
 public:
  virtual ~DaemonEnd() = default;
  // Polls readable once a request comes, after prepare_sleep().
  virtual int fd() const = 0;
  // False if a request has come already.
  virtual bool prepare_sleep() = 0;
  // Takes the requests that have come; 0 if none. Does not block.
  virtual uint32_t take() = 0;
  // One record with one token. A socket sends it (and blocks while it is full); a ring shows it
  // when it is flushed, and returns false while it is full.
  virtual bool send(TokenId token) = 0;
  // Its rings, to be flushed after send(); null: there are none.
  virtual ipc::ServerSession* rings() { return nullptr; }
};

// The client's end: what client_lib does.
class ClientEnd {
 public:
  virtual ~ClientEnd() = default;
  virtual void request() = 0;
  // Takes the records that have come, and waits for one if there is none: looks for `spin_ns`
  // first, then sleeps. (A socket's reader sleeps at once.)
  virtual uint32_t receive(int64_t spin_ns) = 0;
  // The same without waiting.
  virtual uint32_t poll() = 0;
};

struct Channel {
  std::unique_ptr<DaemonEnd> daemon;
  std::unique_ptr<ClientEnd> client;
};
// Errors: kIo.
Result<Channel> open_channel(Way way);

}  // namespace inferd::bench
