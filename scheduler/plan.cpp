// Scheduler::plan(): the next step's work.
//
// By phases, each complete before the next:
//  1. admit (admit.cpp): waiting requests enter in the order of their turns, as long as their pages are
//     there beside all that those who run still lack.
//  2. grant (load.cpp, grant.cpp): who loads from the next tier gets what has arrived; the budget is shared out among those that run.
//  3. reserve: by rank, pages are promised to each share; who is short takes them from those of lower
//     rank, or computes less. Nothing is taken yet, so no page changes hands while a copy of it is still
//     to be made.
//  4. build: page tables grow out of the reservation, and the items are written.
//  5. settle (grant.cpp): accounts are charged, and it is noted who was left out.
#include <algorithm>

#include "base/check.h"
#include "scheduler/scheduler.h"
#include "scheduler/slot_work.h"

namespace inferd::scheduler {

bool Scheduler::plan(const StepBudget& budget, BatchPlan& plan) {
  // A second time only if all that was planned was to load what making room for it pushed out of the tier: those
  // who wanted it compute now. So there is no third time for the same ones.
  do {
    load_vanished_ = false;
    plan_once(budget, plan);
  } while (!in_flight_ && load_vanished_);
  return in_flight_;
}

void Scheduler::plan_once(const StepBudget& budget, BatchPlan& plan) {
  INFERD_CHECK(!in_flight_);
  INFERD_CHECK(budget.tokens > 0 && budget.tokens <= config_.step_tokens);
  INFERD_CHECK(budget.logits > 0 && budget.logits <= config_.step_logits);
  plan.clear();
  plan.items.reserve(memory_.sequences().sequences_max());
  plan.copies.reserve(memory_.sequences().sequences_max());
  planned_.clear();
  fetching_.clear();
  tokens_granted_ = 0;
  waits_ = {};
  pages_short_ = false;
  cost_ = budget.cost;
  memory_.prefixes().note_costs(cost_.token_ns, cost_.position_ns);
  memory_.set_keep_evicted(worth_loading(0));

  count_work(budget);
  admit(budget);
  grant_loads();
  grant_running(budget);
  reserve_running(budget);
  build(plan);
  memory_.pool().forfeit(reservation_);
  settle();
  count_waits();
  in_flight_ = !plan.items.empty() || !plan.loads.empty();
}

void Scheduler::reserve_running(const StepBudget& budget) {
  // A copy, by rank: who loses their pages leaves running_.
  by_age_.clear();
  for (size_t rank = 0; rank < kPriorityClasses; ++rank) {
    for (uint32_t index : running_.slots()) {
      if (static_cast<size_t>(slots_[index].rank) == rank) by_age_.push_back(index);
    }
  }
  tokens_granted_ = 0;
  logits_granted_ = 0;
  for (uint32_t index : by_age_) {
    if (slots_[index].planned == 0) continue;
    reserve_share(index);
    if (slots_[index].fetches) {
      slots_[index].fetches = slots_[index].planned > 0;
      continue;
    }
    tokens_granted_ += slots_[index].planned;
    logits_granted_ += logits_for(slots_[index], slots_[index].planned);
  }
  if (tokens_granted_ == 0) serve_first(budget);
}

// Nobody whose turn it was got pages: those are with sequences of higher rank whose turn it was not. The
// first of all can always go on, so that the step is not empty and the next ones neither.
void Scheduler::serve_first(const StepBudget& budget) {
  const std::optional<uint32_t> first = first_ranked(false);
  if (!first) return;
  RequestSlot& slot = slots_[*first];
  slot.planned = tokens_for(slot, budget.tokens, budget.logits, budget.chunk_tokens_max);
  reserve_share(*first);
  // Only those who load can have the pages: they go on, so the step is not in vain.
  INFERD_CHECK(slot.planned > 0 || somebody_loads());
  tokens_granted_ = slot.planned;
  logits_granted_ = logits_for(slot, slot.planned);
}

// The oldest of the highest rank that is not paused, nor loading if those are not asked for.
std::optional<uint32_t> Scheduler::first_ranked(bool loading_too) const {
  std::optional<uint32_t> first;
  for (uint32_t index : running_.slots()) {
    if (slots_[index].paused || (!loading_too && slots_[index].loads())) continue;
    if (!first || slots_[index].rank < slots_[*first].rank) first = index;
  }
  return first;
}

// Reserves the pages of the sequence's share, or of as much of it as can be had.
void Scheduler::reserve_share(uint32_t index) {
  RequestSlot& slot = slots_[index];
  // Ends: every turn reserves, or shrinks the share to what surely fits, or preempts one sequence.
  while (memory_.reserve(slot.table.pages_needed(slot.planned), reservation_) !=
         memory::ReserveStatus::kReserved) {
    const uint32_t fitting = tokens_within_pages(slot, memory_.available());
    if (fitting > 0) {
      slot.planned = fitting;
      continue;
    }
    const std::optional<uint32_t> victim = choose_victim(slot);
    if (!victim) {
      // Those of higher rank have the pages. It keeps its own, and waits.
      slot.planned = 0;
      slot.short_of_pages = true;
      return;
    }
    pages_short_ = true;
    preempt(*victim);
  }
}

// Who lets go for this running sequence: the youngest paused one; else, of those of lower rank (a later
// class, or as early a one and younger), the one of the latest class, of the user furthest ahead, the
// youngest.
std::optional<uint32_t> Scheduler::choose_victim(const RequestSlot& slot) const {
  std::optional<uint32_t> victim;
  for (uint32_t index : running_.slots()) {
    const RequestSlot& other = slots_[index];
    const bool lower = other.rank > slot.rank ||
                       (other.rank == slot.rank && other.arrival > slot.arrival);
    if (&other == &slot || (!other.paused && !lower)) continue;
    if (!victim || lets_go_before(index, *victim)) victim = index;
  }
  return victim;
}

bool Scheduler::lets_go_before(uint32_t one, uint32_t other) const {
  const RequestSlot& a = slots_[one];
  const RequestSlot& b = slots_[other];
  if (a.paused != b.paused) return a.paused;
  if (a.paused) return a.arrival > b.arrival;
  if (a.rank != b.rank) return a.rank > b.rank;
  if (a.priority == b.priority) {
    const uint64_t a_time = fair_.user_of(a.lane).time;
    const uint64_t b_time = fair_.user_of(b.lane).time;
    if (a_time != b_time) return a_time > b_time;
  }
  return a.arrival > b.arrival;
}

void Scheduler::preempt(uint32_t index) {
  RequestSlot& slot = slots_[index];
  INFERD_CHECK(!in_flight_ && slot.table.is_open());
  memory_.sequences().close(slot.table);
  running_.erase(index);
  slot.state = SequenceState::kWaiting;
  slot.computed = 0;
  slot.planned = 0;
  slot.stored_end = 0;
  slot.fetches = false;
  slot.indexed = 0;
  slot.waiting_since_ns = clock_.now_ns();
  waiting_.insert(slots_, index);
  insert_waiting(index);
  ++slot.stats.preemptions;
  ++totals_.preemptions;
}

void Scheduler::build(BatchPlan& plan) {
  for (uint32_t index : running_.slots()) {
    RequestSlot& slot = slots_[index];
    if (slot.planned == 0) continue;
    if (slot.fetches) {
      build_loads(index, plan);
      continue;
    }
    const std::optional<PageCopy> copy = slot.table.append(slot.planned, reservation_);
    if (copy) plan.copies.push_back(*copy);
    BatchItem item;
    item.sequence = slot.sequence;
    item.pages = slot.table.pages();
    item.tokens = std::span<const TokenId>(slot.tokens).subspan(slot.computed, slot.planned);
    item.position_first = slot.computed;
    item.logits_count = logits_for(slot, slot.planned);
    plan.token_count += slot.planned;
    plan.logits_count += item.logits_count;
    plan.items.push_back(item);
    planned_.push_back(index);
  }
  INFERD_CHECK(plan.token_count == tokens_granted_ && plan.logits_count == logits_granted_);
}

}  // namespace inferd::scheduler
