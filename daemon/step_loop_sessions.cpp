// StepLoop: sessions and sequences, from their beginning to the last word.
#include <algorithm>

#include "base/check.h"
#include "daemon/step_loop.h"

namespace inferd::daemon {

namespace {

// What the client calls its prompt: of a request to score, the tokens before those.
uint32_t prompt_tokens_of(const LiveSequence& sequence, const scheduler::SequenceStats& stats) {
  // The last of the scored ones is not computed.
  if (sequence.scored.empty()) return stats.prompt_tokens;
  return stats.prompt_tokens + 1 - static_cast<uint32_t>(sequence.scored.size());
}

}  // namespace

void StepLoop::add_session(std::unique_ptr<ipc::ServerSession> rings, SessionFacts facts,
                           uint32_t sequences_max) {
  const SessionId id = facts.id;
  auto session = std::make_unique<EngineSession>(std::move(rings), std::move(facts), sequences_max);
  EngineSession& added = *session;
  const bool is_new = sessions_.emplace(id, std::move(session)).second;
  INFERD_CHECK(is_new);
  awake_.push_back(&added);
  touched_.reserve(sessions_.size());
  flushing_.reserve(sessions_.size());
  flows_.reserve(sessions_.size());
  ended_.reserve(sessions_.size());
  ++counters_.sessions;
  added.account = &accounts_.open_session(id, added.facts().user);
  watch_bell(added);
}

void StepLoop::remove_session(SessionId session) {
  EngineSession* found = find_session(session);
  if (found != nullptr) release_session(*found);
}

EngineSession* StepLoop::find_session(SessionId session) {
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : found->second.get();
}

LiveSequence* StepLoop::find_sequence(SequenceId sequence) {
  const auto found = live_.find(sequence);
  return found == live_.end() ? nullptr : found->second.get();
}

void StepLoop::touch(EngineSession& session) {
  note_flow(session);
  if (session.touched) return;
  session.touched = true;
  touched_.push_back(&session);
}

void StepLoop::finish(LiveSequence& sequence, ipc::FinishReason reason, uint32_t completion_tokens,
                      const scheduler::SequenceStats& stats) {
  EngineSession& session = *find_session(sequence.session);
  const auto since = [](int64_t from_ns, int64_t to_ns) {
    return from_ns > 0 && to_ns > from_ns ? static_cast<uint64_t>(to_ns - from_ns) : 0;
  };
  ipc::FinishedEvent event;
  event.reason = reason;
  event.prompt_tokens = prompt_tokens_of(sequence, stats);
  event.cached_tokens = stats.cached_tokens;
  event.completion_tokens = completion_tokens;
  const bool worked_on = stats.admitted_ns != 0;
  event.queue_ns = since(stats.submitted_ns, worked_on ? stats.admitted_ns : parts_.clock.now_ns());
  event.prefill_ns = since(stats.admitted_ns, stats.first_token_ns);
  event.decode_ns = since(stats.first_token_ns, sequence.last_token_ns);
  event.computed_tokens =
      static_cast<uint32_t>(std::min<uint64_t>(stats.computed_tokens, UINT32_MAX));
  event.preemptions = stats.preemptions;
  touch(session);
  if (!session.rings().publish_finished(sequence.cookie, event)) {
    end_session(session, ErrorCode::kProtocol, "the client took back room in its completion ring");
  }
}

void StepLoop::fail(LiveSequence& sequence, ErrorCode code, std::string_view sentence) {
  EngineSession& session = *find_session(sequence.session);
  touch(session);
  if (!session.rings().publish_error(sequence.cookie, code, sentence)) {
    end_session(session, ErrorCode::kProtocol, "the client took back room in its completion ring");
    return;
  }
  forget(sequence);
}

void StepLoop::cancel_live(LiveSequence& sequence, ipc::FinishReason reason,
                           uint32_t completion_tokens) {
  const auto info = parts_.scheduler.info(sequence.id);
  INFERD_CHECK(info.has_value());
  stop(sequence, reason == ipc::FinishReason::kCancelled ? Outcome::kCancelled : Outcome::kFinished);
  finish(sequence, reason, completion_tokens, info->stats);
  if (!find_session(sequence.session)->ended) forget(sequence);
}

void StepLoop::forget(LiveSequence& sequence) {
  EngineSession* session = find_session(sequence.session);
  INFERD_CHECK(session != nullptr);
  session->remove_sequence(sequence);
  live_.erase(sequence.id);
}

Result<LiveSequence*> StepLoop::visible_sequence(SequenceId sequence,
                                                 std::optional<UserId> only_of_user) {
  LiveSequence* live = find_sequence(sequence);
  const EngineSession* session = live == nullptr ? nullptr : find_session(live->session);
  const bool visible = session != nullptr && !session->ended &&
                       (!only_of_user || session->facts().user == *only_of_user);
  if (!visible) {
    return Error(ErrorCode::kNotFound, "there is no running sequence " +
                                           std::to_string(sequence.value) +
                                           "; `inferctl ps` lists them");
  }
  return live;
}

Result<void> StepLoop::cancel_sequence(SequenceId sequence, std::optional<UserId> only_of_user) {
  INFERD_ASSIGN(LiveSequence* const live, visible_sequence(sequence, only_of_user));
  cancel_live(*live, ipc::FinishReason::kCancelled, live->published);
  return {};
}

Result<StepLoop::Urgency> StepLoop::renice_sequence(SequenceId sequence, Urgency urgency,
                                                    std::optional<UserId> only_of_user) {
  INFERD_ASSIGN(LiveSequence* const live, visible_sequence(sequence, only_of_user));
  const auto info = parts_.scheduler.info(live->id);
  INFERD_CHECK(info.has_value());
  const scheduler::PriorityClass priority = urgency.priority.value_or(info->priority);
  const int32_t nice = urgency.nice.value_or(info->nice);
  if (only_of_user && (priority < info->priority || nice < info->nice)) {
    return Error(ErrorCode::kPermissionDenied,
                 "sequence " + std::to_string(sequence.value) + " is " +
                     std::string(scheduler::priority_class_name(info->priority)) + " with nice " +
                     std::to_string(info->nice) +
                     "; making it more urgent is for root and the daemon's own user; try sudo");
  }
  parts_.scheduler.renice(live->id, priority, nice);
  live->priority = priority;
  return Urgency{priority, nice};
}

// Requests whose deadline came before their turn.
void StepLoop::refuse_overdue() {
  while (const std::optional<SequenceId> overdue = parts_.scheduler.overdue()) {
    LiveSequence* sequence = find_sequence(*overdue);
    INFERD_CHECK(sequence != nullptr);
    stop(*sequence, Outcome::kOverdue);
    ++counters_.requests_overdue;
    fail(*sequence, ErrorCode::kTimedOut,
         "the request had not started when its deadline came, since others were first: try again "
         "later, or give it a longer one");
  }
}

void StepLoop::end_session(EngineSession& session, ErrorCode code, std::string_view sentence) {
  if (session.ended) return;
  if (code == ErrorCode::kProtocol) ++counters_.sessions_broken;
  session.ended = true;
  session.rings().publish_last_word(code, sentence);
  session.rings().flush(*bells_);
  // Everything that it holds goes now, but for what others may still be looking at in this turn.
  stop_all(session);
  ended_.push_back(&session);
  parts_.observer.on_session_ended(session.facts().id, Error(code, std::string(sentence)));
}

void StepLoop::release_ended() {
  while (!ended_.empty()) release_session(*ended_.back());
}

void StepLoop::release_session(EngineSession& session) {
  stop_all(session);
  while (!session.sequences().empty()) forget(*session.sequences().back());
  unwatch_bell(session);
  std::erase(awake_, &session);
  std::erase(touched_, &session);
  std::erase(flows_, &session);
  std::erase(ended_, &session);
  accounts_.close_session(*session.account);
  sessions_.erase(session.facts().id);
  pages_to_give_back_ = true;
}

EngineSnapshot StepLoop::snapshot() const {
  const int64_t now_ns = parts_.clock.now_ns();
  EngineSnapshot snapshot;
  snapshot.scheduler = parts_.scheduler.stats();
  snapshot.pages = parts_.memory.pool().counts();
  snapshot.disk.slots = parts_.memory.prefixes().slots();
  snapshot.disk.used = parts_.memory.prefixes().slots_used();
  if (parts_.tier != nullptr) snapshot.disk.counters = parts_.tier->counters();
  snapshot.loop = counters_;
  snapshot.engine = parts_.engine.counters();
  snapshot.draining = draining_;
  snapshot.pressure = pressure_.figures(now_ns);
  std::vector<scheduler::SequenceInfo> infos;
  parts_.scheduler.list(infos);
  for (const scheduler::SequenceInfo& info : infos) {
    snapshot.sequences.push_back({info, now_ns - info.stats.submitted_ns});
  }
  for (const auto& [id, session] : sessions_) {
    snapshot.sessions.push_back({session->facts(),
                                 static_cast<uint32_t>(session->sequences().size()),
                                 session->paused, now_ns - session->facts().connected_ns});
  }
  return snapshot;
}

Result<void> StepLoop::verify() const {
  const auto violation = [](const std::string& text) { return Error(ErrorCode::kInternal, text); };
  size_t sequences = 0;
  for (const auto& [id, session] : sessions_) {
    const bool waits = !session->ended && (session->paused || session->starved);
    if (waits && std::find(flows_.begin(), flows_.end(), session.get()) == flows_.end()) {
      return violation("session " + std::to_string(id.value) +
                       " waits for room in its ring, but nobody looks for it");
    }
    for (const LiveSequence* sequence : session->sequences()) {
      ++sequences;
      const auto found = live_.find(sequence->id);
      if (found == live_.end() || found->second.get() != sequence || sequence->session != id) {
        return violation("session " + std::to_string(id.value) + " lists a sequence that is not live");
      }
      if (!session->ended && !parts_.scheduler.info(sequence->id)) {
        return violation("sequence " + std::to_string(sequence->id.value) +
                         " is live, but the scheduler does not know it");
      }
    }
  }
  if (sequences != live_.size()) return violation("a live sequence belongs to no session");
  std::vector<scheduler::SequenceInfo> infos;
  parts_.scheduler.list(infos);
  for (const scheduler::SequenceInfo& info : infos) {
    if (!live_.contains(info.sequence)) {
      return violation("sequence " + std::to_string(info.sequence.value) +
                       " is scheduled, but belongs to no session");
    }
  }
  INFERD_TRY(verify_accounts());
  INFERD_TRY(parts_.scheduler.verify());
  return parts_.memory.verify();
}

}  // namespace inferd::daemon
