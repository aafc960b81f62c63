// Continuous batching: which sequences compute which tokens in the next step, and what follows.
// Owner: the daemon's step loop (or a test, a simulator). Engine thread only.
// Must not know engines, sampling, rings or clients, nor what a page contains.
//
// One step: submit, cancel, pause, ... - plan() - the engine runs, the sampler draws - commit().
//
// plan() and commit() are functions of this object's state, their arguments and the injected clock: the
// same calls give the same plans. Neither allocates once warm.
//
// Turns. Service is shared by the fair queue (fair_queue.h): between users by weight, then between their
// sessions, within each priority class; a later class is served when the ones before it leave something,
// and a share is kept for it. What is charged: a token of prefill 1, a decoded token kDecodeCost; what
// the prefix index had, and what is computed again after a preemption, nothing.
//
// Tiers. What the prefix index has in the next tier only is loaded by the sequence that wants it: that one
// runs, holds its pages like any other, and takes what has arrived in each step, at no charge, until the
// tier has no more of it; then it computes. Nobody waits for the tier for ever: it answers, or says that it
// cannot in time.
//
// Memory. Admission is optimistic: a request enters when the pages that it needs now are free, with
// headroom for everyone running; what it may still generate is not set aside. When the pool runs
// out, pages are taken back from sequences of lower rank: their pages are released, they return to
// their place in the queue with what they generated, and are later computed again, to the same bits.
// Why every sequence ends:
//
//  1. Rank is the priority class, then age, the order of submission. It changes only by renice() and,
//     for one request a class at a time, by promote_starved().
//  2. A running sequence takes pages only from those of strictly lower rank, or from paused ones
//     (nobody waits for a client that does not read). Within a step, higher ranks reserve first.
//  3. A waiting request takes pages only from paused ones, from those of a later class, and from those
//     of a user who is ahead of its own by more than what computing them again costs; never from the
//     first of all, unless that is of a later class.
//  4. So the first of all running sequences that is neither paused nor loading can always have its pages: all others
//     together can be made to let go, and alone it fits (or was refused at submission). It is
//     served whenever nobody else could be: each step that has anything to do computes at least one
//     token, and what the first computed is lost at most to an earlier class. It ends after a bounded
//     number of steps; then the next is the first.
//  5. A request whose beginning another sequence is computing waits for it instead of doing the same
//     work: only while that one runs, is not paused and has not come so far. Since the first of all
//     always goes on, it comes so far, or ends, or loses its pages; then nobody waits for it.
//  6. No ping-pong: a sequence is admitted again only when its own pages are free, and beyond them
//     all that running prefills still lack, and one page for every running sequence. Before it is
//     preempted again, others must have grown into all of those, or its user must have got ahead again
//     by what is lost. They end, so they grow a bounded number of times.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "memory/paged_memory.h"
#include "scheduler/admission.h"
#include "scheduler/batch_plan.h"
#include "scheduler/fair_queue.h"
#include "scheduler/quotas.h"
#include "scheduler/request.h"
#include "scheduler/request_slots.h"
#include "scheduler/step_cost.h"

namespace inferd::scheduler {

// Bounds of one step.
struct StepBudget {
  uint32_t tokens = 0;            // at most SchedulerConfig::step_tokens
  uint32_t logits = 0;            // at most SchedulerConfig::step_logits
  uint32_t chunk_tokens_max = 0;  // longest prefill chunk of one sequence; 0: as `tokens` allows
  // How long a step may take by `cost` while interactive answers are under way; 0: as long as it does.
  int64_t time_ns = 0;
  StepCost cost = {};
};

// Cost of a decoded token, in tokens of prefill.
inline constexpr uint64_t kDecodeCost = 2;

// What the daemon learned from running plan.items[i]: the tokens sampled after it. One for an item
// that asked for logits (of its last position); none for a chunk in mid-prompt, nor for a request
// with max_tokens 0. More than one is accepted (speculation, forced tokens): those beyond the first
// end of the sequence are dropped, the rest is appended.
struct ItemResult {
  std::span<const TokenId> tokens;
};

// What a step meant for one sequence.
struct SequenceEvent {
  SequenceId sequence;
  SessionId session;
  // Accepted tokens, a prefix of the item's result (borrowed from the caller). A stop token is the
  // last of them and counts as generated.
  std::span<const TokenId> tokens;
  // Not kNone: the sequence has ended, its pages are free, and the scheduler knows it no longer.
  FinishReason finish = FinishReason::kNone;
  SequenceStats stats;
};

class Scheduler {
 public:
  // All arguments but the config are borrowed and outlive the scheduler; it is the only one to open
  // sequences in `memory`. The config has passed check_config().
  Scheduler(const SchedulerConfig& config, memory::PagedMemory& memory, const Clock& clock);
  // Cancels everything.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  const SchedulerConfig& config() const { return config_; }
  // The whole of a step, as configured, however long it takes.
  StepBudget step_budget() const { return {config_.step_tokens, config_.step_logits, 0, 0, {}}; }
  SequenceLimit sequence_limit() const { return limit_; }
  // SchedulerConfig::session_requests_max from now on. Requests that are here stay.
  void set_session_requests_max(uint32_t requests) { config_.session_requests_max = requests; }
  // The quotas from now on, for what is submitted then.
  void set_quotas(const Quota& user, const Quota& session);

