#include "tests/sim/sim_engine.h"

#include <algorithm>

#include "tests/sim/oracle.h"

namespace inferd::sim {

namespace {

Error violation(const scheduler::BatchItem& item, PageId page, const std::string& what) {
  return Error(ErrorCode::kInternal, "engine: sequence " + std::to_string(item.sequence.value) +
                                         " " + what + " page " + std::to_string(page.value));
}

}  // namespace

SimEngine::SimEngine(PageCount pages, StepCost cost)
    : cost_(cost),
      slots_(size_t{pages.value} * kPageTokens, kNoToken),
      announced_(pages.value, false) {}

TokenId& SimEngine::slot(PageId page, uint32_t position) {
  return slots_[size_t{page.value} * kPageTokens + position % kPageTokens];
}

void SimEngine::page_taken(PageId page) {
  announced_[page.value] = true;
  for (uint32_t position = 0; position < kPageTokens; ++position) slot(page, position) = kNoToken;
}

void SimEngine::page_released(PageId page) {
  page_taken(page);
  announced_[page.value] = false;
}

Result<void> SimEngine::run(const scheduler::BatchPlan& plan) {
  histories_.clear();
  step_ns_ = cost_.step_ns;
  for (const scheduler::PageCopy& copy : plan.copies) {
    for (uint32_t position = 0; position < kPageTokens; ++position) {
      slot(copy.to, position) = slot(copy.from, position);
    }
  }
  for (const scheduler::BatchItem& item : plan.items) INFERD_TRY(run_item(item));
  return {};
}

Result<void> SimEngine::run_item(const scheduler::BatchItem& item) {
  const uint32_t end = item.position_first + static_cast<uint32_t>(item.tokens.size());
  if (item.tokens.empty() || item.logits_count > item.tokens.size() ||
      item.pages.size() * kPageTokens < end) {
    return Error(ErrorCode::kInternal, "engine: the plan's item of sequence " +
                                           std::to_string(item.sequence.value) + " is malformed");
  }
  for (uint32_t position = item.position_first; position < end; ++position) {
    const PageId page = item.pages[position / kPageTokens];
    if (!announced_[page.value]) return violation(item, page, "writes the unannounced");
    TokenId& written = slot(page, position);
    if (written != kNoToken) return violation(item, page, "overwrites a slot of");
    written = item.tokens[position - item.position_first];
  }
  uint64_t history = kEmptyHistory;
  for (uint32_t position = 0; position < end; ++position) {
    const PageId page = item.pages[position / kPageTokens];
    const TokenId token = slot(page, position);
    if (token == kNoToken) return violation(item, page, "reads an unwritten slot of");
    history = extend_history(history, token);
  }
  histories_.push_back(history);
  step_ns_ += static_cast<int64_t>(item.tokens.size()) *
              (cost_.token_ns + cost_.position_ns * static_cast<int64_t>(end));
  return {};
}

}  // namespace inferd::sim
