// The engine thread: drain, admit, plan, run, sample, commit, publish, and sleep when there is nothing
// to do. It alone touches scheduler, memory, engine and the clients' rings.
// Owner: the daemon's composition (or a test). Engine thread only, from the first run() or turn() on;
// the control thread reaches it through the EngineMailbox. Must not know sockets, configuration files
// or the control protocol, and never logs: it reports through StepLoopObserver.
//
// It never waits for a client or, while it runs, for a disk, and one turn does a bounded amount of work for each.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/accounts.h"
#include "daemon/disk_tier.h"
#include "daemon/engine_mailbox.h"
#include "daemon/engine_session.h"
#include "daemon/engine_snapshot.h"
#include "daemon/pressure.h"
#include "engine/engine.h"
#include "engine/sampling/sampler.h"
#include "ipc/server_session.h"
#include "memory/paged_memory.h"
#include "scheduler/scheduler.h"

namespace inferd::daemon {

// Told on the engine thread; must not block.
class StepLoopObserver {
 public:
  virtual ~StepLoopObserver() = default;
  // The loop ended a session by itself (the client broke the protocol, or did not read). Its
  // connection is to be closed; remove_session() need not follow.
  virtual void on_session_ended(SessionId session, const Error& reason) = 0;
  // Cached pages could not be stored or read. Nothing is lost but time.
  virtual void on_tier_trouble(const Error& error) { static_cast<void>(error); }
};

struct StepLoopLimits {
  uint32_t sequences_per_session = 128;
  uint32_t running_max = 64;  // sequences that run at once: the memory's sequences_max
  int64_t stall_timeout_ns = 30'000'000'000;
  int64_t itl_target_ns = 50'000'000;  // of interactive answers: steps are planned to keep it
  bool prefix_cache = true;            // finished pages are kept and found again
  int64_t give_back_ns = 2'000'000'000;     // idle pages go back after the loop was idle for so long
  int64_t cache_idle_ns = 600'000'000'000;  // a cached page not asked for this long is freed
  scheduler::Quota user_quota;
  uint32_t user_pinned_pages = 256;  // of cached prefixes
  scheduler::Quota session_quota;  // its sequences are limited by sequences_per_session
};

// What the loop works with; everything is borrowed and outlives it.
struct StepLoopParts {
  engine::Engine& engine;
  scheduler::Scheduler& scheduler;
  memory::PagedMemory& memory;
  EngineMailbox& mailbox;
  const Clock& clock;
  StepLoopObserver& observer;
  std::vector<TokenId> end_tokens;  // the model's end-of-answer tokens
  DiskTier* tier = nullptr;         // null: there is none
};

class StepLoop final : private ipc::SubmissionVisitor {
 public:
  // Errors: kIo (no descriptor left).
  static Result<std::unique_ptr<StepLoop>> create(StepLoopParts parts, StepLoopLimits limits);
  ~StepLoop() override;

  // Turns until stop() or the end of a drain.
  void run();
  // One turn. With `may_block` it sleeps in epoll while there is nothing to do. Returns whether a
  // step was computed.
  bool turn(bool may_block);
  bool stopped() const { return stopped_; }
  void stop() { stopped_ = true; }

