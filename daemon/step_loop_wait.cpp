// StepLoop: which rings are polled and which ring a bell; how the engine thread sleeps.
//
// A session is awake (its submission ring is looked at in every turn) or asleep (it is not, and its
// client rings a bell that epoll reports). The protocol that loses no wake-up is in ipc/ring.h.
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/check.h"
#include "daemon/step_loop.h"

namespace inferd::daemon {

namespace {

// A session that submitted nothing in so many turns is put to sleep.
constexpr uint32_t kEmptyPollsMax = 64;
constexpr int64_t kMillisecondNs = 1'000'000;
constexpr int64_t kSecondNs = 1'000'000'000;

}  // namespace

void StepLoop::watch_bell(EngineSession& session) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;  // see ipc/doorbell.h
  event.data.u64 = session.facts().id.value;
  session.bell_watched = ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD,
                                     session.rings().submission_bell_fd(), &event) == 0;
  if (!session.bell_watched) {
    end_session(session, ErrorCode::kResourceExhausted,
                "the daemon cannot watch another client; see /proc/sys/fs/epoll/max_user_watches");
  }
}

void StepLoop::unwatch_bell(EngineSession& session) {
  if (!session.bell_watched) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, session.rings().submission_bell_fd(), nullptr);
  session.bell_watched = false;
}

// Puts sessions to sleep: those that were quiet for long, or all of them before the loop blocks.
// Returns false if one of those turned out to have submitted something.
bool StepLoop::arm_sessions(bool all) {
  bool quiet = true;
  std::erase_if(awake_, [&](EngineSession* session) {
    if (session->ended || (!all && session->empty_polls < kEmptyPollsMax)) return false;
    if (session->rings().prepare_sleep()) {
      session->awake = false;
      return true;
    }
    // Full rings are not drained, however much waits in them: that is no reason to stay up.
    if (session->drain_quota() > 0) quiet = false;
    return false;
  });
  return quiet;
}

int StepLoop::wait_timeout_ms(int64_t now_ns) const {
  int64_t timeout_ns = INT64_MAX;
  for (const EngineSession* session : flows_) {
    if (!session->paused) continue;
    // Its client reads without ringing, so look again soon, less often the longer it takes.
    const int64_t stalled_ns = now_ns - session->stalled_since_ns;
    timeout_ns = std::min(timeout_ns, std::clamp(stalled_ns / 8, kMillisecondNs,
                                                 50 * kMillisecondNs));
  }
  const int64_t deadline_ns = parts_.scheduler.deadline_next_ns();
  if (deadline_ns != INT64_MAX) timeout_ns = std::min(timeout_ns, deadline_ns - now_ns);
  if (drain_deadline_ns_) timeout_ns = std::min(timeout_ns, *drain_deadline_ns_ - now_ns);
  if (pages_to_give_back_) {
    timeout_ns = std::min(timeout_ns, idle_since_ns_ + limits_.give_back_ns - now_ns);
  }
  if (parts_.tier != nullptr && parts_.tier->fetch_due_ns() != INT64_MAX) {
    timeout_ns = std::min(timeout_ns, parts_.tier->fetch_due_ns() - now_ns);
  }
  const int64_t cache_due = cache_due_ns();
  if (cache_due != INT64_MAX) timeout_ns = std::min(timeout_ns, cache_due - now_ns);
  if (timeout_ns == INT64_MAX) return -1;
  // Rounded up: waking just before a deadline would spin until it.
  return static_cast<int>(std::clamp<int64_t>(timeout_ns, 0, 3'600'000 * kMillisecondNs) /
                              kMillisecondNs + 1);
}

void StepLoop::wait_for_events(bool may_block) {
  int timeout_ms = 0;
  const bool quiet = arm_sessions(may_block);
  if (may_block && quiet) {
    const int64_t now_ns = parts_.clock.now_ns();
    if (pages_to_give_back_ && now_ns - idle_since_ns_ >= limits_.give_back_ns) give_back_idle_pages();
    timeout_ms = wait_timeout_ms(now_ns);
  }
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), events.size(), timeout_ms);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    if (event.data.u64 != 0) take_bell(SessionId(event.data.u64));
  }
}

void StepLoop::take_bell(SessionId id) {
  EngineSession* session = find_session(id);
  if (session == nullptr || session->ended) return;
  session->rings().wake();
  session->empty_polls = 0;
  if (!session->awake) {
    session->awake = true;
    awake_.push_back(session);
  }
}

// When the cached page that was let go first has been there for cache_idle; pages are stamped by the
// second.
int64_t StepLoop::cache_due_ns() const {
  const memory::PagePool& pool = parts_.memory.pool();
  const std::optional<uint32_t> oldest_s = pool.oldest_cached_s();
  return oldest_s ? (int64_t{*oldest_s} + 1) * kSecondNs + limits_.cache_idle_ns : INT64_MAX;
}

void StepLoop::drop_idle_cache(int64_t now_ns) {
  constexpr uint32_t kPagesATurn = 256;
  parts_.memory.pool().set_now(static_cast<uint32_t>(now_ns / kSecondNs));
  if (now_ns < cache_due_ns()) return;
  const auto before_s = static_cast<uint32_t>((now_ns - limits_.cache_idle_ns) / kSecondNs);
  if (drop_cached(before_s, kPagesATurn) > 0) pages_to_give_back_ = true;
}

// With a next tier, no more than it can take at once; the rest follows when it has.
uint32_t StepLoop::drop_cached(uint32_t before_s, uint32_t count_max) {
  if (parts_.tier != nullptr && parts_.tier->accepts_stores()) {
    count_max = std::min(count_max, parts_.tier->stores_free());
  }
  const uint32_t count = parts_.memory.drop_cached(before_s, count_max);
  make_stores();
  return count;
}

PageCount StepLoop::relieve_memory() {
  ++counters_.memory_shortages;
  const uint32_t cached = parts_.memory.pool().counts().cached.value;
  relief_left_ = (cached + 1) / 2;
  relief_left_ -= drop_cached(UINT32_MAX, relief_left_);
  return give_back_idle_pages();
}

void StepLoop::go_on_relieving() {
  if (relief_left_ == 0) return;
  const uint32_t cached = parts_.memory.pool().counts().cached.value;
  relief_left_ = std::min(relief_left_, cached);
  const uint32_t count = drop_cached(UINT32_MAX, relief_left_);
  relief_left_ -= count;
  if (count > 0) give_back_idle_pages();
}

PageCount StepLoop::give_back_idle_pages() {
  make_stores();  // what ended since the last step may have left some
  std::array<PageId, 256> pages;
  PageCount given;
  size_t count;
  do {
    count = parts_.memory.pool().give_back(PageCount(0), pages);
    for (size_t i = 0; i < count; ++i) parts_.engine.page_released(pages[i]);
    given += PageCount(static_cast<uint32_t>(count));
  } while (count == pages.size());
  if (parts_.tier != nullptr) parts_.tier->give_back();
  counters_.pages_given_back += given.value;
  pages_to_give_back_ = false;
  return given;
}

}  // namespace inferd::daemon
