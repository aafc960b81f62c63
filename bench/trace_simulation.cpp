#include "bench/trace_simulation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "bench/step_cost_fit.h"

namespace inferd::bench {

using scheduler::BatchItem;
using scheduler::SequenceEvent;

namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr UserId kFirstUser{1000};
constexpr CacheDomain kSharedDomain{7};
constexpr int64_t kCacheIdleS = 600;  // the daemon's default
constexpr uint32_t kDroppedATurn = 256;

double seconds(int64_t time_ns) { return static_cast<double>(time_ns) * 1e-9; }
double milliseconds(int64_t time_ns) { return static_cast<double>(time_ns) * 1e-6; }

SequenceId sequence_of(size_t index) { return SequenceId(index + 1); }
size_t index_of(SequenceId sequence) { return sequence.value - 1; }

Result<void> check_options(const SimulationOptions& options) {
  if (options.pages == 0 || options.pages > 100'000'000 || options.max_sequences == 0 ||
      options.max_sequences > 8192 || options.step_tokens > 1'000'000 || options.queue == 0 ||
      options.queue > 10'000'000) {
    return Error(ErrorCode::kInvalidArgument,
                 "--pages must be from 1 to 100000000, --max-sequences from 1 to 8192, "
                 "--step-tokens up to 1000000, --queue from 1 to 10000000");
  }
  if (options.context_tokens == 0 || options.context_tokens > kTraceTokensMax ||
      options.users == 0 || options.users > kTraceUsersMax || options.itl_target_ms > 3'600'000) {
    return Error(ErrorCode::kInvalidArgument,
                 "--context must be from 1 to 10000000, --users from 1 to 1000, --itl-target up to "
                 "3600000");
  }
  if (!(options.time_scale > 0 && options.time_scale <= 1000) ||
      !(options.limit_s >= 0 && options.limit_s < 1e9)) {
    return Error(ErrorCode::kInvalidArgument,
                 "--time-scale must be above 0 and at most 1000, --limit 0 or more");
  }
  for (uint32_t weight : options.weights) {
    if (weight == 0 || weight > 10'000) {
      return Error(ErrorCode::kInvalidArgument, "--weights must be from 1 to 10000 each");
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<TraceSimulation>> TraceSimulation::create(const Trace& trace,
                                                                 const SimulationOptions& options) {
  INFERD_TRY(check_options(options));
  std::unique_ptr<TraceSimulation> simulation(new TraceSimulation(trace, options));
  scheduler::SchedulerConfig config;
  config.step_tokens = options.step_tokens;
  config.step_logits = options.max_sequences;
  config.context_tokens = options.context_tokens;
  config.queue_max = options.queue;
  INFERD_TRY(scheduler::check_config(config, *simulation->memory_));
  simulation->scheduler_ =
      std::make_unique<scheduler::Scheduler>(config, *simulation->memory_, simulation->clock_);
  return simulation;
}

TraceSimulation::TraceSimulation(const Trace& trace, const SimulationOptions& options)
    : trace_(trace),
      options_(options),
      live_(trace.requests.size()),
      place_(trace.requests.size()) {
  const uint32_t pool_tokens = std::min(options.pages, kTraceTokensMax / kPageTokens) * kPageTokens;
  memory_ = std::make_unique<memory::PagedMemory>(
      memory::MemoryConfig{.pages = PageCount(options.pages),
                           .sequences_max = options.max_sequences,
                           .sequence_tokens_max = std::min(options.context_tokens, pool_tokens),
                           .hash_seed = 42});
  result_.users = trace.users > 0 ? trace.users : options.users;
  result_.fairness = FairnessMeter(result_.users);
  result_.requests.resize(trace.requests.size());
  for (size_t i = 0; i < trace.requests.size(); ++i) {
    RequestResult& request = result_.requests[i];
    request.user = user_of(i);
    request.priority = trace.requests[i].priority;
    request.arrival_s = seconds(arrival_ns(i));
  }
}

TraceSimulation::~TraceSimulation() = default;

uint32_t TraceSimulation::user_of(size_t index) const {
  if (trace_.users > 0) return trace_.requests[index].user;
  return static_cast<uint32_t>(index % options_.users);
}

uint32_t TraceSimulation::weight_of(uint32_t user) const {
  if (options_.weights.empty()) return scheduler::kWeightDefault;
  return options_.weights[user % options_.weights.size()];
}

int64_t TraceSimulation::arrival_ns(size_t index) const {
  const double scaled =
      static_cast<double>(trace_.requests[index].arrival_ns) * options_.time_scale;
  // Beyond this nobody waits for the end.
  constexpr auto kLatestNs = static_cast<double>(std::numeric_limits<int64_t>::max() / 4);
  return std::llround(std::min(scaled, kLatestNs));
}

bool TraceSimulation::over() const {
  return options_.limit_s > 0 && seconds(clock_.now_ns()) >= options_.limit_s;
}

Result<SimulationResult> TraceSimulation::run() {
  while (!over()) {
    submit_due();
    if (step()) {
      if (options_.verify) INFERD_TRY(scheduler_->verify());
      continue;
    }
    if (!scheduler_->idle()) {
      return Error(ErrorCode::kInternal,
                   "the scheduler has work that no step does: a bug; please report the trace");
    }
    if (next_ == trace_.requests.size()) break;
    clock_.advance_ns(arrival_ns(next_) - clock_.now_ns());
  }
  result_.end_s = seconds(clock_.now_ns());
  result_.totals = scheduler_->stats();
  note_moment();
  return std::move(result_);
}

void TraceSimulation::submit_due() {
  while (next_ < trace_.requests.size() && arrival_ns(next_) <= clock_.now_ns()) submit(next_++);
}

void TraceSimulation::submit(size_t index) {
  const TraceRequest& traced = trace_.requests[index];
  RequestResult& outcome = result_.requests[index];
  const uint32_t limit = scheduler_->sequence_limit().tokens;
  const uint64_t tokens = uint64_t{traced.prompt_tokens} + traced.output_tokens;
  Result<void> accepted;
  if (tokens > limit) {
    // The scheduler would take it and end the answer early; then lengths would not be the trace's.
    accepted = Error(ErrorCode::kResourceExhausted,
                     std::to_string(tokens) + " tokens of prompt and answer exceed the " +
                         std::to_string(limit) + " that --context and --pages allow");
  } else {
    make_prompt(traced, index, prompt_);
    scheduler::Request request;
    request.sequence = sequence_of(index);
    request.session = SessionId(uint64_t{outcome.user} + 1);
    request.user = UserId(kFirstUser.value + outcome.user);
    request.domain = options_.shared_domain ? kSharedDomain : CacheDomain(request.user.value);
    request.prompt = prompt_;
    request.max_tokens = traced.output_tokens;
    request.weight = weight_of(outcome.user);
    request.priority = traced.priority;
    accepted = scheduler_->submit(request);
  }
  if (!accepted) {
    outcome.state = RequestResult::State::kRefused;
    if (result_.first_refusal.empty()) result_.first_refusal = accepted.error().message();
    return;
  }
  result_.longest_tokens = std::max(result_.longest_tokens, static_cast<uint32_t>(tokens));
  place_[index] = live_list_.size();
  live_list_.push_back(index);
}

bool TraceSimulation::step() {
  memory_->pool().set_now(static_cast<uint32_t>(clock_.now_ns() / kSecondNs));
  if (clock_.now_ns() > kCacheIdleS * kSecondNs) {
    const int64_t before_s = clock_.now_ns() / kSecondNs - kCacheIdleS;
    memory_->drop_cached(static_cast<uint32_t>(before_s), kDroppedATurn);
  }
  scheduler::StepBudget budget = scheduler_->step_budget();
  const auto target_ns = static_cast<int64_t>(options_.itl_target_ms * 1e6);
  budget.time_ns = margin_.planned_ns(target_ns);
  budget.cost = cost_model_.cost();
  if (!scheduler_->plan(budget, plan_)) return false;
  std::array<PageId, 64> taken;
  while (memory_->pool().drain_taken(taken) == taken.size()) {
  }

  CostSample cost;
  for (const BatchItem& item : plan_.items) {
    cost.add(static_cast<uint32_t>(item.tokens.size()), item.logits_count, item.position_first);
  }
  const int64_t step_ns = std::max<int64_t>(1, std::llround(cost.predicted_ns(options_.cost)));
  margin_.observe(cost_model_.predict_ns(plan_), step_ns, target_ns);
  cost_model_.observe(plan_, step_ns);
  result_.busy_s += seconds(step_ns);
  look_at_plan();
  result_.waste.add(*memory_, step_ns);
  clock_.advance_ns(step_ns);
  commit();
  if (result_.log.due(seconds(clock_.now_ns()))) note_moment();
  return true;
}

// Service and what is left undone, before commit() changes states.
void TraceSimulation::look_at_plan() {
  for (const BatchItem& item : plan_.items) {
    const size_t index = index_of(item.sequence);
    Live& live = live_[index];
    const RequestResult& request = result_.requests[index];
    const auto count = static_cast<uint32_t>(item.tokens.size());
    const uint32_t end = item.position_first + count;
    const uint32_t known = trace_.requests[index].prompt_tokens + live.generated;
    result_.computed_tokens += count;
    result_.found_tokens += item.position_first - std::min(item.position_first, live.served_to);
    const uint32_t news = end - std::min(end, std::max(live.served_to, item.position_first));
    result_.recomputed_tokens += count - news;
    live.served_to = std::max(live.served_to, end);
    const auto info = scheduler_->info(item.sequence);
    const bool decodes = info->state == scheduler::SequenceState::kDecoding;
    result_.fairness.serve(request.priority, request.user,
                           decodes ? scheduler::kDecodeCost * count : news,
                           weight_of(request.user));
    live.planned = end == known;  // nothing of it is left undone
    if (!live.admitted) {
      live.admitted = true;
      admitted_prompt_tokens_ += info->stats.prompt_tokens;
      admitted_cached_tokens_ += info->stats.cached_tokens;
    }
  }
  for (size_t index : live_list_) {
    const RequestResult& request = result_.requests[index];
    if (!live_[index].planned) result_.fairness.note_lacking(request.priority, request.user);
    live_[index].planned = false;
  }
  result_.fairness.end_step();
}

void TraceSimulation::commit() {
  item_results_.assign(plan_.items.size(), {});
  sampled_.resize(plan_.items.size());
  for (size_t i = 0; i < plan_.items.size(); ++i) {
    if (plan_.items[i].logits_count == 0) continue;
    const size_t index = index_of(plan_.items[i].sequence);
    sampled_[i] = answer_token(trace_.requests[index], index, live_[index].generated);
    item_results_[i].tokens = std::span<const TokenId>(&sampled_[i], 1);
  }
  for (const SequenceEvent& event : scheduler_->commit(item_results_)) note_event(event);
}

void TraceSimulation::note_event(const SequenceEvent& event) {
  const size_t index = index_of(event.sequence);
  Live& live = live_[index];
  RequestResult& request = result_.requests[index];
  const int64_t now_ns = clock_.now_ns();
  if (!event.tokens.empty()) {
    INFERD_CHECK(event.tokens.size() == 1);
    if (live.generated == 0) {
      request.ttft_ms = milliseconds(now_ns - arrival_ns(index));
    } else {
      result_.itl_ms[static_cast<size_t>(request.priority)].push_back(
          static_cast<float>(milliseconds(now_ns - live.last_token_ns)));
    }
    ++live.generated;
    live.last_token_ns = now_ns;
  }
  request.stats = event.stats;
  if (event.finish == scheduler::FinishReason::kNone) return;
  request.state = RequestResult::State::kFinished;
  request.end_s = seconds(now_ns);
  forget(index);
}

void TraceSimulation::forget(size_t index) {
  const size_t place = place_[index];
  live_list_[place] = live_list_.back();
  place_[live_list_[place]] = place;
  live_list_.pop_back();
}

void TraceSimulation::note_moment() {
  Moment moment;
  moment.time_s = seconds(clock_.now_ns());
  moment.pages = memory_->pool().counts();
  moment.prompt_tokens = admitted_prompt_tokens_;
  moment.cached_tokens = admitted_cached_tokens_;
  const scheduler::SchedulerStats stats = scheduler_->stats();
  moment.waiting = stats.waiting;
  moment.running = stats.running;
  for (uint32_t user = 0; user < std::min(result_.users, kUsersShown); ++user) {
    moment.service.push_back(result_.fairness.service(user));
  }
  result_.log.add(std::move(moment));
}

}  // namespace inferd::bench
