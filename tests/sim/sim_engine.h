// An engine without a model: it stores each position's token in the page slot that the plan names,
// and reads the whole history back through the page table, as attention would.
// Owner: tests/sim. One thread. Must not know the scheduler's state, only plans and announcements.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "scheduler/batch_plan.h"

namespace inferd::sim {

// Virtual time of a step, in nanoseconds: a part that every step pays (the weights are read once),
// and parts per token and per position attended to.
struct StepCost {
  int64_t step_ns = 10'000'000;
  int64_t token_ns = 500'000;
  int64_t position_ns = 200;
};

class SimEngine {
 public:
  SimEngine(PageCount pages, StepCost cost);

  // As engine::Engine: a page that was handed out, a page whose memory went back.
  void page_taken(PageId page);
  void page_released(PageId page);

  // The page's slots from that position on are the sequence's to write, as if it had been copied for it:
  // it shared the page up to there, and is alone with it now.
  void page_left_to(PageId page, uint32_t position, SequenceId sequence);

  // The page, just handed out, gets content from elsewhere. Errors: kInternal if it was not announced, or is
  // written already.
  Result<void> load_page(PageId page, std::span<const TokenId> tokens);

  // Runs a step. histories()[i] is then the history at the end of plan.items[i]. Errors: kInternal
  // if a page is used that was not announced, a slot is written twice or read before it was
  // written.
  Result<void> run(const scheduler::BatchPlan& plan);

  // What was written to the page, 16 positions.
  std::span<const TokenId> tokens_of(PageId page) const {
    return std::span(slots_).subspan(size_t{page.value} * kPageTokens, kPageTokens);
  }

  std::span<const uint64_t> histories() const { return histories_; }
  int64_t step_ns() const { return step_ns_; }

 private:
  Result<void> run_item(const scheduler::BatchItem& item);
  TokenId& slot(PageId page, uint32_t position);

  const StepCost cost_;
  std::vector<TokenId> slots_;   // [pages, 16]; kNoToken: not written
  std::vector<bool> announced_;  // [pages]
  std::vector<bool> copied_;     // [pages, 16] copied and not written since
  std::vector<SequenceId> copied_for_;  // [pages] whose copy it is
  std::vector<uint64_t> histories_;
  int64_t step_ns_ = 0;
};

}  // namespace inferd::sim
