// StepLoop: one turn, from the rings to the rings. Sessions, intake and sleeping have files of their own.
#include "daemon/step_loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"

namespace inferd::daemon {

Result<std::unique_ptr<StepLoop>> StepLoop::create(StepLoopParts parts, StepLoopLimits limits) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return errno_error("cannot create the engine's epoll descriptor", errno);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = 0;  // no session has the id 0
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, parts.mailbox.wake_fd(), &event) != 0) {
    return errno_error("cannot watch the engine's mailbox", errno);
  }
  INFERD_ASSIGN(auto bells, ipc::DoorbellBatch::create());
  return std::unique_ptr<StepLoop>(
      new StepLoop(std::move(parts), limits, std::move(epoll), std::move(bells)));
}

StepLoop::StepLoop(StepLoopParts parts, StepLoopLimits limits, UniqueFd epoll,
                   std::unique_ptr<ipc::DoorbellBatch> bells)
    : parts_(std::move(parts)), limits_(limits), epoll_(std::move(epoll)),
      sampler_(parts_.engine.info().vocabulary), vocabulary_(parts_.engine.info().vocabulary),
      bells_(std::move(bells)), pressure_(parts_.clock.now_ns()) {
  INFERD_CHECK(limits_.running_max > 0 && vocabulary_ > 0);
  const uint32_t items_max = parts_.scheduler.config().step_tokens;
  plan_.items.reserve(items_max);
  sampled_.resize(items_max);
  top_.resize(size_t{items_max} * engine::kTopLogprobsMax);
  item_results_.resize(items_max);
  top_record_.resize(size_t{ipc::kTokensPerRecordMax} * engine::kTopLogprobsMax);
  // A step's rows are what a session has room for, see EngineSession.
  INFERD_CHECK(parts_.scheduler.config().step_logits <= limits_.running_max);
}

StepLoop::~StepLoop() {
  // Sequences go before the scheduler does, which the caller owns.
  while (!sessions_.empty()) release_session(*sessions_.begin()->second);
}

void StepLoop::run() {
  while (!stopped_) turn(true);
}

bool StepLoop::turn(bool may_block) {
  ++counters_.turns;
  parts_.mailbox.run_tasks(*this);
  if (stopped_) return false;
  const bool drained_some = drain_sessions();
  update_flows();
  drop_idle_cache(parts_.clock.now_ns());
  go_on_relieving();
  refuse_overdue();
  const bool stepped = step();
  if (!stepped) step_ended_ns_ = 0;
  flush_sessions();
  release_ended();
  check_drain(parts_.clock.now_ns());
  if (stopped_) return stepped;
  const bool busy = stepped || drained_some || work_left_;
  idle_since_ns_ = busy ? 0 : (idle_since_ns_ == 0 ? parts_.clock.now_ns() : idle_since_ns_);
  wait_for_events(may_block && !busy);
  release_ended();
  return stepped;
}

// ---- drain ----

bool StepLoop::drain_sessions() {
  const uint64_t requests_before = counters_.requests + counters_.requests_refused;
  work_left_ = false;
  const size_t count = awake_.size();
  for (size_t i = 0; i < count; ++i) drain_session(*awake_[(drain_first_ + i) % count]);
  if (count > 0) drain_first_ = (drain_first_ + 1) % count;
  return counters_.requests + counters_.requests_refused != requests_before;
}

void StepLoop::drain_session(EngineSession& session) {
  if (session.ended) return;
  const uint32_t quota = session.drain_quota();
  session.starved = quota == 0;
  if (session.starved) {
    // The ring is full of unread answers. update_flow() watches how long that lasts.
    note_flow(session);
    if (const auto& broken = session.rings().broken()) {
      end_session(session, broken->code(), broken->message());
    }
    return;
  }
  draining_session_ = &session;
  const ipc::DrainOutcome outcome = session.rings().drain(quota, scratch_, *this);
  draining_session_ = nullptr;
  if (session.ended) return;
  if (outcome.broken) {
    end_session(session, outcome.broken->code(), outcome.broken->message());
    return;
  }
  session.empty_polls = outcome.records == 0 ? session.empty_polls + 1 : 0;
  work_left_ = work_left_ || outcome.more;
}

// ---- flow control ----

// Only what the daemon does takes room in a completion ring, and touch() and drain_session() note
// for whom it did; who waits for room stays noted, since a client that reads does not ring.
void StepLoop::note_flow(EngineSession& session) {
  if (session.flow_noted) return;
  session.flow_noted = true;
  flows_.push_back(&session);
}

void StepLoop::update_flows() {
  if (flows_.empty()) return;
  const int64_t now_ns = parts_.clock.now_ns();
  for (EngineSession* session : flows_) update_flow(*session, now_ns);
  std::erase_if(flows_, [](EngineSession* session) {
    session->flow_noted = !session->ended && (session->paused || session->starved);
    return !session->flow_noted;
  });
}