  // Queues a request. Copies prompt and stop tokens; allocates. Errors, at once and without effect:
  // those of check_request(); kInvalidArgument for an id in use; kUnavailable when the queue, the
  // session's share of it or a quota is full (the sentence has the figure): try again later;
  // kResourceExhausted for what no quota can ever hold.
  Result<void> submit(const Request& request);

  // Chooses the next step's work, and makes every page that it writes available; the step cannot
  // fail for want of memory. Fills `plan`; returns false if there is nothing to compute (then there
  // is no commit). The plan's spans are valid until commit(). Every plan is committed before the
  // next.
  bool plan(const StepBudget& budget, BatchPlan& plan);

  // Takes in what the step computed: one result per item of the plan, in its order. Returns one
  // event per item that appended tokens or ended, in the order of the items, valid until the next
  // commit(). Items cancelled since plan() have none.
  std::span<const SequenceEvent> commit(std::span<const ItemResult> results);

  // Ends a sequence, from any state; false if it is not known (it may have ended by itself). Its
  // pages are free when this returns; those that the step in flight is writing, when that step is
  // committed.
  bool cancel(SequenceId sequence);
  // All sequences of a session; returns how many.
  uint32_t cancel_session(SessionId session);

  // A paused sequence computes nothing. It keeps its pages while nobody needs them. Between plan()
  // and commit() a pause takes effect after the step. False if the sequence is not known. Both
  // idempotent.
  bool pause(SequenceId sequence);
  bool resume(SequenceId sequence);

  // Changes how urgent a sequence is, from the next plan on. `nice` is within kNiceMin and
  // kNiceMax. False if the sequence is not known. May allocate.
  bool renice(SequenceId sequence, PriorityClass priority, int32_t nice);

  // A request whose deadline has come before it was admitted for the first time, for the caller to
  // refuse and cancel(); the oldest of them, or none. Ask again until there is none. Costs nothing
  // while no deadline has passed.
  std::optional<SequenceId> overdue();
  // When overdue() may next have something to tell; the largest number if nobody has a deadline.
  int64_t deadline_next_ns() const { return deadline_next_ns_; }

  // Prompt and generated tokens so far; empty if not known. Valid until the sequence changes.
  // Between plan() and commit() it is what the sampler's penalties look at.
  std::span<const TokenId> tokens(SequenceId sequence) const;
  std::optional<SequenceInfo> info(SequenceId sequence) const;
  // Tells of every running sequence whose it is, and how many pages its table has: visit(SessionId, UserId,
  // PageCount). Between plan() and commit(), those of the step included.
  template <typename Visit>
  void each_running(Visit&& visit) const {
    for (uint32_t index : running_.slots()) {
      const RequestSlot& slot = slots_[index];
      visit(slot.session, slot.user, memory::pages_for_tokens(slot.table.tokens()));
    }
  }
  // Appends one entry per sequence, oldest first.
  void list(std::vector<SequenceInfo>& out) const;
  SchedulerStats stats() const;
  // What the latest plan() left out.
  const StepWaits& waits() const { return waits_; }
  // Whether a sequence that runs waits for what it loads, or takes it in.
  bool somebody_loads() const;
  bool idle() const { return waiting_.empty() && running_.empty(); }

  // Every invariant of the scheduler, of the memory, and that they agree. The first violation in
  // words, kInternal. Any time on the engine thread, also between plan() and commit().
  Result<void> verify() const;