  // ---- what tasks of the control thread call ----
  void add_session(std::unique_ptr<ipc::ServerSession> rings, SessionFacts facts,
                   uint32_t sequences_max);
  // The connection ended. Frees everything that the session had. Unknown sessions are ignored.
  void remove_session(SessionId session);
  // Ends a sequence for an administrator, or for its own user. Errors: kNotFound (also for another
  // user's sequence), nothing else.
  Result<void> cancel_sequence(SequenceId sequence, std::optional<UserId> only_of_user);
  // Changes what is given of how urgent a sequence is; without privilege only for the caller's own,
  // and only to less urgent. Returns what it is now. Errors: kNotFound (also for another user's
  // sequence), kPermissionDenied.
  struct Urgency {
    std::optional<scheduler::PriorityClass> priority;
    std::optional<int32_t> nice;  // within scheduler::kNiceMin and kNiceMax
  };
  Result<Urgency> renice_sequence(SequenceId sequence, Urgency urgency,
                                  std::optional<UserId> only_of_user);
  // No new requests from now on; the loop stops when the last one has ended. At `deadline_ns`, if
  // given, the rest is ended with a status. A later call may only bring the deadline forward.
  void begin_drain(std::optional<int64_t> deadline_ns);
  void set_limits(const StepLoopLimits& limits);
  // Memory is short: drops half of the cached pages, those let go first, and gives all idle pages back to
  // the operating system. Returns how many went back; with a next tier, more follow as it takes them.
  PageCount relieve_memory();
  // Forgets the cached prefixes of one domain, or of all, in both tiers; nothing of them is left on disk.
  // Returns how many pages they took.
  uint32_t flush_cache(std::optional<CacheDomain> domain);
  // Pins the whole pages that are cached of these tokens, see PrefixIndex::pin(); returns how many there are.
  // Errors: kNotFound (nothing of it is cached), kResourceExhausted (the user's limit), kUnsupported (nothing is
  // ever cached).
  Result<uint32_t> pin_cache(CacheDomain domain, UserId user, std::span<const TokenId> tokens);
  uint32_t unpin_cache(UserId user) { return parts_.memory.prefixes().unpin(user); }
  // After the loop has ended: everything that is cached goes to the next tier, as far as there is room, so
  // that it can be found after a restart. Blocks until it is written.
  void store_cache();
  // O(pages in the index).
  std::vector<CacheDomainFigures> cache_figures() const;
  EngineSnapshot snapshot() const;
  // Figures by client and by user.
  AccountsSnapshot accounts() const;
  // For how long nothing was computed or loaded although somebody waits whom nothing holds up but the scheduler;
  // 0 as it should be. See Scheduler for why it always is.
  int64_t stuck_for_ns() const;
  // Walks every invariant of loop, scheduler and memory. The first violation in words.
  Result<void> verify() const;

  const LoopCounters& counters() const { return counters_; }

 private:
  StepLoop(StepLoopParts parts, StepLoopLimits limits, UniqueFd epoll,
           std::unique_ptr<ipc::DoorbellBatch> bells);

  // ipc::SubmissionVisitor (step_loop_intake.cpp)
  void on_submit(const ipc::Submission& submission) override;
  void on_refused(uint64_t cookie, const Error& error) override;
  void on_cancel(uint64_t cookie) override;
  void on_delivered(uint64_t cookie, uint32_t tokens, bool truncate) override;
  void on_renice(const ipc::Renice& renice, const Result<void>& checked) override;
  void on_pin(const ipc::Pin& pin, const Result<void>& checked) override;
  Result<void> check_ids(std::string_view what, std::span<const TokenId> ids) const;
  Result<void> check_tokens(const ipc::Submission& submission) const;
  Result<void> admit(const ipc::Submission& submission);
  Result<void> submit_to_scheduler(const ipc::Submission& submission,
                                   const LiveSequence& sequence);

  // step_loop.cpp
  bool drain_sessions();
  void drain_session(EngineSession& session);
  void note_flow(EngineSession& session);
  void update_flows();
  void update_flow(EngineSession& session, int64_t now_ns);
  bool step();
  scheduler::StepBudget choose_budget() const;
  void announce_pages();
  void run_plan();
  void note_progress(bool work);
  void sample_items(std::span<const float> logits);
  void publish_events(std::span<const scheduler::SequenceEvent> events, int64_t now_ns);
  void publish_tokens(EngineSession& session, LiveSequence& sequence, size_t item,
                      const scheduler::SequenceEvent& event, int64_t now_ns);
  void fail_unsampled();
  void note_step_time(int64_t step_ns, int64_t turn_ns);
  void flush_sessions();
  void check_drain(int64_t now_ns);

  // step_loop_score.cpp
  void score_item(const scheduler::BatchItem& item, std::span<const float> rows,
                  LiveSequence& sequence);
  bool publish_scores(EngineSession& session, LiveSequence& sequence, std::span<const float> rows,
                      uint32_t cached_tokens);

