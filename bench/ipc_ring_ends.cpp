// The daemon's end is ipc::ServerSession itself. The client's takes the steps of
// client_lib/connection_wait.cpp over the same rings, wake words and doorbells, with the same three
// descriptors to poll.
#include "bench/ipc_ring_ends.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "bench/ipc_process.h"
#include "ipc/doorbell.h"

namespace inferd::bench {
namespace {

constexpr uint32_t kSpinsBetweenClocks = 64;  // as in client_lib
constexpr uint32_t kRecordsATurn = 16;        // as the step loop drains
constexpr uint64_t kCookie = 1;

// A request is a delivery report: the one submission of 64 bytes that needs no arena.
class CountingVisitor final : public ipc::SubmissionVisitor {
 public:
  void on_submit(const ipc::Submission&) override {}
  void on_refused(uint64_t, const Error&) override {}
  void on_cancel(uint64_t) override {}
  void on_delivered(uint64_t, uint32_t, bool) override { ++count; }
  void on_renice(const ipc::Renice&, const Result<void>&) override {}
  void on_pin(const ipc::Pin&, const Result<void>&) override {}

  uint32_t count = 0;
};

class RingDaemonEnd final : public DaemonEnd {
 public:
  explicit RingDaemonEnd(std::unique_ptr<ipc::ServerSession> session)
      : session_(std::move(session)) {}

  int fd() const override { return session_->submission_bell_fd(); }
  bool prepare_sleep() override { return session_->prepare_sleep(); }
  uint32_t take() override {
    session_->wake();
    visitor_.count = 0;
    const ipc::DrainOutcome outcome = session_->drain(kRecordsATurn, scratch_, visitor_);
    INFERD_CHECK(!outcome.broken);
    return visitor_.count;
  }
  bool send(TokenId token) override {
    ipc::TokensEvent event;
    event.first_index = sent_;
    event.ids = std::span(&token, 1);
    if (!session_->publish_tokens(kCookie, event)) return false;
    ++sent_;
    return true;
  }
  ipc::ServerSession* rings() override { return session_.get(); }

 private:
  std::unique_ptr<ipc::ServerSession> session_;
  ipc::DrainScratch scratch_;
  CountingVisitor visitor_;
  uint32_t sent_ = 0;
};

class RingClientEnd final : public ClientEnd {
 public:
  static Result<std::unique_ptr<ClientEnd>> open(const ipc::ServerSession& session) {
    std::unique_ptr<RingClientEnd> end(new RingClientEnd);
    const std::vector<int> fds = session.client_fds(-1);
    const ipc::Geometry& g = session.geometry();
    INFERD_ASSIGN(end->client_region_,
                  ipc::SharedRegion::map(UniqueFd(dup(fds[ipc::kFdClientRegion])),
                                         g.client_region_bytes(), ipc::Access::kReadWrite));
    INFERD_ASSIGN(end->token_region_,
                  ipc::SharedRegion::map(UniqueFd(dup(fds[ipc::kFdTokenRegion])),
                                         g.token_region_bytes(), ipc::Access::kReadOnly));
    end->submission_bell_ = UniqueFd(dup(fds[ipc::kFdSubmissionBell]));
    end->completion_bell_ = UniqueFd(dup(fds[ipc::kFdCompletionBell]));
    end->socket_ = UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    end->nudge_ = UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!end->submission_bell_ || !end->completion_bell_ || !end->socket_ || !end->nudge_) {
      return errno_error("cannot open a client's descriptors", errno);
    }
    end->attach(g);
    return std::unique_ptr<ClientEnd>(std::move(end));
  }

  void request() override {
    const ipc::DeliveredRecord record = {{ipc::kDelivered, 1, 0, 0, kCookie}, 1, 0, {}};
    INFERD_CHECK(submissions_.free_slots(1) >= 1);
    submissions_.begin(1);
    submissions_.append(&record, sizeof(record));
    submissions_.finish();
    submissions_.publish();
    if (waker_.should_ring()) ipc::ring_doorbell(submission_bell_.get());
  }

  uint32_t receive(int64_t spin_ns) override {
    if (spin_ns > 0) spin(spin_ns);
    while (completions_.available() == 0) {
      sleeper_.arm();
      if (completions_.available() == 0) sleep_on_doorbell();
      sleeper_.disarm();
    }
    return poll();
  }

  uint32_t poll() override {
    uint32_t count = 0;
    alignas(8) std::byte slot[ipc::kSlotBytes];
    while (completions_.available() != 0) {
      completions_.copy_slot(0, slot);
      ipc::TokensRecord record;
      std::memcpy(&record, slot, sizeof(record));
      INFERD_CHECK(record.header.type == ipc::kTokens && record.first_index == received_);
      completions_.skip(1);
      ++received_;
      ++count;
    }
    if (count > 0) completions_.publish();
    return count;
  }

 private:
  RingClientEnd() = default;

  void attach(const ipc::Geometry& g) {
    auto* client = reinterpret_cast<ipc::ClientControl*>(client_region_.data());
    auto* tokens = reinterpret_cast<ipc::TokenControl*>(token_region_.data());
    submissions_ =
        ipc::RingProducer(reinterpret_cast<ipc::Slot*>(client_region_.data() + ipc::kControlBytes),
                          g.submission_slots, &client->submission_tail, &tokens->submission_head);
    completions_ =
        ipc::RingConsumer(reinterpret_cast<ipc::Slot*>(token_region_.data() + ipc::kControlBytes),
                          g.completion_slots, &client->completion_head, &tokens->completion_tail);
    sleeper_ = ipc::Sleeper(&client->completion_wake);
    waker_ = ipc::Waker(&tokens->submission_wake);
  }
  void spin(int64_t spin_ns) {
    const int64_t end_ns = clock_.now_ns() + spin_ns;
    do {
      for (uint32_t i = 0; i < kSpinsBetweenClocks; ++i) {
        if (completions_.available() != 0) return;
        pause_cpu();
      }
    } while (clock_.now_ns() < end_ns);
  }
  void sleep_on_doorbell() {
    pollfd pollers[3] = {
        {completion_bell_.get(), POLLIN, 0}, {socket_.get(), POLLIN, 0}, {nudge_.get(), POLLIN, 0}};
    if (ppoll(pollers, 3, nullptr, nullptr) > 0) ipc::clear_doorbell(completion_bell_.get());
  }

  MonotonicClock clock_;
  ipc::SharedRegion client_region_;
  ipc::SharedRegion token_region_;
  UniqueFd submission_bell_;
  UniqueFd completion_bell_;
  UniqueFd socket_;  // stands in for the connection, on which nothing ever comes
  UniqueFd nudge_;
  ipc::RingProducer submissions_;
  ipc::RingConsumer completions_;
  ipc::Sleeper sleeper_;
  ipc::Waker waker_;
  uint32_t received_ = 0;
};

}  // namespace

Result<Channel> open_ring_channel() {
  INFERD_ASSIGN(std::unique_ptr<ipc::ServerSession> session,
                ipc::ServerSession::create(ipc::Geometry{}, SessionId(1), ipc::kFeatures));
  Channel channel;
  INFERD_ASSIGN(channel.client, RingClientEnd::open(*session));
  session->close_client_fds();
  channel.daemon = std::make_unique<RingDaemonEnd>(std::move(session));
  return channel;
}

}  // namespace inferd::bench
