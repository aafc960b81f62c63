// A session with the daemon, as a client sees it: the rings' other ends, who reads them when
// several threads wait, and what happens when the daemon goes away. Owner: client_lib. Any thread,
// several at once. Must not know what is done with tokens and text.
//
// One lock guards everything but the text. It is held for copying records, never while sleeping.
//
// Several threads may wait, each for its own sequence. One of them, the leader, sleeps in poll() on
// the doorbell; the others sleep on their sequences' condition variables. Whoever holds the lock
// may read the ring and hands each record to the sequence that it belongs to.
//   1. A waiter becomes leader under the lock if there is none; so with waiters there is a leader,
//   or
//      one of them was notified and is about to become it.
//   2. The leader gives up its place under the lock, and then notifies one other waiter. A waiter
//   that
//      leaves for any other reason does the same, so a notification is never swallowed.
//   3. Records for a waiter are noticed by it: handing one over notifies its condition variable,
//   or,
//      if it is the leader and somebody else read the ring, rings nudge_fd_, which the leader
//      polls.
//   4. In an event loop (fd() was called) the wake word is armed whenever nobody leads. event_fd_,
//   which
//      is part of fd(), is rung for a sequence that nobody waits for if its records were read by a
//      thread that waits or submits, or by the event loop itself after it had found the sequence
//      empty in this round.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "client_lib/arena_allocator.h"
#include "client_lib/fork_guard.h"
#include "client_lib/model_text.h"
#include "client_lib/sequence.h"
#include "ipc/handshake.h"
#include "ipc/region.h"
#include "ipc/ring.h"
#include "ipc/submission_check.h"

namespace inferd::client_lib {

using Deadline = std::chrono::steady_clock::time_point;

struct ConnectOptions {
  std::optional<std::string> socket_path;
  std::string model;
  std::string client_name;
  int timeout_ms = 5000;
  uint32_t spin_us = 0;
  std::string cache_domain;
};

// A submission before it has a place in the arena. `fields` without header and offsets.
struct Draft {
  ipc::SubmitRecord fields = {};
  uint32_t flags = 0;
  std::span<const TokenId> prompt;
  std::span<const ipc::LogitBiasEntry> bias;
  std::vector<std::string> stop;
  bool continues_text = false;  // a leading space of the answer belongs to it
  // A fork's: the end of the prompt that is its parent's answer, in the middle of which it may be.
  std::span<const TokenId> answered;
};

// A sequence as it was when its connection was lost.
struct LostRequest : Request {
  Lineage lineage;
};

class Connection {
 public:
  // Blocks up to options.timeout_ms.
  static Result<std::unique_ptr<Connection>> open(const ConnectOptions& options);
  // As open() with the options of this one, again and again for up to timeout_ms while nobody is
  // there. Blocks.
  Result<std::unique_ptr<Connection>> open_again(int timeout_ms) const;
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // kInvalidArgument in a child process: to be asked before anything else is, since there a lock may
  // be held for ever.
  Result<void> check_process() const { return fork_guard_.check(); }
  const ipc::Welcome& welcome() const { return welcome_; }
  const ModelText& text() const { return *text_; }

  // Blocks up to a second while ring or arena are full. The sequence belongs to the connection.
  Result<Sequence*> submit(const Draft& draft);
  // A sequence of this connection that has ended before it was submitted, for `reason`.
  Sequence* add_over(const Draft& draft, inferd_finish reason);
  void cancel(Sequence& sequence);
  // Blocks for the daemon's answer, up to ten seconds. Errors: kNotFound (it has ended),
  // kPermissionDenied, kUnsupported (an older daemon), those of a lost connection.
  Result<void> renice(Sequence& sequence, uint8_t priority, int32_t nice);
  // Pins what the daemon has cached of a prompt; returns of how many tokens. Blocks for the daemon's
  // answer, up to ten seconds. Errors: kNotFound (nothing is cached), kResourceExhausted (a limit),
  // kUnsupported (an older daemon), those of a lost connection.
  Result<uint32_t> pin(std::span<const TokenId> prompt);
  // Ends all pins of the user; returns of how many tokens. The same errors.
  Result<uint32_t> unpin();
  // What a sequence that was lost with this connection had been asked for, and got. Errors:
  // kInvalidArgument (it was not lost).
  Result<LostRequest> lost_request(Sequence& sequence);
  void close(Sequence* sequence);
  // A stop string matched after `delivered` tokens: the daemon may stop, and nothing more is
  // wanted.
  void truncate(Sequence& sequence, uint32_t delivered);
  Progress progress(const Sequence& sequence) const;

