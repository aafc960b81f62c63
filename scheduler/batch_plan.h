// What one step computes: the contract between the scheduler, which decides, and the engine, which
// runs. It holds token ids, positions and page ids; it knows neither what a page contains nor who
// asked.
// Owner: the scheduler fills one BatchPlan per step and reuses it; it is valid until the next plan.
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "memory/page_copy.h"
#include "memory/page_tier.h"

namespace inferd::scheduler {

// The share of one sequence in a step: `tokens` are computed at positions
// position_first .. position_first + tokens.size() - 1, attending to everything before them.
struct BatchItem {
  SequenceId sequence;
  // Page table of the sequence's first layer group: page i holds positions 16i .. 16i+15. Covers at
  // least position_first + tokens.size() positions. Borrowed from the sequence, valid for the step.
  std::span<const PageId> pages;
  // Tokens to compute, oldest first; never empty. Borrowed, valid for the step.
  std::span<const TokenId> tokens;
  // Absolute position of tokens[0].
  uint32_t position_first = 0;
  // How many of the last tokens want logits: 0 for a chunk in mid-prompt, 1 for its last chunk and
  // for a decode, more to score a text. At most tokens.size().
  uint32_t logits_count = 0;
};

// A whole-page copy to be made before the step runs (copy-on-write).
using PageCopy = memory::PageCopy;
// A page that gets its content from the next tier before the step runs. No item of the same plan reads it.
using PageLoad = memory::PageLoad;

struct BatchPlan {
  std::vector<PageLoad> loads;
  std::vector<PageCopy> copies;
  // Order is that of the logits rows. A sequence appears at most once.
  std::vector<BatchItem> items;
  // Sums over items.
  uint32_t token_count = 0;
  uint32_t logits_count = 0;

  void clear() {
    loads.clear();
    copies.clear();
    items.clear();
    token_count = 0;
    logits_count = 0;
  }
};

}  // namespace inferd::scheduler
