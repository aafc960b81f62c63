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
      announced_(pages.value, false),
      copied_(size_t{pages.value} * kPageTokens, false),
      copied_for_(pages.value) {}

TokenId& SimEngine::slot(PageId page, uint32_t position) {
  return slots_[size_t{page.value} * kPageTokens + position % kPageTokens];
}

void SimEngine::page_taken(PageId page) {
  announced_[page.value] = true;
  for (uint32_t position = 0; position < kPageTokens; ++position) {
    slot(page, position) = kNoToken;
    copied_[size_t{page.value} * kPageTokens + position] = false;
  }
}

void SimEngine::page_released(PageId page) {
  page_taken(page);
  announced_[page.value] = false;
}

Result<void> SimEngine::load_page(PageId page, std::span<const TokenId> tokens) {
  if (!announced_[page.value] || slot(page, 0) != kNoToken) {
    return Error(ErrorCode::kInternal, "engine: content is loaded into page " +
                                           std::to_string(page.value) + ", which is not new");
  }
  std::copy(tokens.begin(), tokens.end(), slots_.begin() + page.value * kPageTokens);
  return {};
}

void SimEngine::page_left_to(PageId page, uint32_t position, SequenceId sequence) {
  copied_for_[page.value] = sequence;
  for (uint32_t place = position % kPageTokens; place < kPageTokens; ++place) {
    copied_[size_t{page.value} * kPageTokens + place] = true;
  }
}

Result<void> SimEngine::run(const scheduler::BatchPlan& plan) {
  histories_.clear();
  step_ns_ = cost_.step_ns;
  for (const scheduler::PageCopy& copy : plan.copies) {
    for (uint32_t position = 0; position < kPageTokens; ++position) {
      if (slot(copy.to, position) != kNoToken || !announced_[copy.to.value]) {
        return Error(ErrorCode::kInternal, "engine: a copy goes to the unannounced page " +
                                               std::to_string(copy.to.value));
      }
      slot(copy.to, position) = slot(copy.from, position);
      copied_[size_t{copy.to.value} * kPageTokens + position] = true;
    }
    for (const scheduler::BatchItem& item : plan.items) {
      if (std::find(item.pages.begin(), item.pages.end(), copy.to) != item.pages.end()) {
        copied_for_[copy.to.value] = item.sequence;
      }
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
    // A copied page goes on with the tokens of the one that it was copied from: those are overwritten.
    std::vector<bool>::reference copied = copied_[size_t{page.value} * kPageTokens + position % kPageTokens];
    if (written != kNoToken && (!copied || copied_for_[page.value] != item.sequence)) {
      return violation(item, page, "overwrites a slot of");
    }
    copied = false;
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
