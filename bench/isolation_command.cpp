// inferd-bench isolation: whether a user can tell by the time to the first token what another user
// asked before.
//
// Two clients of different users. Each trial has two requests, one after the other; the second is
// timed. The situations differ only in whose prompt came first: the other user sent the same one
// just before; the other user sent another one of that length, so that nobody had sent this one;
// or the same user sent it. A round has one trial of each, in random order, with fresh random
// prompts, and rounds take turns at which of the two users is the timed one. If the first two have
// one distribution, the timing tells nothing; that the third has another one shows that it could.
#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/prng.h"
#include "bench/client_process.h"
#include "bench/command.h"
#include "bench/options.h"
#include "bench/statistics.h"
#include "bench/svg_plot.h"

namespace inferd::bench {
namespace {

constexpr double kQuantiles[] = {0.05, 0.25, 0.5, 0.75, 0.95};
constexpr const char* kQuantileNames[] = {"p5", "p25", "p50", "p75", "p95"};
constexpr size_t kPlotPointsMax = 2000;

struct IsolationOptions {
  std::string socket;
  std::string model;
  uint32_t rounds = 30;
  uint32_t prompt_tokens = 512;
  std::vector<uint32_t> users = {65534, 1001};
  std::string cache_domain;
  uint32_t seed = 0;
  std::string plot;
};

// Who sent the timed prompt just before.
enum Before : uint8_t { kOther, kNobody, kSelf };
constexpr const char* kBeforeNames[] = {"other", "nobody", "self"};
constexpr size_t kSituations = 3;

// What one situation showed; an entry a round.
struct Situation {
  std::vector<double> ttft_ms;
  std::vector<uint32_t> cached_tokens;
};
using Situations = std::array<Situation, kSituations>;

class Trials {
 public:
  static Result<Trials> start(const IsolationOptions& options) {
    Trials trials(options);
    for (const uint32_t user : options.users) {
      INFERD_ASSIGN(ClientProcess client, ClientProcess::start({options.socket, options.model,
                                                                options.cache_domain, user}));
      trials.users_.push_back(std::move(client));
    }
    // What only a first request costs is over after these.
    for (size_t user = 0; user < trials.users_.size(); ++user) {
      INFERD_TRY(trials.answer(user, trials.prng_.next()));
    }
    return trials;
  }

  Result<Situations> run() {
    Situations situations;
    for (uint32_t round = 0; round < options_.rounds; ++round) {
      std::array<Before, kSituations> order = {kOther, kNobody, kSelf};
      for (size_t i = kSituations - 1; i > 0; --i) std::swap(order[i], order[prng_.below(i + 1)]);
      for (const Before before : order) {
        INFERD_ASSIGN(const Report report, trial(before, round % 2));
        situations[before].ttft_ms.push_back(report.ttft_ms());
        situations[before].cached_tokens.push_back(report.cached_tokens);
      }
    }
    return situations;
  }

 private:
  explicit Trials(const IsolationOptions& options)
      : options_(options), prng_(options.seed != 0 ? options.seed : std::random_device()()) {}

  Result<Report> trial(Before before, size_t timed) {
    const uint64_t seed = prng_.next();
    INFERD_TRY(
        answer(before == kSelf ? timed : 1 - timed, before == kNobody ? prng_.next() : seed));
    return answer(timed, seed);
  }

  Result<Report> answer(size_t user, uint64_t seed) {
    Order order;
    order.seed = seed;
    order.prompt_tokens = options_.prompt_tokens;
    INFERD_TRY(users_[user].ask(order));
    INFERD_ASSIGN(Report report, users_[user].report());
    if (report.arrivals.empty()) return Error(ErrorCode::kInternal, "an answer had no token");
    return report;
  }

