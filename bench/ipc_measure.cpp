#include "bench/ipc_measure.h"

#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "bench/statistics.h"

namespace inferd::bench {
namespace {

constexpr uint32_t kTakesBetweenClocks = 64;
constexpr int64_t kBetweenStepsNs = 300'000;

// `edges`: as the daemon watches its clients' bells.
Result<UniqueFd> epoll_of(int fd, bool edges) {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event = {};
  event.events = EPOLLIN | (edges ? EPOLLET : 0u);
  if (!epoll || epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return errno_error("cannot watch a client", errno);
  }
  return epoll;
}

// Of the process that rings them: the kernel knows a batch of bells in one only.
std::unique_ptr<ipc::DoorbellBatch> make_bells() {
  Result<std::unique_ptr<ipc::DoorbellBatch>> bells = ipc::DoorbellBatch::create();
  INFERD_CHECK(bells.ok());
  return std::move(*bells);
}

void flush(DaemonEnd& end, ipc::DoorbellBatch& bells) {
  if (end.rings() != nullptr) end.rings()->flush(bells);
}

// A daemon computes between two publications: its processor does not go to sleep.
void compute_for(int64_t time_ns) {
  const MonotonicClock clock;
  const int64_t end_ns = clock.now_ns() + time_ns;
  while (clock.now_ns() < end_ns) pause_cpu();
}

// Answers every request with a record, until the process is killed.
void answer_requests(DaemonEnd& end, int epoll, int64_t spin_ns) {
  const MonotonicClock clock;
  const std::unique_ptr<ipc::DoorbellBatch> bells = make_bells();
  for (;;) {
    uint32_t requests = 0;
    if (spin_ns > 0) {
      const int64_t until_ns = clock.now_ns() + spin_ns;
      do {
        for (uint32_t i = 0; i < kTakesBetweenClocks && requests == 0; ++i) {
          requests = end.take();
          if (requests == 0) pause_cpu();
        }
      } while (requests == 0 && clock.now_ns() < until_ns);
    }
    if (requests == 0) {
      if (end.prepare_sleep()) {
        epoll_event event;
        epoll_wait(epoll, &event, 1, -1);
      }
      requests = end.take();
    }
    for (uint32_t i = 0; i < requests; ++i) INFERD_CHECK(end.send(7));
    if (requests > 0) flush(end, *bells);
  }
}

// The clients that a step brings a record to, and the daemon's end of their channels.
class StepClients {
 public:
  static Result<StepClients> open(Way way, bool awake, const Processors& processors) {
    StepClients all;
    for (uint32_t i = 0; i < kStepClients; ++i) {
      INFERD_ASSIGN(Channel channel, open_channel(way));
      all.channels_.push_back(std::move(channel));
      ClientEnd* const end = all.channels_.back().client.get();
      INFERD_ASSIGN(Child client, Child::start(processors.clients, [end, awake] {
                      for (;;) {
                        if (!awake) {
                          end->receive(0);
                        } else if (end->poll() == 0) {
                          sched_yield();
                        }
                      }
                    }));
      all.clients_.push_back(std::move(client));
      ipc::ServerSession* const rings = all.channels_.back().daemon->rings();
      if (rings != nullptr) all.rings_.push_back(rings);
    }
    return all;
  }

  void wait_until_asleep() const { bench::wait_until_asleep(clients_); }

  // The calling thread's processor time for one step.
  double step_us() {
    // Reading the clock takes as long as a step to clients that are awake: twice, and the
    // difference is taken off.
    const int64_t before_ns = thread_cpu_ns();
    const int64_t start_ns = thread_cpu_ns();
    for (const Channel& channel : channels_) INFERD_CHECK(channel.daemon->send(7));
    ipc::ServerSession::flush_all(rings_, *bells_);
    const int64_t step_ns = thread_cpu_ns() - start_ns - (start_ns - before_ns);
    return static_cast<double>(step_ns) * 1e-3;
  }

 private:
  StepClients() = default;

