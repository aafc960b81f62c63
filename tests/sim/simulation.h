// One simulated run: the real scheduler and memory, an engine of virtual time, and clients that
// stall, crash, cancel, flood and ask for nonsense, all from one seed.
// Owner: tests/sim. One thread. Equal seeds give equal runs.
//
// While faults last, clients misbehave; then they only read their answers. After every tick all
// invariants are walked. Every request that was accepted must end, with exactly the tokens and the
// finish reason that it would have had alone, within a bounded number of steps.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/prng.h"
#include "base/result.h"
#include "memory/paged_memory.h"
#include "scheduler/scheduler.h"
#include "tests/sim/oracle.h"
#include "tests/sim/saboteur.h"
#include "tests/sim/sim_engine.h"
#include "tests/sim/sim_tier.h"

namespace inferd::sim {

struct SimOptions {
  uint64_t seed = 1;
  uint32_t fault_ticks = 120;
  Sabotage sabotage = Sabotage::kNone;
  bool verify = true;  // off: only the answers and the bound may tell
  // Every client always asks for more than there is, for slots and turns and not for pages; who gets how
  // much is compared with the fair bound.
  bool flood = false;
};

struct SimReport {
  uint64_t steps = 0;
  uint64_t preemptions = 0;
  uint64_t finished = 0;
  uint64_t cancelled = 0;
  uint64_t refused = 0;
  uint64_t cached_tokens = 0;
  uint64_t loaded_tokens = 0;  // from the next tier
  uint64_t tier_losses = 0;
  double fair_range = 0;  // of a flood: the largest, in bounds
  bool sabotaged = false;
};

class Simulation {
 public:
  explicit Simulation(const SimOptions& options);
  ~Simulation();

  // Runs to the end. The first violation in words, kInternal.
  Result<void> run();

  const SimReport& report() const { return report_; }
  // Gives up: what sabotage broke cannot be taken down in order.
  static void abandon(std::unique_ptr<Simulation> simulation);

 private:
  // A request that was accepted and has not ended.
  struct Sent {
    scheduler::Request request;
    std::vector<TokenId> prompt;
    std::vector<TokenId> stop_tokens;
    Outcome expected;
    uint32_t limit_tokens = 0;  // at which it ends at the latest
    uint32_t received = 0;  // generated tokens delivered
    uint32_t scored = 0;    // prompt positions whose logits came
    uint32_t served_to = 0;  // positions computed, whether or not they were lost since
    bool was_admitted = false;
  };
  struct SimClient {
    SessionId session;
    UserId user;
    uint32_t stalled_ticks = 0;  // does not read: its sequences are paused
  };

  Result<void> tick(bool faults);
  void maybe_sabotage();
  void act(SimClient& client);
  Result<void> submit_random(SimClient& client);
  std::vector<TokenId> random_prompt(uint32_t tokens);
  uint32_t limit_of(const scheduler::Request& request) const;
  bool over_quota(const scheduler::Request& request) const;
  Result<void> check_answer_to_submit(const scheduler::Request& request,
                                      const Result<void>& answer);
  void maybe_fork(const SimClient& client, Sent& sent);
  void renice_random(const SimClient& client);
  void cancel_random(SimClient& client);
  void crash(SimClient& client);
  void stall(SimClient& client, uint32_t ticks);
  void resume(SimClient& client);

  void lose_prefixes();
  void note_sole_holders();
  void announce_pages();
  void make_stores(bool faults);
  Result<void> make_loads(bool faults);
  scheduler::StepBudget random_budget(bool faults);
  Result<void> step(bool faults);
  Result<void> check_plan(const scheduler::StepBudget& budget);
  Result<void> check_admission_order();
  bool may_wait_for_prefix(const Sent& sent, std::span<const scheduler::SequenceInfo> infos) const;
  Result<void> check_idle() const;
  Result<void> check_scores(const scheduler::BatchItem& item, Sent& sent);
  void sample();
  Result<void> check_fairness();
  Result<void> check_events(std::span<const scheduler::SequenceEvent> events);
  Result<void> check_event(const scheduler::SequenceEvent& event);
  Result<void> check_state() const;
  Result<void> check_index() const;
  Result<void> check_tier() const;
  void forget_spoiled();
  uint64_t steps_bound() const;

  const SimOptions options_;
  Prng prng_;
  ManualClock clock_;
  memory::MemoryConfig memory_config_;
  scheduler::SchedulerConfig config_;
  std::unique_ptr<memory::PagedMemory> memory_;
  std::unique_ptr<SimEngine> engine_;
  std::unique_ptr<SimTier> tier_;  // null: there is none
  std::unique_ptr<scheduler::Scheduler> scheduler_;
  scheduler::BatchPlan plan_;
  std::vector<std::vector<TokenId>> sampled_;  // one per item of the plan
  std::vector<SimClient> clients_;
  std::vector<std::vector<TokenId>> preambles_;  // beginnings that many prompts share
  std::map<SequenceId, std::unique_ptr<Sent>> sent_;
  Result<void> trouble_;  // of a client's action
  // Of a flood: cost that each user of a class was served over the weight, and for each pair of users the
  // range of the difference since both have lacked something.
  using Account = std::pair<scheduler::PriorityClass, UserId>;
  struct Range {
    double low = 0;
    double high = 0;
  };
  std::map<Account, double> served_;
  std::map<std::pair<Account, Account>, Range> differences_;
  std::vector<memory::SlotRef> spoiled_;  // slots that sabotage gave other content
  PageId spoiled_page_ = kNoPage;         // a page likewise, until somebody reads it
  uint64_t last_sequence_ = 0;
  SimReport report_;
};

}  // namespace inferd::sim
