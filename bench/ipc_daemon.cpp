#include "bench/ipc_daemon.h"

#include <inferd/inferd.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "bench/statistics.h"
#include "ipc/socket.h"

namespace inferd::bench {
namespace {

constexpr int kPatienceMs = 60'000;
// What follows the last request is over then: idle pages go back after [memory] give_back, two
// seconds.
constexpr unsigned kSettleS = 3;
constexpr uint32_t kAnswers = 5;  // whose steps are timed, each time

struct Disconnect {
  void operator()(inferd_connection* connection) const { inferd_disconnect(connection); }
};
using Connection = std::unique_ptr<inferd_connection, Disconnect>;
struct Close {
  void operator()(inferd_sequence* sequence) const { inferd_close(sequence); }
};
using Sequence = std::unique_ptr<inferd_sequence, Close>;

Error taken(inferd_error* error, const char* what) {
  const std::string sentence = error != nullptr ? inferd_error_message(error) : what;
  inferd_error_free(error);
  return Error(ErrorCode::kUnavailable, sentence);
}

Result<Connection> connect(const std::string& socket) {
  inferd_connect_options options;
  inferd_connect_options_init(&options);
  options.socket_path = socket.c_str();
  options.client_name = "inferd-bench";
  inferd_connection* connection = nullptr;
  inferd_error* error = nullptr;
  if (inferd_connect(&options, &connection, &error) != INFERD_OK) {
    return taken(error, "cannot connect");
  }
  return Connection(connection);
}

Result<Sequence> submit(inferd_connection* connection, uint32_t max_tokens) {
  const std::vector<int32_t> ids = {1, 2, 3, 4, 5, 6, 7, 8};
  inferd_prompt prompt;
  inferd_prompt_init(&prompt);
  prompt.ids = ids.data();
  prompt.ids_count = ids.size();
  inferd_sampling sampling;
  inferd_sampling_init(&sampling);
  sampling.max_tokens = max_tokens;
  sampling.ignore_eos = 1;
  inferd_sequence* sequence = nullptr;
  inferd_error* error = nullptr;
  if (inferd_open(connection, &prompt, &sampling, &sequence, &error) != INFERD_OK) {
    return taken(error, "the request was not accepted");
  }
  return Sequence(sequence);
}

// Reads to the end. Returns the milliseconds between tokens.
Result<std::vector<double>> read_all(inferd_sequence* sequence) {
  const MonotonicClock clock;
  std::vector<double> gaps_ms;
  int64_t last_ns = 0;
  for (;;) {
    inferd_event event;
    inferd_event_init(&event);
    inferd_error* error = nullptr;
    if (inferd_next(sequence, kPatienceMs, &event, &error) != INFERD_OK) {
      return taken(error, "no token came for a minute");
    }
    const int64_t now_ns = clock.now_ns();
    if (event.ids_count > 0) {
      if (last_ns != 0) gaps_ms.push_back(static_cast<double>(now_ns - last_ns) * 1e-6);
      last_ns = now_ns;
    }
    if (event.finish != INFERD_FINISH_NONE) return gaps_ms;
  }
}

Result<double> measure_connect_ms(const DaemonOptions& options) {
  const MonotonicClock clock;
  std::vector<double> times_ms;
  for (uint32_t i = 0; i < options.connects; ++i) {
    const int64_t start_ns = clock.now_ns();
    INFERD_ASSIGN(const Connection connection, connect(options.socket));
    INFERD_ASSIGN(const Sequence sequence, submit(connection.get(), 1));
    times_ms.push_back(static_cast<double>(clock.now_ns() - start_ns) * 1e-6);
    INFERD_TRY(read_all(sequence.get()));
  }
  return median(times_ms);
}

Result<double> measure_step_ms(const DaemonOptions& options) {
  INFERD_ASSIGN(const Connection connection, connect(options.socket));
  std::vector<double> medians_ms;
  for (uint32_t i = 0; i < kAnswers; ++i) {
    INFERD_ASSIGN(const Sequence sequence, submit(connection.get(), options.tokens));
    INFERD_ASSIGN(const std::vector<double> gaps_ms, read_all(sequence.get()));
    medians_ms.push_back(median(gaps_ms));
  }
  return median(medians_ms);
}

// Processor time of the daemon's process, which the kernel names.
Result<int64_t> daemon_cpu_ns(pid_t pid) {
  clockid_t clock;
  timespec now = {};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &now) != 0) {
    return Error(ErrorCode::kIo, "cannot read the processor time of the daemon, process " +
                                     std::to_string(pid) + "; is it in another PID namespace?");
  }
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Result<pid_t> daemon_pid(const std::string& socket) {
  INFERD_ASSIGN(const UniqueFd fd, ipc::connect_to(socket, kPatienceMs));
  INFERD_ASSIGN(const ipc::PeerIdentity peer, ipc::peer_identity(fd.get()));
  return peer.pid;
}

}  // namespace

Result<DaemonFigures> measure_daemon(const DaemonOptions& options) {
  DaemonFigures figures;
  INFERD_ASSIGN(const pid_t pid, daemon_pid(options.socket));
  INFERD_ASSIGN(figures.connect_ms, measure_connect_ms(options));
  std::vector<double> alone_ms(2);
  INFERD_ASSIGN(alone_ms[0], measure_step_ms(options));
  std::vector<Connection> idle;
  for (uint32_t i = 0; i < options.idle_clients; ++i) {
    INFERD_ASSIGN(Connection connection, connect(options.socket));
    idle.push_back(std::move(connection));
  }
  INFERD_ASSIGN(figures.step_with_idle_ms, measure_step_ms(options));
  sleep(kSettleS);
  INFERD_ASSIGN(const int64_t before_ns, daemon_cpu_ns(pid));
  sleep(options.seconds);
  INFERD_ASSIGN(const int64_t after_ns, daemon_cpu_ns(pid));
  figures.idle_cpu_share = static_cast<double>(after_ns - before_ns) / (options.seconds * 1e9);
  idle.clear();
  sleep(1);  // for the daemon to see them go
  INFERD_ASSIGN(alone_ms[1], measure_step_ms(options));
  figures.step_alone_ms = median(alone_ms);
  return figures;
}

}  // namespace inferd::bench
