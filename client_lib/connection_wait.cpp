// Connection: waiting, alone or beside other threads. The argument is in connection.h.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "client_lib/connection.h"
#include "ipc/doorbell.h"

namespace inferd::client_lib {
namespace {

constexpr auto kNapWhileFull = std::chrono::microseconds(200);
constexpr uint32_t kSpinsBetweenClocks = 64;

inline void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

bool passed(const std::optional<Deadline>& deadline) {
  return deadline && std::chrono::steady_clock::now() >= *deadline;
}

}  // namespace

Connection::Arrival Connection::collect(Sequence& sequence, bool block,
                                        const std::optional<Deadline>& deadline) {
  Lock lock(mutex_);
  const auto something = [&] { return !sequence.pending_.empty() || sequence.ended_; };
  const Reader reader = {&sequence, !block};
  pump(reader);
  if (!block && !something()) {
    arm_for_event_loop(reader);
    if (!something()) check_peer(reader);
    if (!something()) sequence.polled_round_ = poll_round_;
  }
  while (block && !something() && !passed(deadline)) {
    if (leader_ == nullptr) {
      lead(lock, sequence, deadline);
      continue;
    }
    waiters_.push_back(&sequence);
    sequence.waiting_ = true;
    if (deadline) {
      sequence.arrived_.wait_until(lock, *deadline);
    } else {
      sequence.arrived_.wait(lock);
    }
    sequence.waiting_ = false;
    waiters_.erase(std::find(waiters_.begin(), waiters_.end(), &sequence));
  }
  if (block) {
    hand_over_lead();
    arm_for_event_loop({&sequence, false});
  }
  std::swap(sequence.incoming_, sequence.pending_);
  Arrival arrival;
  arrival.ended = sequence.ended_;
  if (sequence.ended_) {
    arrival.lost = sequence.lost_;
    arrival.reason = sequence.reason_;
    arrival.error = sequence.error_;
  }
  return arrival;
}

// One turn as the leader: sleeps until something is in the ring, or until `deadline`.
void Connection::lead(Lock& lock, Sequence& sequence, const std::optional<Deadline>& deadline) {
  leader_ = &sequence;
  if (options_.spin_us > 0) spin(lock, deadline);
  if (completions_.available() == 0 && !dead_ && sequence.pending_.empty() && !sequence.ended_) {
    sleeper_.arm();
    if (completions_.available() == 0) sleep_on_doorbell(lock, deadline);
    sleeper_.disarm();
  }
  leader_ = nullptr;
  pump({&sequence, false});
}

void Connection::sleep_on_doorbell(Lock& lock, const std::optional<Deadline>& deadline) {
  pollfd pollers[3] = {{completion_bell_.get(), POLLIN, 0},
                       {socket_.get(), POLLIN, 0},
                       {nudge_fd_.get(), POLLIN, 0}};
  timespec left = {};
  if (deadline) {
    const int64_t ns = std::max<int64_t>(
        0, std::chrono::nanoseconds(*deadline - std::chrono::steady_clock::now()).count());
    left.tv_sec = ns / 1'000'000'000;
    left.tv_nsec = ns % 1'000'000'000;
  }
  lock.unlock();
  const int ready = ppoll(pollers, 3, deadline ? &left : nullptr, nullptr);
  lock.lock();
  if (ready <= 0) return;  // the deadline, or a signal: the caller looks again
  if (pollers[0].revents != 0) ipc::clear_doorbell(completion_bell_.get());
  if (pollers[2].revents != 0) {
    uint64_t count;
    static_cast<void>(!read(nudge_fd_.get(), &count, sizeof(count)));
  }
  // A closed doorbell means that the daemon is about to be gone: its socket follows at once.
  if (pollers[1].revents != 0 || (pollers[0].revents & POLLHUP) != 0) check_peer({});
}

// Looks at the ring's tail without lock or system call, for at most options_.spin_us.
void Connection::spin(Lock& lock, const std::optional<Deadline>& deadline) {
  const uint64_t seen = completions_.head();
  if (completions_.available() != 0) return;
  Deadline end = std::chrono::steady_clock::now() + std::chrono::microseconds(options_.spin_us);
  if (deadline) end = std::min(end, *deadline);
  lock.unlock();
  do {
    for (uint32_t i = 0; i < kSpinsBetweenClocks; ++i) {
      if (completion_tail_->value.load(std::memory_order_acquire) != seen) break;
      pause_cpu();
    }
  } while (completion_tail_->value.load(std::memory_order_acquire) == seen &&
           std::chrono::steady_clock::now() < end);
  lock.lock();
}

// Points 1 and 2: while others wait, one of them is or becomes the leader.
void Connection::hand_over_lead() {
  if (leader_ == nullptr && !waiters_.empty()) waiters_.front()->arrived_.notify_one();
}

// ---- for submissions ----

Result<ArenaBlock> Connection::acquire_block(Lock& lock, uint64_t bytes, Deadline deadline) {
  for (;;) {
    pump({});
    if (!dead_) check_peer({});
    if (dead_) return *dead_;
    if (const auto block = arena_.acquire(bytes)) {
      arm_for_event_loop({});
      return *block;
    }
    if (passed(deadline)) {
      return Error(ErrorCode::kResourceExhausted,
                   "the prompts that the daemon has not taken yet fill the connection's arena of " +
                       std::to_string(welcome_.geometry.arena_bytes) +
                       " bytes; wait for some answers, then submit again");
    }
    lock.unlock();
    std::this_thread::sleep_for(kNapWhileFull);
    lock.lock();
  }
}

Result<void> Connection::wait_for_slots(Lock& lock, uint32_t slots, Deadline deadline) {
  for (;;) {
    if (dead_) return *dead_;
    const uint64_t free = submissions_.free_slots(slots);
    if (free == ipc::kRingBroken) {
      return Error(ErrorCode::kProtocol, "the daemon broke the ring protocol (its index)");
    }
    if (free >= slots && unsent_.empty()) return {};
    if (passed(deadline)) {
      return Error(ErrorCode::kResourceExhausted,
                   "the daemon has not taken the earlier submissions for a second; it is "
                   "overloaded or stuck: see 'inferctl status' and try again");
    }
    lock.unlock();
    std::this_thread::sleep_for(kNapWhileFull);
    lock.lock();
    pump({});
    check_peer({});
  }
}

template <typename T>
Result<T> Connection::await_outcome(Lock& lock, const std::optional<Result<T>>& answer,
                                   Deadline deadline, const char* late) {
  for (;;) {
    pump({});
    if (!dead_) check_peer({});
    if (answer) return *answer;
    if (dead_) return *dead_;
    if (passed(deadline)) return Error(ErrorCode::kTimedOut, late);
    lock.unlock();
    std::this_thread::sleep_for(kNapWhileFull);
    lock.lock();
  }
}
template Result<void> Connection::await_outcome(Lock&, const std::optional<Result<void>>&, Deadline,
                                               const char*);
template Result<uint32_t> Connection::await_outcome(Lock&, const std::optional<Result<uint32_t>>&,
                                                   Deadline, const char*);

}  // namespace inferd::client_lib