 private:
  friend struct SchedulerSaboteur;  // tests/sim: breaks it on purpose, to see the checks catch it

  // scheduler.cpp
  Result<void> check_submission(const Request& request) const;
  uint32_t session_requests(SessionId session) const;
  RequestSlot* find(SequenceId sequence);
  const RequestSlot* find(SequenceId sequence) const;
  void release(uint32_t index);
  uint32_t open_lane(const RequestSlot& slot);
  SequenceInfo info_of(const RequestSlot& slot) const;

  // scheduler_quotas.cpp
  uint32_t token_limit(const Request& request) const;
  Result<void> check_quotas(const Request& request) const;
  void open_rates(const Request& request);
  void charge_rates(const RequestSlot& slot, uint32_t computed);
  void keep_within_pages(UserId user);
  // What a lane (a session's requests of one class) has to do.
  struct LaneWork {
    std::vector<uint32_t> waiting;  // slots, by nice, then age
    // Of the step being planned:
    size_t place = 0;             // in `waiting`: the next one to try
    uint32_t prefill_tokens = 0;  // left to compute of its running prefills
    uint32_t decode_count = 0;    // of its decodes that had no turn yet
    uint32_t decode_first = 0;    // lists of slots, linked by lane_next
    uint32_t decode_last = 0;
    uint32_t prefill_first = 0;
    uint32_t prefill_last = 0;
  };
  // What is left of the step being planned.
  struct Room {
    uint32_t tokens = 0;
    uint32_t logits = 0;
    uint32_t chunk_tokens_max = 0;
    uint32_t prefill_min = 0;  // tokens of prefill that are granted however long they take
    double prefill_token_ns = 0;  // how long one of those takes: decodes leave time for them,
    PriorityClass prefill_class = PriorityClass::kIdle;  // those of this class and later ones
    double time_ns = 0;
    StepCost cost;
    bool cut_decodes = false;  // time bounds decodes too
  };
  enum class Admission : uint8_t { kAdmitted, kAwaitsPrefix, kNoRoom };
  static constexpr uint32_t kNoSlot = std::numeric_limits<uint32_t>::max();
  static constexpr uint32_t kLoadsAhead = 32;     // pages that a sequence asks the next tier for at a time
  static constexpr uint32_t kCreditSteps = 16;    // what a class can save up of its share
  static constexpr uint32_t kPromotionSteps = 2;  // how much of it makes its first request come first

  // plan.cpp; `index` is that of a slot
  void plan_once(const StepBudget& budget, BatchPlan& plan);
  void reserve_running(const StepBudget& budget);
  void serve_first(const StepBudget& budget);
  std::optional<uint32_t> first_ranked(bool loading_too) const;
  void reserve_share(uint32_t index);
  std::optional<uint32_t> choose_victim(const RequestSlot& slot) const;
  bool lets_go_before(uint32_t one, uint32_t other) const;
  void preempt(uint32_t index);
  void build(BatchPlan& plan);
  void build_loads(uint32_t index, BatchPlan& plan);

  // admit.cpp
  void insert_waiting(uint32_t index);
  void erase_waiting(uint32_t index);
  uint32_t next_waiting(uint32_t lane, size_t& place) const;
  uint32_t next_waiting(uint32_t lane) const {
    size_t place = 0;
    return next_waiting(lane, place);
  }
  void admit(const StepBudget& budget);
  bool admit_class(size_t priority, const StepBudget& budget);
  void promote_starved();
  Admission try_admit(uint32_t index);
  uint32_t find_prefix(const RequestSlot& slot);
  uint32_t find_stored(const RequestSlot& slot, uint32_t cached) const;
  uint32_t share_parent(const RequestSlot& slot, std::span<const TokenId> tokens, uint32_t cached);
  const RequestSlot* running_parent(const RequestSlot& slot) const;
  bool computed_elsewhere(const RequestSlot& slot, uint32_t cached) const;
  bool make_room(const RequestSlot& slot);
  void list_displaceable(const RequestSlot& slot);
  bool owes(const RequestSlot& running, const RequestSlot& waiting) const;
  void start_running(uint32_t index);

  // load.cpp
  bool worth_loading(uint32_t position) const;
  std::span<const memory::SlotRef> next_stored(const RequestSlot& slot);
  void grant_loads();
  void commit_load(uint32_t index);