  std::vector<Channel> channels_;
  std::vector<Child> clients_;
  std::vector<ipc::ServerSession*> rings_;  // none of a socket's
  std::unique_ptr<ipc::DoorbellBatch> bells_ = make_bells();
};

}  // namespace

Result<double> measure_round_trip(Way way, int64_t spin_ns, uint32_t count,
                                  const Processors& processors) {
  INFERD_ASSIGN(const Channel channel, open_channel(way));
  INFERD_ASSIGN(const UniqueFd epoll, epoll_of(channel.daemon->fd(), channel.daemon->rings() != nullptr));
  INFERD_ASSIGN(const Child daemon, Child::start(processors.daemon, [&] {
                  answer_requests(*channel.daemon, epoll.get(), spin_ns);
                }));
  const Pin pin(processors.clients);
  const MonotonicClock clock;
  std::vector<double> trips_us;
  trips_us.reserve(count);
  const uint32_t warm = count / 8;
  int64_t last_ns = clock.now_ns();
  for (uint32_t i = 0; i < warm + count; ++i) {
    channel.client->request();
    INFERD_CHECK(channel.client->receive(spin_ns) == 1);
    const int64_t now_ns = clock.now_ns();
    if (i >= warm) trips_us.push_back(static_cast<double>(now_ns - last_ns) * 1e-3);
    last_ns = now_ns;
  }
  return median(trips_us);
}

Result<double> measure_stream(Way way, int64_t spin_ns, uint32_t count,
                              const Processors& processors) {
  INFERD_ASSIGN(const Channel channel, open_channel(way));
  INFERD_ASSIGN(const Child daemon, Child::start(processors.daemon, [&] {
                  const std::unique_ptr<ipc::DoorbellBatch> bells = make_bells();
                  for (TokenId i = 0;; ++i) {
                    while (!channel.daemon->send(i)) sched_yield();
                    flush(*channel.daemon, *bells);
                  }
                }));
  const Pin pin(processors.clients);
  const MonotonicClock clock;
  uint32_t received = channel.client->receive(spin_ns);
  const int64_t start_ns = clock.now_ns();
  const uint32_t first = received;
  while (received - first < count) received += channel.client->receive(spin_ns);
  const auto elapsed_ns = static_cast<double>(clock.now_ns() - start_ns);
  return static_cast<double>(received - first) / elapsed_ns * 1e9;
}

Result<double> measure_step_awake(Way way, uint32_t steps, const Processors& processors) {
  INFERD_ASSIGN(StepClients clients, StepClients::open(way, true, processors));
  const Pin pin(processors.daemon);
  std::vector<double> steps_us;
  const uint32_t warm = steps / 8 + 1;
  for (uint32_t step = 0; step < warm + steps; ++step) {
    compute_for(kBetweenStepsNs);
    const double step_us = clients.step_us();
    if (step >= warm) steps_us.push_back(step_us);
  }
  return median(steps_us);
}

Result<WayFigures> measure_step_asleep(uint32_t steps, const Processors& processors) {
  std::vector<StepClients> ways;
  for (const Way way : kWays) {
    INFERD_ASSIGN(StepClients clients, StepClients::open(way, false, processors));
    ways.push_back(std::move(clients));
  }
  const Pin pin(processors.daemon);
  std::array<std::vector<double>, kWays.size()> steps_us;
  const uint32_t warm = steps / 8 + 1;
  for (uint32_t step = 0; step < warm + steps; ++step) {
    for (size_t i = 0; i < ways.size(); ++i) {
      const size_t way = (step + i) % ways.size();
      compute_for(kBetweenStepsNs);
      for (const StepClients& clients : ways) clients.wait_until_asleep();
      const double step_us = ways[way].step_us();
      if (step >= warm) steps_us[way].push_back(step_us);
    }
  }
  WayFigures figures;
  for (size_t way = 0; way < kWays.size(); ++way) figures[way] = median(steps_us[way]);
  return figures;
}

}  // namespace inferd::bench