  IsolationOptions options_;
  Prng prng_;
  std::vector<ClientProcess> users_;
};

// How far a situation's times are from those where nobody had sent the prompt.
double apart(const Situations& situations, Before before) {
  return ks_distance(situations[before].ttft_ms, situations[kNobody].ttft_ms);
}

nlohmann::ordered_json figures_of(const IsolationOptions& options, const Situations& situations) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (size_t i = 0; i < kSituations; ++i) {
    const Situation& situation = situations[i];
    nlohmann::ordered_json row = {{"before", kBeforeNames[i]}};
    for (size_t q = 0; q < std::size(kQuantiles); ++q) {
      row["ttft_ms"][kQuantileNames[q]] = percentile(situation.ttft_ms, kQuantiles[q]);
    }
    const auto [least, most] =
        std::minmax_element(situation.cached_tokens.begin(), situation.cached_tokens.end());
    row["cached_tokens"] = {{"min", *least}, {"max", *most}};
    rows.push_back(row);
  }
  return {{"prompt_tokens", options.prompt_tokens},
          {"rounds", options.rounds},
          {"users", options.users},
          {"situations", rows},
          {"ks",
           {{"other_nobody", apart(situations, kOther)},
            {"self_nobody", apart(situations, kSelf)},
            {"critical_5_percent", ks_critical(options.rounds, options.rounds)}}}};
}

void print_table(const nlohmann::ordered_json& figures) {
  std::printf("TTFT in ms of %u tokens, sent just before by\n",
              figures["prompt_tokens"].get<uint32_t>());
  std::printf("%-8s", "");
  for (const char* name : kQuantileNames) std::printf(" %9s", name);
  std::printf("   cached tokens\n");
  for (const auto& row : figures["situations"]) {
    std::printf("%-8s", row["before"].get<std::string>().c_str());
    for (const char* name : kQuantileNames) {
      std::printf(" %9.3f", row["ttft_ms"][name].get<double>());
    }
    std::printf("   %u to %u\n", row["cached_tokens"]["min"].get<uint32_t>(),
                row["cached_tokens"]["max"].get<uint32_t>());
  }
  const auto& ks = figures["ks"];
  const double critical = ks["critical_5_percent"].get<double>();
  std::printf("Kolmogorov-Smirnov distances; above %.3f (5 %%) times tell who asked before:\n",
              critical);
  for (const char* pair : {"other_nobody", "self_nobody"}) {
    const double distance = ks[pair].get<double>();
    std::printf("  %-13s %.3f  %s\n", pair, distance,
                distance > critical ? "told apart" : "not told apart");
  }
}

Result<void> draw(const std::string& path, const Situations& situations) {
  Plot plot;
  plot.title = "Time to the first token, by who sent the same prompt just before";
  plot.x.label = "TTFT (ms)";
  plot.y.label = "share of requests that had it by then";
  plot.y.max = 1;
  for (size_t i = 0; i < kSituations; ++i) {
    plot.series.push_back({kBeforeNames[i], PlotKind::kLine,
                           cumulative_distribution(situations[i].ttft_ms, kPlotPointsMax)});
  }
  return write_svg(path, {plot});
}

Result<void> check_users(const IsolationOptions& options) {
  if (options.users.size() != 2 || options.users[0] == options.users[1]) {
    return Error(ErrorCode::kInvalidArgument,
                 "--users must be the numbers of two different users, such as 65534,1001");
  }
  return {};
}

}  // namespace

Result<int> run_isolation_command(Arguments arguments) {
  IsolationOptions values;
  bool json = false;
  Options options("isolation", "what a user's TTFT tells of another user's prompts");
  options.add("socket", &values.socket, "the daemon's socket (default: as every client finds it)");
  options.add("model", &values.model, "the model's name (default: the daemon's first)");
  options.add("rounds", &values.rounds, {1, 100'000}, "trials of each situation (default 30)");
  options.add("prompt-tokens", &values.prompt_tokens, {1, 10'000'000},
              "tokens of each prompt (default 512)");
  options.add("users", &values.users, "the two users' numbers (default 65534,1001)");
  options.add("cache-domain", &values.cache_domain,
              "a shared cache domain that both ask for (default: each has their own)");
  options.add("seed", &values.seed, "of prompts and order (default 0: another one each time)");
  options.add("plot", &values.plot, "write the distributions to this file, as SVG");
  options.add("json", &json, "print JSON");
  INFERD_ASSIGN(const bool go, options.parse(arguments));
  if (!go) return 0;
  INFERD_TRY(check_users(values));
  INFERD_ASSIGN(Trials trials, Trials::start(values));
  INFERD_ASSIGN(const Situations situations, trials.run());
  const nlohmann::ordered_json figures = figures_of(values, situations);
  if (!values.plot.empty()) INFERD_TRY(draw(values.plot, situations));
  if (json) {
    std::puts(figures.dump(2).c_str());
  } else {
    print_table(figures);
  }
  return 0;
}

}  // namespace inferd::bench
