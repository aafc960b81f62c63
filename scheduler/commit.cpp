// Scheduler::commit(): what a step computed becomes part of its sequences.
#include <algorithm>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace inferd::scheduler {

std::span<const SequenceEvent> Scheduler::commit(std::span<const ItemResult> results) {
  INFERD_CHECK(in_flight_);
  INFERD_CHECK(results.size() == planned_.size());
  in_flight_ = false;
  events_.clear();
  for (size_t item = 0; item < results.size(); ++item) {
    const uint32_t index = planned_[item];
    if (slots_[index].cancelled) {
      release(index);
    } else {
      commit_item(index, results[item].tokens);
    }
  }
  for (uint32_t index : fetching_) {
    if (slots_[index].cancelled) {
      release(index);
    } else {
      commit_load(index);
    }
  }
  planned_.clear();
  fetching_.clear();
  if (config_.user_quota.pages != 0) {
    for (uint32_t index : running_.slots()) keep_within_pages(slots_[index].user);
  }
  ++totals_.steps;
  return events_;
}

void Scheduler::commit_item(uint32_t index, std::span<const TokenId> tokens) {
  RequestSlot& slot = slots_[index];
  const uint32_t computed = slot.planned;
  INFERD_CHECK(computed > 0);
  slot.planned = 0;
  slot.computed += computed;
  slot.stats.computed_tokens += computed;
  slot.stats.recomputed_tokens += slot.planned_again;
  totals_.computed_tokens += computed;
  totals_.recomputed_tokens += slot.planned_again;
  charge_rates(slot, computed);
  if (slot.score) {
    slot.scored = std::max(slot.scored, std::min(slot.computed, slot.stats.prompt_tokens));
  }
  index_pages(slot);
  const bool complete = slot.tokens_left() == 0;
  const bool samples = complete && slot.tokens.size() < slot.limit;
  INFERD_CHECK(samples == !tokens.empty());

  SequenceEvent event;
  event.sequence = slot.sequence;
  event.session = slot.session;
  uint32_t accepted = 0;
  while (accepted < tokens.size() && event.finish == FinishReason::kNone) {
    event.finish = append_token(slot, tokens[accepted]);
    ++accepted;
  }
  // Nothing to generate: the prompt was all.
  if (complete && !samples) event.finish = FinishReason::kLength;
  event.tokens = tokens.first(accepted);
  event.stats = slot.stats;
  if (accepted > 0 || event.finish != FinishReason::kNone) events_.push_back(event);

  if (event.finish != FinishReason::kNone) {
    ++totals_.finished;
    release(index);
    return;
  }
  slot.state = slot.tokens_left() == 1 ? SequenceState::kDecoding : SequenceState::kPrefilling;
}

// Offers the pages that have become whole to the prefix index. Where it has a page of the same content
// already, the sequence goes on with that one, and its own is free again.
void Scheduler::index_pages(RequestSlot& slot) {
  if (slot.domain.value == 0) return;
  memory::PrefixIndex& prefixes = memory_.prefixes();
  for (; (slot.indexed + 1) * kPageTokens <= slot.computed; ++slot.indexed) {
    const std::span<const PageId> pages = slot.table.pages();
    const PageId page = pages[slot.indexed];
    const PageId parent = slot.indexed == 0 ? kNoPage : pages[slot.indexed - 1];
    const auto tokens =
        std::span<const TokenId>(slot.tokens).subspan(slot.indexed * kPageTokens, kPageTokens);
    const PageId kept = prefixes.insert(slot.domain, parent, page, tokens);
    if (kept == kNoPage) return;
    if (kept != page) memory_.sequences().replace(slot.table, slot.indexed, kept);
  }
}

FinishReason Scheduler::append_token(RequestSlot& slot, TokenId token) {
  INFERD_CHECK(slot.tokens.size() < slot.limit);
  INFERD_DCHECK(slot.tokens.size() < slot.tokens.capacity());
  if (slot.stats.generated_tokens == 0) slot.stats.first_token_ns = clock_.now_ns();
  slot.tokens.push_back(token);
  ++slot.stats.generated_tokens;
  ++totals_.generated_tokens;
  const auto stop_end = slot.stop_tokens.begin() + slot.stop_count;
  if (std::find(slot.stop_tokens.begin(), stop_end, token) != stop_end) return FinishReason::kStop;
  if (slot.tokens.size() < slot.limit) return FinishReason::kNone;
  return slot.limit_is_context ? FinishReason::kContext : FinishReason::kLength;
}

}  // namespace inferd::scheduler
