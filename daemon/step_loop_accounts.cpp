// StepLoop: what is entered into the accounts of clients and users, and that it adds up.
#include <algorithm>
#include <string>

#include "base/check.h"
#include "daemon/step_loop.h"

namespace inferd::daemon {

// Takes the sequence from the scheduler, and enters what it came to.
void StepLoop::stop(LiveSequence& sequence, Outcome outcome) {
  const auto info = parts_.scheduler.info(sequence.id);
  INFERD_CHECK(info.has_value());
  EngineSession* session = find_session(sequence.session);
  INFERD_CHECK(session != nullptr);
  session->account->account.end(info->stats, info->waiting_ns, outcome);
  parts_.scheduler.cancel(sequence.id);
}

// All of the session's that the scheduler still has: it no longer knows those that ended in the
// step whose events are being published, nor those that were stopped before.
void StepLoop::stop_all(EngineSession& session) {
  for (LiveSequence* sequence : session.sequences()) {
    if (parts_.scheduler.info(sequence->id)) stop(*sequence, Outcome::kCancelled);
  }
}

// Before the step runs: its pages are in the tables, and nothing has ended.
void StepLoop::note_pages() {
  accounts_.begin_step();
  parts_.scheduler.each_running([this](SessionId id, UserId user, PageCount pages) {
    const EngineSession* session = find_session(id);
    INFERD_CHECK(session != nullptr);
    accounts_.note_pages(*session->account, pages, parts_.memory.pool().charged_pages(user));
  });
}

void StepLoop::note_token_time(const EngineSession& session, const LiveSequence& sequence,
                               int64_t submitted_ns, int64_t now_ns) {
  Account& account = session.account->account;
  if (sequence.published == 0) {
    counters_.ttft.add(now_ns - submitted_ns);
    account.ttft.add(now_ns - submitted_ns);
    return;
  }
  const int64_t itl_ns = now_ns - sequence.last_token_ns;
  counters_.itl.add(itl_ns);
  account.itl.add(itl_ns);
  if (sequence.priority != scheduler::PriorityClass::kInteractive) return;
  const int64_t since_ns = std::max(sequence.last_token_ns, session.resumed_ns);
  if (limits_.itl_target_ns != 0) pressure_.note_late(since_ns + limits_.itl_target_ns, now_ns);
}

AccountsSnapshot StepLoop::accounts() const {
  std::vector<scheduler::SequenceInfo> live;
  parts_.scheduler.list(live);
  return accounts_.snapshot(live, parts_.memory.pool().charges());
}

// The accounts together come to what loop and scheduler counted by themselves.
Result<void> StepLoop::verify_accounts() const {
  AccountSums sums = accounts_.sums();
  std::vector<scheduler::SequenceInfo> live;
  parts_.scheduler.list(live);
  for (const scheduler::SequenceInfo& info : live) sums.add(info.stats, info.waiting_ns);
  const scheduler::SchedulerStats stats = parts_.scheduler.stats();
  const struct {
    const char* name;
    uint64_t in_accounts;
    uint64_t counted;
  } figures[] = {
      {"accepted requests", sums.accepted, counters_.requests},
      {"refused requests", sums.refused, counters_.requests_refused},
      {"overdue requests", sums.overdue, counters_.requests_overdue},
      {"requests that ended", sums.finished + sums.cancelled + sums.overdue + sums.failed,
       stats.finished + stats.cancelled},
      {"prompt tokens", sums.prompt_tokens, stats.prompt_tokens},
      {"cached tokens", sums.cached_tokens, stats.cached_tokens},
      {"computed tokens", sums.computed_tokens, stats.computed_tokens},
      {"recomputed tokens", sums.recomputed_tokens, stats.recomputed_tokens},
      {"generated tokens", sums.generated_tokens, stats.generated_tokens},
      {"preemptions", sums.preemptions, stats.preemptions},
  };
  for (const auto& figure : figures) {
    if (figure.in_accounts == figure.counted) continue;
    return Error(ErrorCode::kInternal, "accounts have " + std::to_string(figure.in_accounts) + " " +
                                           figure.name + ", but " + std::to_string(figure.counted) +
                                           " were counted");
  }
  return {};
}

}  // namespace inferd::daemon
