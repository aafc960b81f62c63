// Runs a request trace through the real scheduler and memory, in virtual time: an engine that
// computes nothing, and takes as long as a cost model says. Owner: bench. One thread. Equal traces
// and options give equal results.
//
// A turn is as the daemon's: what has arrived is submitted, a step is planned (within the time that
// the target for the latency between tokens leaves, by costs learned from the steps before), the
// clock goes on by what the step costs, and its tokens are there. What costs nothing here:
// planning, sampling, rings, copies of pages. Answers have the length that the trace says.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "bench/simulation_meters.h"
#include "bench/trace.h"
#include "memory/paged_memory.h"
#include "scheduler/scheduler.h"

namespace inferd::bench {

struct SimulationOptions {
  uint32_t pages = 8192;
  uint32_t max_sequences = 64;
  uint32_t step_tokens = 512;
  uint32_t queue = 1024;
  uint32_t context_tokens = 32'768;
  uint32_t itl_target_ms = 50;
  uint32_t users = 4;             // that requests are given to in turn, where the trace names none
  bool shared_domain = false;     // one cache domain for all users; else each has their own
  double time_scale = 1;          // of arrivals: 2 is half as many a second
  double limit_s = 0;             // the simulation ends then; 0: with the last answer
  std::vector<uint32_t> weights;  // of the users, in turn; empty: all alike
  scheduler::StepCost cost;
  bool verify = false;  // walk all invariants after each step: slow, for tests
};

// What became of one request. Times are in seconds since the first arrival.
struct RequestResult {
  enum class State : uint8_t { kUnfinished, kFinished, kRefused };
  State state = State::kUnfinished;
  uint32_t user = 0;
  scheduler::PriorityClass priority = scheduler::PriorityClass::kInteractive;
  double arrival_s = 0;
  double ttft_ms = -1;  // from the arrival; -1: no token came
  double end_s = 0;
  scheduler::SequenceStats stats;  // of the last event
};

struct SimulationResult {
  std::vector<RequestResult> requests;  // as in the trace
  std::vector<float>
      itl_ms[scheduler::kPriorityClasses];  // every gap between two tokens of an answer
  scheduler::SchedulerStats totals;
  double end_s = 0;
  double busy_s = 0;
  uint64_t computed_tokens = 0;    // positions computed
  uint64_t recomputed_tokens = 0;  // of those, for the second time or more
  uint64_t found_tokens = 0;       // positions that came from the prefix index
  uint32_t longest_tokens = 0;     // of a sequence that was accepted, prompt and answer
  std::string first_refusal;
  uint32_t users = 0;
  WasteMeter waste;
  FairnessMeter fairness{1};
  MomentLog log;
};

class TraceSimulation {
 public:
  static constexpr uint32_t kUsersShown = 8;  // with their service over time

  // The trace is borrowed. Errors: kInvalidArgument for options that no daemon could have.
  static Result<std::unique_ptr<TraceSimulation>> create(const Trace& trace,
                                                         const SimulationOptions& options);
  ~TraceSimulation();

  // Once. Errors: kInternal if work is left and no step does any of it.
  Result<SimulationResult> run();

 private:
  struct Live {
    uint32_t served_to = 0;  // positions computed or found, whether or not they were lost since
    uint32_t generated = 0;
    int64_t last_token_ns = 0;
    bool admitted = false;
    bool planned = false;  // in the step being looked at
  };

  TraceSimulation(const Trace& trace, const SimulationOptions& options);
  void submit_due();
  void submit(size_t index);
  bool step();
  void look_at_plan();
  void commit();
  void note_event(const scheduler::SequenceEvent& event);
  void forget(size_t index);
  void note_moment();
  uint32_t user_of(size_t index) const;
  uint32_t weight_of(uint32_t user) const;
  int64_t arrival_ns(size_t index) const;
  bool over() const;

  const Trace& trace_;
  const SimulationOptions options_;
  ManualClock clock_;
  std::unique_ptr<memory::PagedMemory> memory_;
  std::unique_ptr<scheduler::Scheduler> scheduler_;
  scheduler::StepCostModel cost_model_;
  scheduler::StepMargin margin_;
  scheduler::BatchPlan plan_;
  std::vector<scheduler::ItemResult> item_results_;
  std::vector<TokenId> sampled_;  // [items]
  std::vector<TokenId> prompt_;
  size_t next_ = 0;                // in the trace
  std::vector<Live> live_;         // [requests]
  std::vector<size_t> live_list_;  // those submitted and not ended, in no order
  std::vector<size_t> place_;      // [requests] in live_list_
  uint64_t admitted_prompt_tokens_ = 0;
  uint64_t admitted_cached_tokens_ = 0;
  SimulationResult result_;
};

}  // namespace inferd::bench