  // step_loop_sessions.cpp
  EngineSession* find_session(SessionId session);
  LiveSequence* find_sequence(SequenceId sequence);
  Result<LiveSequence*> visible_sequence(SequenceId sequence, std::optional<UserId> only_of_user);
  void refuse_overdue();
  void finish(LiveSequence& sequence, ipc::FinishReason reason, uint32_t completion_tokens,
              const scheduler::SequenceStats& stats);
  void fail(LiveSequence& sequence, ErrorCode code, std::string_view sentence);
  void cancel_live(LiveSequence& sequence, ipc::FinishReason reason, uint32_t completion_tokens);
  void forget(LiveSequence& sequence);
  void end_session(EngineSession& session, ErrorCode code, std::string_view sentence);
  void release_ended();
  void release_session(EngineSession& session);
  void touch(EngineSession& session);

  // step_loop_accounts.cpp
  void stop(LiveSequence& sequence, Outcome outcome);
  void stop_all(EngineSession& session);
  void note_pages();
  void note_token_time(const EngineSession& session, const LiveSequence& sequence,
                       int64_t submitted_ns, int64_t now_ns);
  Result<void> verify_accounts() const;

  // step_loop_tier.cpp
  void collect_tier();
  void make_stores();
  void make_loads();
  void store_ahead();

  // step_loop_wait.cpp
  void wait_for_events(bool may_block);
  void watch_bell(EngineSession& session);
  void unwatch_bell(EngineSession& session);
  bool arm_sessions(bool all);
  int wait_timeout_ms(int64_t now_ns) const;
  void take_bell(SessionId id);
  PageCount give_back_idle_pages();
  int64_t cache_due_ns() const;
  void drop_idle_cache(int64_t now_ns);
  uint32_t drop_cached(uint32_t before_s, uint32_t count_max);
  void go_on_relieving();

  StepLoopParts parts_;
  StepLoopLimits limits_;
  UniqueFd epoll_;
  engine::Sampler sampler_;
  const uint32_t vocabulary_;

  std::map<SessionId, std::unique_ptr<EngineSession>> sessions_;
  std::vector<EngineSession*> awake_;    // polled in every turn
  std::vector<EngineSession*> touched_;  // with records to flush
  std::vector<ipc::ServerSession*> flushing_;  // scratch
  std::unique_ptr<ipc::DoorbellBatch> bells_;  // of those
  std::vector<EngineSession*> flows_;    // whose room to look at before the next step
  std::vector<EngineSession*> ended_;    // to be released at the end of the turn
  std::unordered_map<SequenceId, std::unique_ptr<LiveSequence>> live_;  // looked up, never walked
  EngineSession* draining_session_ = nullptr;  // whose submissions the visitor is being told
  ipc::DrainScratch scratch_;
  std::vector<TokenId> stop_tokens_;  // scratch
  size_t drain_first_ = 0;  // who is drained first takes turns
  uint64_t next_sequence_ = 1;

  // Of the step in flight; sized for the largest step.
  struct Sampled {
    engine::SampleResult result;
    bool wanted = false;  // the item asked for a token
  };
  scheduler::BatchPlan plan_;
  std::vector<Sampled> sampled_;                     // [items]
  std::vector<engine::TokenLogprob> top_;            // [items, kTopLogprobsMax]
  std::vector<scheduler::ItemResult> item_results_;  // [items]
  std::vector<ipc::LogprobEntry> top_record_;  // [kTokensPerRecordMax, kTopLogprobsMax]

  LoopCounters counters_;
  Accounts accounts_;
  PressureMeter pressure_;
  scheduler::StepCostModel cost_model_;
  scheduler::StepMargin margin_;
  bool draining_ = false;
  std::optional<int64_t> drain_deadline_ns_;
  bool stopped_ = false;
  bool pages_to_give_back_ = false;
  uint32_t relief_left_ = 0;  // cached pages that are still to be dropped, for memory was short
  int64_t step_ended_ns_ = 0;  // 0: the last turn ran no step
  int64_t idle_since_ns_ = 0;  // 0: not idle
  int64_t stuck_since_ns_ = 0;  // 0: not stuck
  bool work_left_ = false;     // somebody's submissions were not all drained
};

}  // namespace inferd::daemon
