// inferd-bench stopped: what a stopped neighbour costs the others.
//
// So many clients decode together, and one more client, the neighbour, is connected. Each round
// measures the clients' inter-token latency twice, in random order: once while the neighbour's
// answer is over, and once while the neighbour is stopped by SIGSTOP in the middle of an endless
// one. Both times the neighbour has just been given as many tokens, and a measurement begins only
// once the daemon computes nothing, and the clients have had an answer that is not measured: the
// stopped neighbour's ring is full then and its session paused. So the neighbour takes no compute
// in either, and the ratio of the two within a round is what its being stopped changes. After each
// such round the neighbour goes on and has its answer cancelled, which fails if the answer had
// ended before.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/prng.h"
#include "bench/client_process.h"
#include "bench/command.h"
#include "bench/daemon_process.h"
#include "bench/options.h"
#include "bench/statistics.h"

namespace inferd::bench {
namespace {

constexpr uint32_t kTopLogprobs = 20;  // makes records of four slots: the ring fills sooner
constexpr int64_t kCalmNs = 100'000'000;
constexpr double kCalmShare = 0.02;  // of a processor, at most, for that long: nothing is computed
constexpr int64_t kCalmWithinNs = 300'000'000'000;
constexpr double kConfidence = 0.95;

struct StoppedOptions {
  std::string socket;
  std::string model;
  uint32_t clients = 4;
  uint32_t rounds = 40;
  uint32_t prompt_tokens = 32;
  uint32_t gen_tokens = 100;
  uint32_t seed = 1;
};

// The clients' inter-token latencies with the neighbour in one state.
struct Latencies {
  std::vector<double> all_ms;
  std::vector<double> round_mean_ms;
  std::vector<double> round_p99_ms;

  void add(const std::vector<double>& round_ms) {
    all_ms.insert(all_ms.end(), round_ms.begin(), round_ms.end());
    const double sum_ms = std::accumulate(round_ms.begin(), round_ms.end(), 0.0);
    round_mean_ms.push_back(sum_ms / static_cast<double>(round_ms.size()));
    round_p99_ms.push_back(percentile(round_ms, 0.99));
  }
};

class Neighbourhood {
 public:
  static Result<Neighbourhood> start(const StoppedOptions& options) {
    INFERD_ASSIGN(const pid_t daemon, daemon_pid(options.socket));
    const ClientOptions connect = {options.socket, options.model, {}, {}};
    std::vector<ClientProcess> clients;
    for (uint32_t i = 0; i <= options.clients; ++i) {
      INFERD_ASSIGN(ClientProcess client, ClientProcess::start(connect));
      clients.push_back(std::move(client));
    }
    return Neighbourhood(options, daemon, std::move(clients));
  }

  Result<void> run() {
    INFERD_TRY(measure_stopped());  // tells how many tokens that is
    stopped_ = {};
    for (uint32_t round = 0; round < options_.rounds; ++round) {
      const bool stopped_first = prng_.below(2) == 1;
      if (stopped_first) INFERD_TRY(measure_stopped());
      INFERD_TRY(measure_idle());
      if (!stopped_first) INFERD_TRY(measure_stopped());
    }
    return {};
  }

  const Latencies& idle() const { return idle_; }
  const Latencies& stopped() const { return stopped_; }
  uint32_t neighbour_tokens() const { return neighbour_tokens_; }

 private:
  Neighbourhood(const StoppedOptions& options, pid_t daemon, std::vector<ClientProcess> clients)
      : options_(options), daemon_(daemon), clients_(std::move(clients)), prng_(options.seed) {}

  ClientProcess& neighbour() { return clients_.back(); }

  Result<void> measure_idle() {
    Order order = neighbours_order();
    order.gen_tokens = neighbour_tokens_;
    INFERD_TRY(neighbour().ask(order));
    INFERD_TRY(neighbour().report());
    INFERD_TRY(wait_until_calm());
    INFERD_ASSIGN(const std::vector<double> round_ms, measure_others());
    idle_.add(round_ms);
    return {};
  }

