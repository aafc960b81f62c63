#include "bench/ipc_daemon.h"

#include <unistd.h>

#include <utility>
#include <vector>

#include "base/clock.h"
#include "bench/daemon_process.h"
#include "bench/statistics.h"
#include "bench/timed_answer.h"

namespace inferd::bench {
namespace {

// What follows the last request is over then: idle pages go back after [memory] give_back, two
// seconds.
constexpr unsigned kSettleS = 3;
constexpr uint32_t kAnswers = 5;  // whose steps are timed, each time

Result<client::Sequence> submit(client::Connection& connection, uint32_t tokens) {
  return submit_ids(connection, {1, 2, 3, 4, 5, 6, 7, 8}, exactly(tokens));
}

Result<double> measure_connect_ms(const DaemonOptions& options) {
  const MonotonicClock clock;
  std::vector<double> times_ms;
  for (uint32_t i = 0; i < options.connects; ++i) {
    const int64_t start_ns = clock.now_ns();
    INFERD_ASSIGN(client::Connection connection, connect_client(options.socket));
    INFERD_ASSIGN(client::Sequence sequence, submit(connection, 1));
    times_ms.push_back(static_cast<double>(clock.now_ns() - start_ns) * 1e-6);
    INFERD_TRY(read_timed(sequence));
  }
  return median(times_ms);
}

// A whole answer over its tokens, each of which took a step: what comes between two deliveries says less where the
// client is so slow to wake that they bring several tokens.
Result<double> measure_step_ms(const DaemonOptions& options) {
  const MonotonicClock clock;
  INFERD_ASSIGN(client::Connection connection, connect_client(options.socket));
  std::vector<double> steps_ms;
  for (uint32_t i = 0; i < kAnswers; ++i) {
    const int64_t start_ns = clock.now_ns();
    INFERD_ASSIGN(client::Sequence sequence, submit(connection, options.tokens));
    INFERD_ASSIGN(const TimedAnswer answer, read_timed(sequence));
    steps_ms.push_back(static_cast<double>(answer.end_ns - start_ns) * 1e-6 / answer.tokens());
  }
  return median(steps_ms);
}

}  // namespace

Result<DaemonFigures> measure_daemon(const DaemonOptions& options) {
  DaemonFigures figures;
  INFERD_ASSIGN(const pid_t pid, daemon_pid(options.socket));
  INFERD_ASSIGN(figures.connect_ms, measure_connect_ms(options));
  std::vector<double> alone_ms(2);
  INFERD_ASSIGN(alone_ms[0], measure_step_ms(options));
  std::vector<client::Connection> idle;
  for (uint32_t i = 0; i < options.idle_clients; ++i) {
    INFERD_ASSIGN(client::Connection connection, connect_client(options.socket));
    idle.push_back(std::move(connection));
  }
  INFERD_ASSIGN(figures.step_with_idle_ms, measure_step_ms(options));
  sleep(kSettleS);
  INFERD_ASSIGN(const int64_t before_ns, process_cpu_ns(pid));
  sleep(options.seconds);
  INFERD_ASSIGN(const int64_t after_ns, process_cpu_ns(pid));
  figures.idle_cpu_share = static_cast<double>(after_ns - before_ns) / (options.seconds * 1e9);
  idle.clear();
  sleep(1);  // for the daemon to see them go
  INFERD_ASSIGN(alone_ms[1], measure_step_ms(options));
  figures.step_alone_ms = median(alone_ms);
  return figures;
}

}  // namespace inferd::bench
