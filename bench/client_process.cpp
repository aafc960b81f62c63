// Over the socket between the two go `Message`s one way, and a `ReportHeader` with its arrivals the
// other. Neither leaves the machine or outlives the run.
#include "bench/client_process.h"

#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <type_traits>
#include <utility>

#include "base/clock.h"
#include "base/prng.h"

namespace inferd::bench {
namespace {

constexpr int64_t kSilenceMaxMs = 600'000;

struct Message {
  Order order;
  bool end = false;  // the answer under way; `order` means nothing then
};

struct ReportHeader {
  bool failed = false;
  char error[512] = {};
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  int64_t asked_ns = 0;
  inferd_finish finish = INFERD_FINISH_NONE;
  uint64_t arrivals = 0;  // that follow
};
static_assert(std::is_trivially_copyable_v<Message> && std::is_trivially_copyable_v<ReportHeader>);

bool send_bytes(int fd, const void* bytes, size_t count) {
  const auto* at = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t sent = send(fd, at, count, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    at += sent;
    count -= static_cast<size_t>(sent);
  }
  return true;
}

bool receive_bytes(int fd, void* bytes, size_t count) {
  auto* at = static_cast<char*>(bytes);
  while (count > 0) {
    const ssize_t received = recv(fd, at, count, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return false;
    at += received;
    count -= static_cast<size_t>(received);
  }
  return true;
}

bool has_bytes(int fd) {
  char byte;
  return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != -1;
}

Result<void> become(uid_t user) {
  if (setgroups(0, nullptr) != 0 || setresgid(user, user, user) != 0 ||
      setresuid(user, user, user) != 0) {
    return errno_error("cannot become user " + std::to_string(user) + " (only root can)", errno);
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // which a change of identity takes back
  return {};
}

// The client's side.
class Worker {
 public:
  Worker(int channel, client::Connection connection)
      : channel_(channel),
        connection_(std::move(connection)),
        vocabulary_(connection_.model().vocabulary) {}

  Result<void> obey(const Order& order) {
    std::vector<int32_t> ids;
    Prng prng(order.seed);
    while (ids.size() < order.prompt_tokens) {
      ids.push_back(static_cast<int32_t>(prng.below(vocabulary_)));
    }
    client::Sampling sampling = exactly(order.gen_tokens);
    sampling.logprobs = order.top_logprobs > 0;
    sampling.top_logprobs = order.top_logprobs;
    const int64_t asked_ns = MonotonicClock().now_ns();
    INFERD_ASSIGN(client::Sequence sequence, submit_ids(connection_, std::move(ids), sampling));
    TimedAnswer answer;
    bool told = !order.endless;
    bool ending = !order.endless;
    while (answer.finish == INFERD_FINISH_NONE) {
      INFERD_ASSIGN(const bool came, read_timed_event(sequence, kSilenceMaxMs, answer));
      if (!came) return Error(ErrorCode::kTimedOut, "no token came for ten minutes");
      if (!told && !answer.arrivals.empty()) {
        send_report(asked_ns, answer, {});
        told = true;
      }
      if (!ending && has_bytes(channel_)) {
        ending = true;
        sequence.cancel();
      }
    }
    if (order.endless) {
      Message end;  // comes in any case
      if (!receive_bytes(channel_, &end, sizeof(end))) _exit(1);
    }
    INFERD_ASSIGN(const client::Usage usage, usage_of(sequence));
    send_report(asked_ns, answer, usage);
    return {};
  }

 private:
  void send_report(int64_t asked_ns, const TimedAnswer& answer, const client::Usage& usage) const {
    ReportHeader header;
    header.asked_ns = asked_ns;
    header.prompt_tokens = usage.prompt_tokens;
    header.cached_tokens = usage.cached_tokens;
    header.finish = answer.finish;
    header.arrivals = answer.arrivals.size();
    if (!send_bytes(channel_, &header, sizeof(header)) ||
        !send_bytes(channel_, answer.arrivals.data(), header.arrivals * sizeof(TokenArrival))) {
      _exit(1);
    }
  }

  int channel_;
  client::Connection connection_;
  uint32_t vocabulary_;
};

// Reports the error, after which the process waits to be killed: one that ends by itself ends the
// measuring one, see Child.
void fail(int channel, const Error& error) {
  ReportHeader header;
  header.failed = true;
  std::snprintf(header.error, sizeof(header.error), "%s", error.message().c_str());
  send_bytes(channel, &header, sizeof(header));
  for (;;) pause();
}

void serve_orders(const ClientOptions& options, int channel) {
  if (options.user) {
    if (const Result<void> became = become(*options.user); !became) fail(channel, became.error());
  }
  Result<client::Connection> connection =
      connect_client(options.socket, options.model, options.cache_domain);
  if (!connection) {
    const std::string who = options.user ? "user " + std::to_string(*options.user) : "a client";
    fail(channel, connection.error().with_context(who));
  }
  Worker worker(channel, std::move(connection).value());
  const ReportHeader ready;
  send_bytes(channel, &ready, sizeof(ready));
  Message message;
  while (receive_bytes(channel, &message, sizeof(message))) {
    if (const Result<void> done = worker.obey(message.order); !done) fail(channel, done.error());
  }
}

}  // namespace

double Report::ttft_ms() const {
  INFERD_CHECK(!arrivals.empty());
  return static_cast<double>(arrivals.front().at_ns - asked_ns) * 1e-6;
}

Result<ClientProcess> ClientProcess::start(const ClientOptions& options) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return errno_error("cannot make a pair of sockets", errno);
  }
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  INFERD_ASSIGN(Child child,
                Child::start([&options, &theirs] { serve_orders(options, theirs.get()); }));
  ClientProcess process(std::move(child), std::move(ours));
  INFERD_TRY(process.report());
  return process;
}

Result<void> ClientProcess::ask(const Order& order) {
  const Message message = {order, false};
  if (send_bytes(channel_.get(), &message, sizeof(message))) return {};
  return Error(ErrorCode::kUnavailable, "a client's process has ended");
}

Result<void> ClientProcess::end_answer() {
  const Message message = {{}, true};
  if (send_bytes(channel_.get(), &message, sizeof(message))) return {};
  return Error(ErrorCode::kUnavailable, "a client's process has ended");
}

Result<Report> ClientProcess::report() {
  ReportHeader header;
  Report report;
  bool whole = receive_bytes(channel_.get(), &header, sizeof(header));
  if (whole && header.failed) return Error(ErrorCode::kUnavailable, header.error);
  if (whole) {
    report.arrivals.resize(header.arrivals);
    whole = receive_bytes(channel_.get(), report.arrivals.data(),
                          header.arrivals * sizeof(TokenArrival));
  }
  if (!whole) return Error(ErrorCode::kUnavailable, "a client's process has ended");
  report.asked_ns = header.asked_ns;
  report.prompt_tokens = header.prompt_tokens;
  report.cached_tokens = header.cached_tokens;
  report.finish = header.finish;
  return report;
}

}  // namespace inferd::bench
