// Scheduler: sequences that take from the next tier what they would otherwise compute.
#include <algorithm>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace inferd::scheduler {

// Whether getting a page from the next tier is faster than computing its tokens. Where either
// figure is not known yet, it is tried.
bool Scheduler::worth_loading(uint32_t position) const {
  const memory::PageTier* tier = memory_.tier();
  if (tier == nullptr) return false;
  const double computed_ns =
      kPageTokens * (cost_.token_ns + cost_.position_ns * (position + kPageTokens / 2.0));
  return computed_ns == 0 || tier->fetch_ns() < computed_ns;
}

// How far the next tier goes on where find_prefix() left off, which set stored_: in tokens, a
// multiple of 16; 0 if that is no further than the `cached` first ones.
uint32_t Scheduler::find_stored(const RequestSlot& slot, uint32_t cached) const {
  if (stored_.empty() || !worth_loading(cached)) return 0;
  const uint32_t end = stored_from_ + static_cast<uint32_t>(stored_.size()) * kPageTokens;
  INFERD_DCHECK(end < slot.tokens.size());
  return end > cached ? end : 0;
}

// Slots of the pages that a loading sequence wants next.
std::span<const memory::SlotRef> Scheduler::next_stored(const RequestSlot& slot) {
  const uint32_t index = slot.computed / kPageTokens;
  const PageId parent = index == 0 ? kNoPage : slot.table.pages()[index - 1];
  const auto tokens =
      std::span<const TokenId>(slot.tokens).subspan(slot.computed, slot.stored_end - slot.computed);
  const size_t count = memory_.prefixes().stored_after(slot.domain, parent, tokens, next_stored_);
  return std::span(next_stored_).first(count);
}

// Asks for what comes next, and plans what has arrived. Who finds that nothing more will come
// computes on from there, in this step already.
void Scheduler::grant_loads() {
  if (memory_.tier() == nullptr) return;
  for (uint32_t index : running_.slots()) {
    RequestSlot& slot = slots_[index];
    if (slot.paused || !slot.loads()) continue;
    const std::span<const memory::SlotRef> wanted = next_stored(slot);
    uint32_t here = 0;
    bool ends = wanted.empty();
    for (uint32_t i = 0; i < wanted.size() && !ends; ++i) {
      switch (memory_.tier()->fetch(wanted[i])) {
        case memory::FetchState::kHere:
          if (here == i) ++here;
          break;
        case memory::FetchState::kComing:
          break;
        case memory::FetchState::kLost:
          memory_.prefixes().lose(wanted[i]);
          ends = here == i;
          break;
        case memory::FetchState::kUnavailable:
          ends = here == i;
          break;
      }
    }
    if (ends) slot.stored_end = slot.computed + here * kPageTokens;
    if (here == 0) continue;
    slot.planned = here * kPageTokens;
    slot.fetches = true;
  }
}

bool Scheduler::somebody_loads() const {
  const auto loads = [this](uint32_t index) {
    return !slots_[index].paused && slots_[index].loads();
  };
  return std::any_of(running_.slots().begin(), running_.slots().end(), loads);
}

// Its pages are reserved. What reserving them for others pushed out of the tier meanwhile is not
// loaded.
void Scheduler::build_loads(uint32_t index, BatchPlan& plan) {
  RequestSlot& slot = slots_[index];
  const std::span<const memory::SlotRef> stored = next_stored(slot);
  const auto count = std::min(static_cast<uint32_t>(stored.size()), slot.planned / kPageTokens);
  slot.planned = count * kPageTokens;
  if (count == 0) {
    slot.fetches = false;
    slot.stored_end = slot.computed;
    load_vanished_ = true;
    return;
  }
  const uint32_t first = slot.computed / kPageTokens;
  INFERD_CHECK(!slot.table.append(slot.planned, reservation_).has_value());
  for (uint32_t i = 0; i < count; ++i) {
    plan.loads.push_back({slot.table.pages()[first + i], stored[i]});
  }
  fetching_.push_back(index);
}

void Scheduler::commit_load(uint32_t index) {
  RequestSlot& slot = slots_[index];
  INFERD_CHECK(slot.fetches && slot.planned > 0);
  const uint32_t loaded = slot.planned;
  slot.planned = 0;
  slot.fetches = false;
  slot.computed += loaded;
  slot.stats.loaded_tokens += loaded;
  totals_.loaded_tokens += loaded;
  if (slot.stats.preemptions == 0) {
    slot.stats.cached_tokens += loaded;
    totals_.cached_tokens += loaded;
  }
  index_pages(slot);
  slot.state = slot.tokens_left() == 1 ? SequenceState::kDecoding : SequenceState::kPrefilling;
}

}  // namespace inferd::scheduler
