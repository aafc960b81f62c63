// Scheduler: which waiting requests enter, with what the prefix index has of them, and who makes way.
#include <algorithm>

#include "base/check.h"
#include "scheduler/scheduler.h"
#include "scheduler/slot_work.h"

namespace inferd::scheduler {

namespace {

// Waiting requests that may be passed over in a step because another sequence computes their beginning.
constexpr uint32_t kPrefixWaitersTried = 32;

size_t number(PriorityClass priority) { return static_cast<size_t>(priority); }

}  // namespace

// By nice, then age: where the lane takes its next one from.
void Scheduler::insert_waiting(uint32_t index) {
  const RequestSlot& slot = slots_[index];
  std::vector<uint32_t>& waiting = work_[slot.lane].waiting;
  const auto place = std::upper_bound(
      waiting.begin(), waiting.end(), index, [this](uint32_t a, uint32_t b) {
        if (slots_[a].nice != slots_[b].nice) return slots_[a].nice < slots_[b].nice;
        return slots_[a].arrival < slots_[b].arrival;
      });
  waiting.insert(place, index);
}

void Scheduler::erase_waiting(uint32_t index) {
  std::vector<uint32_t>& waiting = work_[slots_[index].lane].waiting;
  const auto place = std::find(waiting.begin(), waiting.end(), index);
  INFERD_CHECK(place != waiting.end());
  waiting.erase(place);
}

// The lane's first waiting request from `place` on that is not paused; kNoSlot if none. Moves `place` there.
uint32_t Scheduler::next_waiting(uint32_t lane, size_t& place) const {
  const std::vector<uint32_t>& waiting = work_[lane].waiting;
  while (place < waiting.size() && slots_[waiting[place]].paused) ++place;
  return place < waiting.size() ? waiting[place] : kNoSlot;
}

void Scheduler::admit(const StepBudget& budget) {
  if (waiting_.empty()) return;
  promote_starved();
  for (uint32_t index : promoted_) {
    if (index == kNoSlot || slots_[index].state != SequenceState::kWaiting) continue;
    if (slots_[index].paused) continue;
    if (try_admit(index) == Admission::kNoRoom) return;
  }
  bool room = true;
  for (size_t priority = 0; room && priority < kPriorityClasses; ++priority) {
    room = admit_class(priority, budget);
  }
  fair_.forget_expected();
}

// Lets the class's requests in by their turns. If the one whose turn it is does not fit, nobody after it
// enters in this step: a large request is not overtaken for ever by small ones. Returns whether all fit.
bool Scheduler::admit_class(size_t priority, const StepBudget& budget) {
  turns_.clear();
  for (uint32_t lane = 0; lane < work_.size(); ++lane) {
    if (work_[lane].waiting.empty() || number(fair_.class_of(lane)) != priority) continue;
    // A session's unfinished prefills come before its new ones.
    if (work_[lane].prefill_tokens >= budget.tokens) continue;
    work_[lane].place = 0;
    const uint32_t first = next_waiting(lane, work_[lane].place);
    if (first != kNoSlot) turns_.add(lane, slots_[first].arrival);
  }
  turns_.start();
  while (!turns_.empty()) {
    const uint32_t lane = turns_.lane();
    LaneWork& work = work_[lane];
    const uint32_t index = work.waiting[work.place];
    RequestSlot& slot = slots_[index];
    switch (try_admit(index)) {
      case Admission::kNoRoom:
        return false;
      case Admission::kAwaitsPrefix:
        // However many wait for one prefix, a step's work stays bounded.
        if (++waits_.for_prefix >= kPrefixWaitersTried) return false;
        ++work.place;
        break;
      case Admission::kAdmitted:
        work.prefill_tokens += step_prefill(slot, budget);
        fair_.expect(lane, cost_of(slot, slot.tokens_left()), slot.nice);
        break;
    }
    // Who made way went back to its lane, perhaps to this one.
    work.place = std::min(work.place, work.waiting.size());
    const uint32_t next = work.prefill_tokens < budget.tokens ? next_waiting(lane, work.place)
                                                              : kNoSlot;
    if (next == kNoSlot) {
      turns_.remove();
    } else {
      turns_.requeue(slots_[next].arrival);
    }
  }
  return true;
}

// A class of which nothing runs while it has saved up a share of many steps gets its first request in
// before all others, and that one keeps its pages as if it were of the first class: where a class is kept
// out by pages and not by turns, its share alone would not help.
void Scheduler::promote_starved() {
  const int64_t due = int64_t{kPromotionSteps} * config_.step_tokens;
  for (size_t priority = 1; priority < kPriorityClasses; ++priority) {
    if (promoted_[priority] != kNoSlot || credit_[priority] < due) continue;
    const auto runs = [&](uint32_t index) {
      return !slots_[index].paused && number(slots_[index].priority) == priority;
    };
    if (std::any_of(running_.slots().begin(), running_.slots().end(), runs)) continue;
    turns_.clear();
    for (uint32_t lane = 0; lane < work_.size(); ++lane) {
      size_t place = 0;
      const uint32_t first = next_waiting(lane, place);
      if (first != kNoSlot && number(fair_.class_of(lane)) == priority) {
        turns_.add(lane, slots_[first].arrival);
      }
    }
    turns_.start();
    if (turns_.empty()) continue;
    size_t place = 0;
    promoted_[priority] = next_waiting(turns_.lane(), place);
    slots_[promoted_[priority]].rank = PriorityClass::kInteractive;
  }
}

// Lets a waiting request in, with what the prefix index has of it, if the memory has room.
Scheduler::Admission Scheduler::try_admit(uint32_t index) {
  RequestSlot& slot = slots_[index];
  const uint32_t cached = find_prefix(slot);
  if (computed_elsewhere(slot, cached)) return Admission::kAwaitsPrefix;
  slot.computed = cached;
  slot.stored_end = find_stored(slot, cached);
  if (slot.stored_end != 0 && cached % kPageTokens != 0) {
    // A whole page is on its way, instead of the beginning of another.
    prefix_.pop_back();
    slot.computed -= cached % kPageTokens;
  }
  const uint64_t preemptions = totals_.preemptions;
  bool room = make_room(slot);
  if (totals_.preemptions != preemptions && slot.parent.value != 0) {
    // Its parent may have been the one that made way, with the pages that prefix_ names.
    slot.computed = find_prefix(slot);
    slot.stored_end = 0;
    room = make_room(slot);
  }
  if (!room && slot.computed % kPageTokens != 0) {
    // The page that it would copy from takes room too. Without that one it may fit.
    prefix_.pop_back();
    slot.computed -= slot.computed % kPageTokens;
    room = make_room(slot);
  }
  if (!room) {
    slot.computed = 0;
    pages_short_ = pages_short_ || !memory_.sequences().full();
    slot.stored_end = 0;
    return Admission::kNoRoom;
  }
  start_running(index);
  return Admission::kAdmitted;
}

// How much of the request its parent or the prefix index has, in tokens; the pages are in prefix_.
// The last known token is always computed, and so is every position whose logits are still to be
// given.
uint32_t Scheduler::find_prefix(const RequestSlot& slot) {
  prefix_.clear();
  uint32_t wanted = static_cast<uint32_t>(slot.tokens.size()) - 1;
  if (slot.score && slot.scored < slot.stats.prompt_tokens) wanted = std::min(wanted, slot.scored);
  const auto tokens = std::span<const TokenId>(slot.tokens).first(wanted);
  uint32_t cached = 0;
  stored_.clear();
  if (slot.domain.value != 0) {
    std::vector<memory::SlotRef>* stored = memory_.tier() == nullptr ? nullptr : &stored_;
    cached = memory_.prefixes().lookup(slot.domain, tokens, prefix_, stored);
    stored_from_ = cached / kPageTokens * kPageTokens;
  }
  return share_parent(slot, tokens, cached);
}

// The sequence that it was forked from, if that one runs and may share with it.
//
// A child enters its own pages into the index behind the parent's, so it must be of the parent's
// domain; one of no domain enters nothing, and its own children cannot either. And a page that the
// parent has still to enter may be exchanged for an equal one then, which would leave the child
// with a page whose parent in the tree it does not hold: nothing is shared from such a parent.
const RequestSlot* Scheduler::running_parent(const RequestSlot& slot) const {
  if (slot.parent.value == 0) return nullptr;
  const RequestSlot* parent = find(slot.parent);
  if (parent == nullptr || !parent->table.is_open() || parent->user != slot.user) return nullptr;
  if (slot.domain.value != 0 && slot.domain != parent->domain) return nullptr;
  if (parent->domain.value != 0 && parent->indexed != parent->computed / kPageTokens) {
    return nullptr;
  }
  return parent;
}

// Puts the parent's pages into prefix_ if they hold more of `tokens` than the `cached` first ones;
// returns how many tokens prefix_ has now. Only what is committed is shared.
uint32_t Scheduler::share_parent(const RequestSlot& slot, std::span<const TokenId> tokens,
                                 uint32_t cached) {
  const RequestSlot* parent = running_parent(slot);
  if (parent == nullptr) return cached;
  const size_t length = std::min<size_t>(tokens.size(), parent->computed);
  const auto differ = std::mismatch(
      tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(length), parent->tokens.begin());
  const auto common = static_cast<uint32_t>(differ.first - tokens.begin());
  if (common <= cached) return cached;
  const auto pages = parent->table.pages().first(memory::pages_for_tokens(common).value);
  prefix_.assign(pages.begin(), pages.end());
  return common;
}

// Whether a running sequence of the same domain, or its parent, is about to compute more whole
// pages of the request's beginning than are cached. Nobody waits for one of a later class: it may be long.
bool Scheduler::computed_elsewhere(const RequestSlot& slot, uint32_t cached) const {
  if (slot.score) return false;
  const RequestSlot* parent = running_parent(slot);
  if (slot.domain.value == 0 && parent == nullptr) return false;
  const auto tokens = std::span<const TokenId>(slot.tokens).first(slot.tokens.size() - 1);
  for (uint32_t index : running_.slots()) {
    const RequestSlot& other = slots_[index];
    const bool shares = slot.domain.value != 0 && other.domain == slot.domain;
    if ((!shares && &other != parent) || other.paused || other.rank > slot.rank ||
        other.state != SequenceState::kPrefilling || other.tokens.size() <= cached) {
      continue;
    }
    const auto differ = std::mismatch(tokens.begin(), tokens.end(), other.tokens.begin(),
                                      other.tokens.end() - 1);
    const auto common = static_cast<uint32_t>(differ.first - tokens.begin());
    const uint32_t whole = common / kPageTokens * kPageTokens;
    if (whole > cached && other.computed < whole) return true;
  }
  return false;
}

// Whether a waiting request may enter: a free sequence, and pages for all its tokens beyond those that
// prefix_ has, what running prefills still lack and one page for each running sequence. Those who must
// make way for it do, if that helps.
bool Scheduler::make_room(const RequestSlot& slot) {
  // What it found in the cache stays, and is not there for others.
  const auto spare = [this] {
    PageCount kept;
    for (PageId page : prefix_) {
      if (memory_.pool().state(page) == memory::PageState::kCached) ++kept;
    }
    return memory_.available() - kept;
  };
  // Pages that a running sequence may still ask for: its known tokens, and one page more.
  const auto lacks = [](const RequestSlot& running) {
    const PageCount held = memory::pages_for_tokens(running.computed);
    const PageCount wanted = pages_wanted(running);
    return (wanted > held ? wanted - held : PageCount()) + PageCount(1);
  };
  const bool full = memory_.sequences().full();
  if (full) {
    // Somebody must go, however many pages are free.
    list_displaceable(slot);
    if (displaceable_.empty()) return false;
  }
  PageCount required = pages_wanted(slot) - PageCount(slot.computed / kPageTokens);
  for (uint32_t index : running_.slots()) {
    if (!slots_[index].paused) required += lacks(slots_[index]);
  }
  PageCount hoped = spare();
  if (!full) {
    if (hoped >= required) return true;
    list_displaceable(slot);
  }
  size_t count = 0;
  while (hoped < required || (full && count == 0)) {
    if (count == displaceable_.size()) return false;
    const RequestSlot& other = slots_[displaceable_[count++]];
    hoped += memory::pages_for_tokens(other.computed);
    if (!other.paused) required -= lacks(other);
  }
  for (size_t i = 0; i < displaceable_.size(); ++i) {
    if (i >= count && spare() >= required) break;
    // Pages of the first ones may have been shared with others who hold them still: then more go.
    if (i >= count && !slots_[displaceable_[i]].paused) required -= lacks(slots_[displaceable_[i]]);
    preempt(displaceable_[i]);
  }
  return spare() >= required && !memory_.sequences().full();
}

// Running sequences that make way for a waiting request, in the order in which they do: paused ones;
// those of a later class; and those of a user who is far ahead of the request's.
void Scheduler::list_displaceable(const RequestSlot& slot) {
  displaceable_.clear();
  const std::optional<uint32_t> first = first_ranked(true);
  for (uint32_t index : running_.slots()) {
    const RequestSlot& other = slots_[index];
    // The first of all stays: that is what makes every sequence end.
    if (first && index == *first && other.rank <= slot.rank) continue;
    if (other.paused || other.rank > slot.rank || owes(other, slot)) displaceable_.push_back(index);
  }
  std::sort(displaceable_.begin(), displaceable_.end(),
            [this](uint32_t a, uint32_t b) { return lets_go_before(a, b); });
}

// Whether the running one's user is so far ahead of the waiting one's that its pages go over: by more than
// what computing them again costs, and than a step. So each such change is paid for by as much service.
bool Scheduler::owes(const RequestSlot& running, const RequestSlot& waiting) const {
  if (running.priority != waiting.priority || running.rank != waiting.rank) return false;
  if (running.user == waiting.user) return false;
  const FairAccount& ahead = fair_.user_of(running.lane);
  const FairAccount& behind = fair_.user_of(waiting.lane);
  const uint64_t cost = std::max(running.computed, config_.step_tokens);
  const uint32_t weight = std::min(ahead.weight, behind.weight);
  return ahead.time > behind.time + cost * kCostTime * kWeightDefault / weight;
}

void Scheduler::start_running(uint32_t index) {
  RequestSlot& slot = slots_[index];
  INFERD_CHECK(slot.state == SequenceState::kWaiting && !slot.table.is_open());
  const int64_t now_ns = clock_.now_ns();
  if (slot.stats.preemptions == 0) {
    slot.stats.admitted_ns = now_ns;
    slot.stats.cached_tokens = slot.computed;
    totals_.cached_tokens += slot.computed;
  }
  slot.deadline_ns = 0;
  slot.stats.queue_wait_ns += now_ns - slot.waiting_since_ns;
  slot.table = memory_.sequences().open(slot.sequence, slot.user);
  memory_.sequences().attach_prefix(slot.table, prefix_, slot.computed);
  slot.indexed = slot.computed / kPageTokens;
  slot.state = slot.tokens_left() == 1 ? SequenceState::kDecoding : SequenceState::kPrefilling;
  waiting_.erase(index);
  erase_waiting(index);
  running_.insert(slots_, index);
}

}  // namespace inferd::scheduler