void StepLoop::update_flow(EngineSession& session, int64_t now_ns) {
  if (session.ended) return;
  if (session.sequences().empty() && !session.paused && !session.starved) return;
  session.starved = session.starved && session.drain_quota() == 0;
  const bool room = !session.starved && session.room_for_step(limits_.running_max);
  if (const auto& broken = session.rings().broken()) {
    end_session(session, broken->code(), broken->message());
    return;
  }
  if (!room && !session.paused) {
    session.paused = true;
    session.stalled_since_ns = now_ns;
  } else if (room && session.paused) {
    session.paused = false;
    session.resumed_ns = now_ns;
    for (LiveSequence* sequence : session.sequences()) parts_.scheduler.resume(sequence->id);
  }
  if (!session.paused) return;
  // Every turn, since sequences may have joined meanwhile.
  for (LiveSequence* sequence : session.sequences()) parts_.scheduler.pause(sequence->id);
  if (now_ns - session.stalled_since_ns >= limits_.stall_timeout_ns) {
    ++counters_.sessions_stalled;
    end_session(session, ErrorCode::kTimedOut,
                "the client did not read its answers for " +
                    std::to_string(limits_.stall_timeout_ns / 1'000'000'000) +
                    " s; read events as they come, or raise [limits] stall_timeout");
  }
}

// ---- the step ----

scheduler::StepBudget StepLoop::choose_budget() const {
  scheduler::StepBudget budget = parts_.scheduler.step_budget();
  budget.time_ns = margin_.planned_ns(limits_.itl_target_ns);
  budget.cost = cost_model_.cost();
  return budget;
}

bool StepLoop::step() {
  collect_tier();
  const bool work = parts_.scheduler.plan(choose_budget(), plan_);
  pressure_.observe(parts_.clock.now_ns(), parts_.scheduler.waits());
  // Before any page is handed out again: the plan's own may be among those whose content moves on.
  make_stores();
  note_progress(work);
  if (!work) return false;
  INFERD_CHECK(plan_.items.size() <= item_results_.size());
  announce_pages();
  note_pages();
  make_loads();
  if (plan_.items.empty()) {
    parts_.scheduler.commit({});
  } else {
    run_plan();
  }
  pages_to_give_back_ = true;
  store_ahead();
#ifdef INFERD_VERIFY
  INFERD_CHECK(verify().ok());
#endif
  return true;
}

// An empty step is right if everybody is paused, waits for the next tier, or for somebody who does.
void StepLoop::note_progress(bool work) {
  const scheduler::StepWaits& waits = parts_.scheduler.waits();
  const bool somebody = waits.for_pages + waits.for_turn > 0;
  if (work || !somebody || parts_.scheduler.somebody_loads()) {
    stuck_since_ns_ = 0;
  } else if (stuck_since_ns_ == 0) {
    stuck_since_ns_ = parts_.clock.now_ns();
  }
}

int64_t StepLoop::stuck_for_ns() const {
  return stuck_since_ns_ == 0 ? 0 : parts_.clock.now_ns() - stuck_since_ns_;
}

void StepLoop::run_plan() {
  const int64_t start_ns = parts_.clock.now_ns();
  const std::span<const float> logits = parts_.engine.run(plan_);
  INFERD_CHECK(logits.size() == size_t{plan_.logits_count} * vocabulary_);
  sample_items(logits);
  fail_unsampled();
  const auto events =
      parts_.scheduler.commit(std::span(item_results_).first(plan_.items.size()));
  const int64_t now_ns = parts_.clock.now_ns();
  ++counters_.steps;
  note_step_time(now_ns - start_ns, now_ns - (step_ended_ns_ == 0 ? start_ns : step_ended_ns_));
  step_ended_ns_ = now_ns;
  publish_events(events, now_ns);
}

void StepLoop::announce_pages() {
  std::array<PageId, 64> pages;
  size_t count;
  do {
    count = parts_.memory.pool().drain_taken(pages);
    for (size_t i = 0; i < count; ++i) parts_.engine.page_taken(pages[i]);
  } while (count == pages.size());
}

void StepLoop::sample_items(std::span<const float> logits) {
  size_t row = 0;
  for (size_t i = 0; i < plan_.items.size(); ++i) {
    const scheduler::BatchItem& item = plan_.items[i];
    Sampled& sampled = sampled_[i];
    sampled = {};
    item_results_[i] = {};
    if (item.logits_count > 0) {
      const auto rows = logits.subspan(row * vocabulary_, size_t{item.logits_count} * vocabulary_);
      row += item.logits_count;
      LiveSequence* sequence = find_sequence(item.sequence);
      INFERD_CHECK(sequence != nullptr);
      if (!sequence->scored.empty()) {
        score_item(item, rows, *sequence);
        continue;
      }
      // Of several rows only the last one's position is not known yet.
      const auto last_row = rows.last(vocabulary_);
      const std::span<const TokenId> history = parts_.scheduler.tokens(item.sequence);
      sampled.wanted = true;
      sampled.result = sampler_.sample(
          last_row, sequence->sampling, sequence->biases, history, history.size(),
          std::span(top_).subspan(i * engine::kTopLogprobsMax, engine::kTopLogprobsMax));
      item_results_[i].tokens = std::span(&sampled.result.token, 1);
    }
  }
  INFERD_CHECK(row == plan_.logits_count);
}

void StepLoop::fail_unsampled() {
  for (size_t i = 0; i < plan_.items.size(); ++i) {
    if (!sampled_[i].wanted || sampled_[i].result.token != kNoToken) continue;
    LiveSequence* sequence = find_sequence(plan_.items[i].sequence);
    INFERD_CHECK(sequence != nullptr);
    // Its pages are freed by commit(), after the step that wrote them.
    stop(*sequence, Outcome::kFailed);
    fail(*sequence, ErrorCode::kInvalidArgument,
         "no token can follow: the logit biases forbid all that the model allows");
  }
}

void StepLoop::note_step_time(int64_t step_ns, int64_t turn_ns) {
  counters_.step.add(step_ns);
  margin_.observe(cost_model_.predict_ns(plan_), turn_ns, limits_.itl_target_ns);
  cost_model_.observe(plan_, step_ns);
}

void StepLoop::publish_events(std::span<const scheduler::SequenceEvent> events, int64_t now_ns) {
  size_t item = 0;
  for (const scheduler::SequenceEvent& event : events) {
    while (plan_.items[item].sequence != event.sequence) ++item;  // events are in the items' order
    LiveSequence* sequence = find_sequence(event.sequence);
    INFERD_CHECK(sequence != nullptr);
    EngineSession* session = find_session(sequence->session);
    INFERD_CHECK(session != nullptr);
    const bool ends = event.finish != scheduler::FinishReason::kNone;
    if (ends) session->account->account.end(event.stats, 0, Outcome::kFinished);
    publish_tokens(*session, *sequence, item, event, now_ns);
    if (ends && !session->ended) {
      finish(*sequence, static_cast<ipc::FinishReason>(event.finish), sequence->published,
             event.stats);
      forget(*sequence);
    }
  }
}

void StepLoop::publish_tokens(EngineSession& session, LiveSequence& sequence, size_t item,
                              const scheduler::SequenceEvent& event, int64_t now_ns) {
  // A token that ends the answer is not part of it.
  const bool stopped = event.finish == scheduler::FinishReason::kStop;
  const std::span<const TokenId> ids = event.tokens.first(event.tokens.size() - (stopped ? 1 : 0));
  if (ids.empty() || session.ended) return;
  INFERD_CHECK(ids.size() == 1);
  ipc::TokensEvent tokens;
  tokens.first_index = sequence.published;
  tokens.cached_tokens = event.stats.cached_tokens;
  tokens.ids = ids;
  const engine::SampleResult& result = sampled_[item].result;
  if (sequence.sampling.want_logprobs != 0) {
    const uint32_t top_count = sequence.sampling.top_logprobs;
    for (uint32_t i = 0; i < top_count; ++i) {
      const engine::TokenLogprob& entry = top_[item * engine::kTopLogprobsMax + i];
      top_record_[i] = i < result.top_count ? ipc::LogprobEntry{entry.token, entry.logprob}
                                            : ipc::LogprobEntry{kNoToken, 0};
    }
    tokens.logprobs = std::span(&result.logprob, 1);
    tokens.top = std::span(top_record_).first(top_count);
    tokens.top_count = top_count;
  }
  if (!session.rings().publish_tokens(sequence.cookie, tokens)) {
    end_session(session, ErrorCode::kProtocol, "the client took back room in its completion ring");
    return;
  }
  touch(session);
  note_token_time(session, sequence, event.stats.submitted_ns, now_ns);
  sequence.last_token_ns = now_ns;
  ++sequence.published;
  ++counters_.tokens_published;
}

void StepLoop::flush_sessions() {
  flushing_.clear();
  for (EngineSession* session : touched_) {
    flushing_.push_back(&session->rings());
    session->touched = false;
  }
  touched_.clear();
  counters_.doorbells += ipc::ServerSession::flush_all(flushing_, *bells_);
}

// ---- the end ----

void StepLoop::begin_drain(std::optional<int64_t> deadline_ns) {
  draining_ = true;
  if (!deadline_ns) return;
  drain_deadline_ns_ = std::min(drain_deadline_ns_.value_or(*deadline_ns), *deadline_ns);
}

void StepLoop::check_drain(int64_t now_ns) {
  if (!draining_) return;
  const bool late = drain_deadline_ns_ && now_ns >= *drain_deadline_ns_;
  if (!late && !live_.empty()) return;
  for (const auto& [id, session] : sessions_) {
    if (session->ended) continue;
    end_session(*session, ErrorCode::kUnavailable,
                "the daemon is shutting down; connect again when it is back");
  }
  release_ended();
  stopped_ = true;
}

void StepLoop::set_limits(const StepLoopLimits& limits) {
  INFERD_CHECK(limits.running_max == limits_.running_max);  // the memory was made for it
  limits_ = limits;
  parts_.scheduler.set_session_requests_max(limits.sequences_per_session);
  parts_.scheduler.set_quotas(limits.user_quota, limits.session_quota);
}

}  // namespace inferd::daemon