  Result<void> measure_stopped() {
    Order order = neighbours_order();
    order.gen_tokens = INFERD_UNLIMITED_TOKENS;
    order.endless = true;
    INFERD_TRY(neighbour().ask(order));
    INFERD_TRY(neighbour().report());  // of its first token
    neighbour().stop();
    INFERD_TRY(wait_until_calm());
    INFERD_ASSIGN(const std::vector<double> round_ms, measure_others());
    stopped_.add(round_ms);
    neighbour().go_on();
    INFERD_TRY(neighbour().end_answer());
    INFERD_ASSIGN(const Report report, neighbour().report());
    if (report.finish != INFERD_FINISH_CANCELLED) {
      return Error(ErrorCode::kResourceExhausted,
                   "the stopped client's answer ended by itself, before its ring was full; the "
                   "model's context is too short for this measurement");
    }
    neighbour_tokens_ = 0;
    for (const TokenArrival& arrival : report.arrivals) neighbour_tokens_ += arrival.tokens;
    return {};
  }

  Order neighbours_order() {
    Order order;
    order.seed = prng_.next();
    order.prompt_tokens = options_.prompt_tokens;
    order.top_logprobs = kTopLogprobs;
    return order;
  }

  // Twice, of which the first is not measured: what went before it differs, and warms processors
  // and caches differently.
  Result<std::vector<double>> measure_others() {
    INFERD_TRY(ask_others());
    return ask_others();
  }

  // All clients but the neighbour ask at once.
  Result<std::vector<double>> ask_others() {
    for (uint32_t i = 0; i < options_.clients; ++i) {
      Order order;
      order.seed = prng_.next();
      order.prompt_tokens = options_.prompt_tokens;
      order.gen_tokens = options_.gen_tokens;
      INFERD_TRY(clients_[i].ask(order));
    }
    std::vector<double> round_ms;
    for (uint32_t i = 0; i < options_.clients; ++i) {
      INFERD_ASSIGN(const Report report, clients_[i].report());
      const std::vector<double> gaps_ms = token_gaps_ms(report.arrivals);
      if (gaps_ms.size() + 1 != options_.gen_tokens) {
        return Error(ErrorCode::kResourceExhausted,
                     "an answer had fewer than --gen-tokens tokens; the model's context is too "
                     "short for it");
      }
      round_ms.insert(round_ms.end(), gaps_ms.begin(), gaps_ms.end());
    }
    return round_ms;
  }

  Result<void> wait_until_calm() const {
    const MonotonicClock clock;
    const int64_t give_up_ns = clock.now_ns() + kCalmWithinNs;
    while (clock.now_ns() < give_up_ns) {
      const int64_t start_ns = clock.now_ns();
      INFERD_ASSIGN(const int64_t before_ns, process_cpu_ns(daemon_));
      usleep(kCalmNs / 1000);
      INFERD_ASSIGN(const int64_t after_ns, process_cpu_ns(daemon_));
      const auto wall_ns = static_cast<double>(clock.now_ns() - start_ns);
      if (static_cast<double>(after_ns - before_ns) < kCalmShare * wall_ns) return {};
    }
    return Error(ErrorCode::kTimedOut,
                 "the daemon went on computing for five minutes; it must have no other clients");
  }

