// inferd-bench planning: what a step's plan costs, and what it grows with.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/prng.h"
#include "bench/command.h"
#include "bench/options.h"
#include "bench/statistics.h"
#include "bench/svg_plot.h"
#include "scheduler/scheduler.h"

namespace inferd::bench {

namespace {

using Steady = std::chrono::steady_clock;

constexpr uint32_t kUsers = 50;
constexpr uint32_t kSessionsPerUser = 4;
constexpr uint32_t kCachedTokens = 96;    // of each prompt that fills the prefix index
constexpr uint32_t kRunningTokens = 200;  // of the prompt of one that runs
constexpr uint32_t kQueuedTokens = 500;

// A scheduler and its memory, driven without an engine: every answer is made up.
class PlanningRig {
 public:
  PlanningRig(uint32_t pages, uint32_t running, uint32_t queued)
      : memory_({.pages = PageCount(pages),
                 .sequences_max = running,
                 .sequence_tokens_max = 1024,
                 .hash_seed = 42}) {
    scheduler::SchedulerConfig config;
    config.step_tokens = std::max(running, 512u);
    config.step_logits = running;
    config.context_tokens = 1024;
    config.queue_max = std::max(queued, 1024u);
    scheduler_ = std::make_unique<scheduler::Scheduler>(config, memory_, clock_);
  }

  // Computes so many short prompts, whose pages stay in the prefix index.
  void fill_cache(uint32_t prefixes) {
    for (uint32_t done = 0; done < prefixes;) {
      const uint32_t batch = std::min(prefixes - done, 512u);
      for (uint32_t i = 0; i < batch; ++i) submit(kCachedTokens, 1);
      done += batch;
      while (step()) {
      }
    }
  }
  // Steps until so many decode, each with more to generate than will be timed.
  void start(uint32_t running) {
    for (uint32_t i = 0; i < running; ++i) submit(kRunningTokens, 700);
    do {
      INFERD_CHECK(step());
    } while (plan_.items.size() < running || plan_.token_count > running);
  }
  void queue(uint32_t requests) {
    for (uint32_t i = 0; i < requests; ++i) submit(kQueuedTokens, 100);
  }
  bool step() {
    const Steady::time_point start = Steady::now();
    const bool planned = scheduler_->plan(scheduler_->step_budget(), plan_);
    const Steady::time_point end = Steady::now();
    plan_us_ = std::chrono::duration<double, std::micro>(end - start).count();
    if (!planned) return false;
    results_.assign(plan_.items.size(), {});
    for (size_t i = 0; i < results_.size(); ++i) {
      if (plan_.items[i].logits_count > 0) results_[i].tokens = token_;
    }
    scheduler_->commit(results_);
    commit_us_ = std::chrono::duration<double, std::micro>(Steady::now() - end).count();
    PageId taken[64];
    while (memory_.pool().drain_taken(taken) == std::size(taken)) {
    }
    clock_.advance_ns(10'000'000);
    return true;
  }

  double plan_us() const { return plan_us_; }
  double commit_us() const { return commit_us_; }
  const scheduler::BatchPlan& plan() const { return plan_; }
  uint32_t cached_pages() const { return memory_.pool().counts().cached.value; }

