// A scheduler over a small memory of its own, driven by hand or to the end.
// Owner: tests/unit/scheduler.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "memory/paged_memory.h"
#include "scheduler/scheduler.h"

namespace inferd::scheduler {

inline std::string verdict(const Result<void>& result) {
  return result.ok() ? "" : result.error().message();
}

// A scheduler for sequences of up to 4,096 tokens, 64 of which may wait.
inline SchedulerConfig long_config(uint32_t step_tokens) {
  SchedulerConfig config;
  config.step_tokens = step_tokens;
  config.step_logits = 16;
  config.context_tokens = 4096;
  config.queue_max = 64;
  return config;
}

class SchedulerRig {
 public:
  SchedulerRig(const memory::MemoryConfig& memory_config, const SchedulerConfig& config)
      : memory(memory_config), scheduler(config, memory, clock) {}

  // Submits a prompt of so many tokens: 100 x id, and so on upward, so that all differ.
  Result<void> submit(uint64_t id, uint32_t prompt_tokens, uint32_t max_tokens,
                      uint64_t session = 1) {
    Request request;
    return submit(request, id, prompt_tokens, max_tokens, session);
  }
  Result<void> submit(Request& request, uint64_t id, uint32_t prompt_tokens, uint32_t max_tokens,
                      uint64_t session = 1) {
    std::vector<TokenId> prompt;
    for (uint32_t i = 0; i < prompt_tokens; ++i) {
      prompt.push_back(static_cast<TokenId>(id * 1000 + i));
    }
    request.sequence = SequenceId(id);
    request.session = SessionId(session);
    request.user = UserId(1000 + static_cast<uint32_t>(session));
    request.prompt = prompt;
    request.max_tokens = max_tokens;
    return scheduler.submit(request);
  }

  bool plan() { return plan(scheduler.step_budget()); }
  bool plan(const StepBudget& budget) { return scheduler.plan(budget, batch); }

  // One token for each item that wants one: `next_token` of the sequence, counting up.
  std::vector<SequenceEvent> commit() {
    std::vector<std::vector<TokenId>> tokens(batch.items.size());
    std::vector<ItemResult> results(batch.items.size());
    for (size_t item = 0; item < batch.items.size(); ++item) {
      if (batch.items[item].logits_count > 0) {
        tokens[item].push_back(next_token[batch.items[item].sequence]++);
      }
      results[item].tokens = tokens[item];
    }
    const std::span<const SequenceEvent> events = scheduler.commit(results);
    for (const SequenceEvent& event : events) {
      for (TokenId token : event.tokens) generated[event.sequence].push_back(token);
      if (event.finish != FinishReason::kNone) finished[event.sequence] = event.finish;
    }
    EXPECT_EQ(verdict(scheduler.verify()), "");
    return {events.begin(), events.end()};
  }

  // Steps until nothing is left to do; returns how many.
  uint32_t run(uint32_t steps_max = 10'000) {
    uint32_t steps = 0;
    while (plan()) {
      commit();
      if (++steps == steps_max) {
        ADD_FAILURE() << "still busy after " << steps << " steps";
        break;
      }
    }
    return steps;
  }

  // The plan's share of a sequence; nullptr if it has none.
  const BatchItem* item(uint64_t id) const {
    for (const BatchItem& one : batch.items) {
      if (one.sequence == SequenceId(id)) return &one;
    }
    return nullptr;
  }
  SequenceState state(uint64_t id) const { return scheduler.info(SequenceId(id))->state; }
  FinishReason finish(uint64_t id) const {
    const auto found = finished.find(SequenceId(id));
    return found == finished.end() ? FinishReason::kNone : found->second;
  }
  uint32_t free_pages() const { return memory.pool().counts().free.value; }

  ManualClock clock;
  memory::PagedMemory memory;
  Scheduler scheduler;
  BatchPlan batch;
  std::map<SequenceId, TokenId> next_token;
  std::map<SequenceId, std::vector<TokenId>> generated;
  std::map<SequenceId, FinishReason> finished;
};

}  // namespace inferd::scheduler