  StoppedOptions options_;
  pid_t daemon_;
  std::vector<ClientProcess> clients_;  // the last one is the neighbour
  Prng prng_;
  Latencies idle_;
  Latencies stopped_;
  uint32_t neighbour_tokens_ = 1;
};

// Of a round whose tokens all came at once there is no ratio.
MedianInterval ratio(const std::vector<double>& ours, const std::vector<double>& theirs) {
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.size(); ++i) {
    if (theirs[i] > 0) ratios.push_back(ours[i] / theirs[i]);
  }
  return median_interval(ratios, kConfidence);
}

nlohmann::ordered_json latency_json(const Latencies& latencies) {
  return {{"p50", percentile(latencies.all_ms, 0.5)},
          {"p90", percentile(latencies.all_ms, 0.9)},
          {"p99", percentile(latencies.all_ms, 0.99)},
          {"max", percentile(latencies.all_ms, 1)}};
}

nlohmann::ordered_json interval_json(const MedianInterval& interval) {
  return {{"median", interval.median},
          {"low", interval.low},
          {"high", interval.high},
          {"confidence", interval.confidence}};
}

nlohmann::ordered_json figures_of(const StoppedOptions& options, const Neighbourhood& measured) {
  const Latencies& idle = measured.idle();
  const Latencies& stopped = measured.stopped();
  return {{"clients", options.clients},
          {"rounds", options.rounds},
          {"neighbour_tokens", measured.neighbour_tokens()},
          {"itl_ms", {{"idle", latency_json(idle)}, {"stopped", latency_json(stopped)}}},
          {"mean_ratio", interval_json(ratio(stopped.round_mean_ms, idle.round_mean_ms))},
          {"p99_ratio", interval_json(ratio(stopped.round_p99_ms, idle.round_p99_ms))}};
}

void print_table(const nlohmann::ordered_json& figures) {
  std::printf("ITL in ms of %u clients, over all %u rounds\n", figures["clients"].get<uint32_t>(),
              figures["rounds"].get<uint32_t>());
  std::printf("neighbour %9s %9s %9s %9s\n", "p50", "p90", "p99", "max");
  for (const char* state : {"idle", "stopped"}) {
    const auto& row = figures["itl_ms"][state];
    std::printf("%-9s %9.3f %9.3f %9.3f %9.3f\n", state, row["p50"].get<double>(),
                row["p90"].get<double>(), row["p99"].get<double>(), row["max"].get<double>());
  }
  for (const char* name : {"mean_ratio", "p99_ratio"}) {
    const auto& row = figures[name];
    std::printf("%s, stopped to idle: %.3f, between %.3f and %.3f with %.1f %% confidence\n", name,
                row["median"].get<double>(), row["low"].get<double>(), row["high"].get<double>(),
                100 * row["confidence"].get<double>());
  }
}

}  // namespace

Result<int> run_stopped_command(Arguments arguments) {
  StoppedOptions values;
  bool json = false;
  Options options("stopped", "what a client stopped in mid-answer costs the others");
  options.add("socket", &values.socket, "the daemon's socket (required; nobody else may use it)");
  options.add("model", &values.model, "the model's name (default: the daemon's first)");
  options.add("clients", &values.clients, {1, 1024}, "clients that are measured (default 4)");
  options.add("rounds", &values.rounds, {1, 100'000},
              "rounds, each with the neighbour in both states (default 40)");
  options.add("prompt-tokens", &values.prompt_tokens, {1, 10'000'000},
              "tokens of each prompt (default 32)");
  options.add("gen-tokens", &values.gen_tokens, {2, 1'000'000},
              "tokens of each measured answer (default 100)");
  options.add("seed", &values.seed, "of prompts and order (default 1)");
  options.add("json", &json, "print JSON");
  INFERD_ASSIGN(const bool go, options.parse(arguments));
  if (!go) return 0;
  if (values.socket.empty()) {
    return Error(ErrorCode::kInvalidArgument, "--socket must be a daemon's socket");
  }
  INFERD_ASSIGN(Neighbourhood neighbourhood, Neighbourhood::start(values));
  INFERD_TRY(neighbourhood.run());
  const nlohmann::ordered_json figures = figures_of(values, neighbourhood);
  if (json) {
    std::puts(figures.dump(2).c_str());
  } else {
    print_table(figures);
  }
  return 0;
}

}  // namespace inferd::bench