  // grant.cpp
  static uint32_t tokens_again(const RequestSlot& slot, uint32_t tokens);
  static uint64_t cost_of(const RequestSlot& slot, uint32_t tokens);
  static uint32_t step_prefill(const RequestSlot& slot, const StepBudget& budget);
  void count_work(const StepBudget& budget);
  void grant_running(const StepBudget& budget);
  void set_time_room(const StepBudget& budget);
  void list_work(const StepBudget& budget);
  void insert_by_nice(uint32_t& first, uint32_t index);
  void grant_class(size_t priority, uint64_t cost_max);
  uint64_t decode_time_max(size_t priority) const;
  bool decodes_fit(size_t priority, uint64_t cost_max) const;
  bool grant_decode(LaneWork& work, uint32_t lane, uint64_t& spent);
  void grant_lane(LaneWork& work, uint32_t lane, uint64_t& spent);
  void grant_decodes(size_t priority, uint64_t time_max, uint64_t cost_max, uint64_t& spent);
  void grant_prefills(size_t priority, uint64_t cost_max, uint64_t& spent);
  uint32_t own_share(const RequestSlot& slot) const;
  double time_of(const RequestSlot& slot, uint32_t tokens) const;
  double prefill_time(PriorityClass priority) const;
  uint32_t tokens_in_time(const RequestSlot& slot, uint32_t tokens) const;
  uint32_t grant(RequestSlot& slot, uint32_t tokens_max);
  void settle();
  void count_waits();

  // commit.cpp
  void commit_item(uint32_t index, std::span<const TokenId> tokens);
  FinishReason append_token(RequestSlot& slot, TokenId token);
  void index_pages(RequestSlot& slot);

  // scheduler_verify.cpp
  Result<void> verify_lists() const;
  Result<void> verify_waiting(const RequestSlot& slot) const;
  Result<void> verify_running(const RequestSlot& slot) const;
  Result<void> verify_tokens(const RequestSlot& slot) const;
  Result<void> verify_lanes() const;

  SchedulerConfig config_;
  memory::PagedMemory& memory_;
  const Clock& clock_;
  const SequenceLimit limit_;

  RequestSlots slots_;
  SlotList waiting_;                                  // by age
  SlotList running_;                                  // by age
  std::unordered_map<SequenceId, uint32_t> slot_of_;  // looked up only, never walked
  FairQueue fair_;
  Turns turns_{fair_};
  std::vector<LaneWork> work_;  // [lanes of fair_]
  // Cost that a class may still be served before the earlier ones; grows by its share while it lacks
  // something, falls by what it is served.
  std::array<int64_t, kPriorityClasses> credit_{};
  std::array<uint32_t, kPriorityClasses> promoted_{kNoSlot, kNoSlot, kNoSlot};  // see promote_starved()
  uint64_t arrivals_ = 0;
  uint64_t turns_given_ = 0;
  // Nobody who waits has an earlier deadline.
  int64_t deadline_next_ns_ = std::numeric_limits<int64_t>::max();
  SchedulerStats totals_;
  StepWaits waits_;
  bool pages_short_ = false;  // somebody could not enter the latest step for want of pages
  TokenRates user_rates_;
  TokenRates session_rates_;

  // Of the step in flight.
  bool in_flight_ = false;
  bool load_vanished_ = false;  // what somebody was to load went out of the tier while the plan was made
  memory::Reservation reservation_;  // empty outside of plan()
  uint32_t tokens_granted_ = 0;
  uint32_t logits_granted_ = 0;
  Room room_;
  StepCost cost_;  // as the budget has it
  std::vector<uint32_t> by_age_;   // scratch
  std::vector<uint32_t> planned_;  // slots, in the order of the items
  std::vector<uint32_t> fetching_;  // slots that load
  std::array<memory::SlotRef, kLoadsAhead> next_stored_;  // scratch
  std::vector<uint32_t> displaceable_;     // scratch of make_room()
  std::vector<double> user_decode_ns_;     // scratch of set_time_room(), by user account
  std::vector<uint64_t> user_decode_cost_;    // [user accounts]: of their decodes that still wait for their turn, by nice
  std::array<std::vector<uint32_t>, kPriorityClasses> class_lanes_;  // lanes with running work
  std::vector<PageId> prefix_;     // what find_prefix() found
  std::vector<memory::SlotRef> stored_;  // and what the next tier has from stored_from_ on
  uint32_t stored_from_ = 0;
  std::vector<SequenceEvent> events_;
};

}  // namespace inferd::scheduler