 private:
  void submit(uint32_t prompt_tokens, uint32_t max_tokens) {
    Prng prng(++sequences_);
    prompt_.clear();
    for (uint32_t i = 0; i < prompt_tokens; ++i) {
      prompt_.push_back(static_cast<TokenId>(prng.below(100'000)));
    }
    scheduler::Request request;
    request.sequence = SequenceId(sequences_);
    const uint64_t session = sequences_ % (uint64_t{kUsers} * kSessionsPerUser);
    request.session = SessionId(session + 1);
    request.user = UserId(1000 + static_cast<uint32_t>(session / kSessionsPerUser));
    request.domain = CacheDomain(request.user.value);
    request.prompt = prompt_;
    request.max_tokens = max_tokens;
    const Result<void> accepted = scheduler_->submit(request);
    INFERD_CHECK(accepted.ok());
  }

  ManualClock clock_;
  memory::PagedMemory memory_;
  std::unique_ptr<scheduler::Scheduler> scheduler_;
  scheduler::BatchPlan plan_;
  std::vector<scheduler::ItemResult> results_;
  const std::vector<TokenId> token_{1};
  std::vector<TokenId> prompt_;
  uint64_t sequences_ = 0;
  double plan_us_ = 0;
  double commit_us_ = 0;
};

struct Row {
  uint32_t prefixes;
  uint32_t queued;
  uint32_t running;
};

// What it is to stay below.
constexpr double kPlanTargetUs = 200;

// One of the three that a plan may grow with.
struct Growth {
  const char* key;
  const char* title;
  const char* label;
};
constexpr Growth kGrowths[] = {
    {"running", "Planning a step, by sequences that run", "running sequences"},
    {"prefixes", "Planning a step, by cached prefixes", "cached prefixes"},
    {"queued", "Planning a step, by waiting requests", "waiting requests (0 is shown as 1)"}};

// One plot for each of the three, a line for each combination of the other two; at most eight lines:
// those of the largest rows.
std::vector<Plot> growth_plots(const nlohmann::ordered_json& rows) {
  constexpr size_t kLinesMax = 8;
  std::vector<Plot> plots;
  for (const Growth& growth : kGrowths) {
    Plot plot{growth.title, {growth.label, true}, {"time to plan, p50 (us)", true}, {},
              {{"200 us", kPlanTargetUs}}};
    for (size_t i = rows.size(); i-- > 0;) {
      std::string name;
      for (const Growth& other : kGrowths) {
        if (&other == &growth) continue;
        name += (name.empty() ? "" : ", ") + std::to_string(rows[i][other.key].get<uint32_t>()) +
                " " + other.key;
      }
      auto line = std::find_if(plot.series.begin(), plot.series.end(),
                               [&name](const PlotSeries& series) { return series.name == name; });
      if (line == plot.series.end() && plot.series.size() == kLinesMax) continue;
      if (line == plot.series.end()) {
        line = plot.series.insert(line, {name, PlotKind::kLine, {}});
      }
      line->points.push_back({std::max(rows[i][growth.key].get<double>(), 1.0),
                              rows[i]["plan_us"]["p50"].get<double>()});
    }
    plots.push_back(std::move(plot));
  }
  return plots;
}

nlohmann::ordered_json measure(const Row& row, uint32_t pages, uint32_t steps, bool print) {
  PlanningRig rig(pages, row.running, row.queued + row.running);
  rig.fill_cache(row.prefixes);
  rig.start(row.running);
  const uint32_t cached = rig.cached_pages();
  rig.queue(row.queued);
  std::vector<double> plan_us;
  std::vector<double> commit_us;
  for (uint32_t i = 0; i < steps; ++i) {
    INFERD_CHECK(rig.step());  // in time users who are ahead make way for those who wait
    plan_us.push_back(rig.plan_us());
    commit_us.push_back(rig.commit_us());
  }
  if (print) {
    std::printf("%9u %9u %7u %8u %10.1f / %7.1f %10.1f / %7.1f\n", row.prefixes, cached, row.queued,
                row.running, percentile(plan_us, 0.5), percentile(plan_us, 0.99),
                percentile(commit_us, 0.5), percentile(commit_us, 0.99));
  }
  return {{"prefixes", row.prefixes},
          {"cached_pages", cached},
          {"queued", row.queued},
          {"running", row.running},
          {"plan_us", {{"p50", percentile(plan_us, 0.5)}, {"p99", percentile(plan_us, 0.99)}}},
          {"commit_us", {{"p50", percentile(commit_us, 0.5)}, {"p99", percentile(commit_us, 0.99)}}}};
}

}  // namespace

Result<int> run_planning_command(Arguments arguments) {
  uint32_t pages = 1'000'000, steps = 300;
  std::vector<uint32_t> prefixes, queued, running;
  std::string plot;
  bool json = false;
  Options options("planning", "what planning a step costs, and what it grows with");
  options.add("pages", &pages, "pages of the pool (default 1000000)");
  options.add("prefixes", &prefixes, "cached prefixes (default 1000,100000)");
  options.add("queued", &queued, "waiting requests (default 0,10000)");
  options.add("running", &running, "running sequences (default 1,10,100,1000)");
  options.add("steps", &steps, "steps that are timed, at most 600 (default 300)");
  options.add("plot", &plot, "write the growth curves to this file, as SVG");
  options.add("json", &json, "print JSON: an array of rows");
  INFERD_ASSIGN(const bool go, options.parse(arguments));
  if (!go) return 0;
  if (prefixes.empty()) prefixes = {1000, 100'000};
  if (queued.empty()) queued = {0, 10'000};
  if (running.empty()) running = {1, 10, 100, 1000};
  const auto most = [](const std::vector<uint32_t>& list) {
    return uint64_t{*std::max_element(list.begin(), list.end())};
  };
  if (most(running) == 0 || most(running) > 8192 || most(queued) > 65'536 || steps == 0 ||
      steps > 600 || pages > 100'000'000 ||
      most(prefixes) * (kCachedTokens / kPageTokens) + most(running) * 64 > pages) {
    return Error(ErrorCode::kInvalidArgument,
                 "too much for the pool: --pages must be at least 6 times --prefixes and 64 times "
                 "--running; --running at most 8192, --queued 65536, --steps 600");
  }
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  if (!json) {
    std::printf("%9s %9s %7s %8s %20s %20s\n", "prefixes", "pages", "queued", "running",
                "plan us p50/p99", "commit us p50/p99");
  }
  for (uint32_t one_prefixes : prefixes) {
    for (uint32_t one_queued : queued) {
      for (uint32_t one_running : running) {
        if (one_running == 0) continue;
        rows.push_back(measure({one_prefixes, one_queued, one_running}, pages, steps, !json));
      }
    }
  }
  if (json) std::puts(rows.dump(2).c_str());
  if (!plot.empty()) INFERD_TRY(write_svg(plot, growth_plots(rows)));
  return 0;
}

}  // namespace inferd::bench