  // Moves what has arrived to sequence.incoming_ (empty before). Waits until `deadline` if that is
  // nothing and the sequence goes on; no deadline: for ever; !block: not at all.
  struct Arrival {
    bool ended = false;  // nothing more will come
    bool lost = false;   // because the connection was lost
    inferd_finish reason = INFERD_FINISH_NONE;
    std::optional<Error> error;
  };
  Arrival collect(Sequence& sequence, bool block, const std::optional<Deadline>& deadline);

  // For event loops, as inferd_connection_fd() and inferd_connection_clear().
  int fd();
  void clear();

 private:
  Connection() = default;
  using Lock = std::unique_lock<std::mutex>;

  Result<void> adopt(ipc::Welcome welcome, std::vector<UniqueFd> fds);
  Result<void> set_up_event_fd();

  // ---- ring (connection_ring.cpp); all with the lock held ----
  // On whose behalf a thread reads the ring.
  struct Reader {
    const Sequence* sequence = nullptr;  // no need to notify it
    bool polling = false;                // it does not wait: it is the event loop's own thread
  };
  void pump(Reader reader);
  bool take_record();
  void handle_record(Reader reader);
  void handle_tokens(Sequence& sequence);
  void handle_finished(Sequence& sequence);
  void handle_reniced();
  void handle_pinned();
  Error read_sentence() const;
  void nudge_leader();
  void notify(Sequence& sequence, Reader reader);
  void end_sequence(Sequence& sequence, inferd_finish reason, std::optional<Error> error);
  void die(Error error, Reader reader);
  void check_peer(Reader reader);
  void release_block(uint64_t cookie);
  void post(const void* record, uint32_t bytes);
  void send_or_keep(const ipc::DeliveredRecord& record);
  void send_unsent();
  void arm_for_event_loop(Reader reader);

  // ---- waiting (connection_wait.cpp) ----
  void lead(Lock& lock, Sequence& sequence, const std::optional<Deadline>& deadline);
  void sleep_on_doorbell(Lock& lock, const std::optional<Deadline>& deadline);
  void spin(Lock& lock, const std::optional<Deadline>& deadline);
  void hand_over_lead();
  Result<ArenaBlock> acquire_block(Lock& lock, uint64_t bytes, Deadline deadline);
  Result<void> wait_for_slots(Lock& lock, uint32_t slots, Deadline deadline);
  // Until `answer` is there, which reading the ring sets. kTimedOut: `late`.
  template <typename T>
  Result<T> await_outcome(Lock& lock, const std::optional<Result<T>>& answer, Deadline deadline,
                         const char* late);
  Result<void> check_pins() const;
  Result<uint32_t> ask_to_pin(Lock& lock, ipc::PinRecord record, Deadline deadline);
  // Where a prompt of so many ids and other things, in bytes, come to lie in the arena.
  Result<ArenaBlock> place(Lock& lock, size_t prompt_ids, uint64_t other_bytes, Deadline deadline);
  std::unique_ptr<Sequence> make_sequence(const Draft& draft, uint64_t cookie);

  // Fixed after open().
  ForkGuard fork_guard_;
  ConnectOptions options_;
  ipc::Welcome welcome_;
  std::unique_ptr<ModelText> text_;
  UniqueFd socket_;
  UniqueFd submission_bell_;       // rung here
  UniqueFd completion_bell_;       // polled and emptied here
  UniqueFd nudge_fd_;              // eventfd: wakes the leader
  UniqueFd event_fd_;              // eventfd: wakes the event loop
  UniqueFd epoll_fd_;              // what fd() returns
  ipc::SharedRegion client_region_;
  ipc::SharedRegion token_region_;
  const ipc::IndexLine* completion_tail_ = nullptr;  // for spinning without the lock

  mutable std::mutex mutex_;
  // All below: under mutex_.
  ipc::RingProducer submissions_;
  ipc::RingConsumer completions_;
  ipc::Sleeper sleeper_;
  ipc::Waker waker_;
  ArenaAllocator arena_;
  std::unordered_map<uint64_t, ArenaBlock> blocks_;  // by cookie, until the daemon has copied them
  std::unordered_map<uint64_t, std::unique_ptr<Sequence>> sequences_;  // by cookie
  std::vector<Sequence*> waiters_;  // those on condition variables, in order of arrival
  const Sequence* leader_ = nullptr;
  std::vector<ipc::DeliveredRecord> unsent_;  // cancellations and reports that found the ring full
  uint64_t last_cookie_ = 0;
  uint32_t last_tag_ = 0;
  std::unordered_map<uint32_t, std::optional<Result<void>>> renices_;   // by tag, while awaited
  std::unordered_map<uint64_t, std::optional<Result<uint32_t>>> pins_;  // by cookie, while awaited
  std::optional<Error> dead_;
  bool event_loop_ = false;        // fd() was called
  uint64_t poll_round_ = 0;        // counts clear()
  std::vector<std::byte> record_;  // the record in hand
};

// CLOCK_MONOTONIC.
int64_t now_ns();

}  // namespace inferd::client_lib
