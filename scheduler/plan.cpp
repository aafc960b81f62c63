// Scheduler::plan(): the next step's work.
//
// By phases, each complete before the next:
//  1. grant: the policy's order decides who may compute how many tokens of the budget.
//  2. reserve: oldest first, pages are promised to each share; who is short takes them from younger
//     ones, or computes less. Nothing is taken yet, so no page changes hands while a copy of it is
//     still to be made.
//  3. admit: what is left of the budget goes to waiting requests, if their pages are free.
//  4. build: page tables grow out of the reservation, and the items are written.
#include <algorithm>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace inferd::scheduler {

namespace {

// Waiting requests that may be passed over in a step because another sequence computes their beginning.
constexpr uint32_t kPrefixWaitersTried = 32;

// Logits rows that computing the next `tokens` tokens of the sequence gives: the last one if a
// token is sampled after it, and every prompt position that a score request was not given yet.
uint32_t logits_for(const RequestSlot& slot, uint32_t tokens) {
  const uint32_t end = slot.computed + tokens;
  const uint32_t known = static_cast<uint32_t>(slot.tokens.size());
  INFERD_DCHECK(end <= known);
  if (tokens == 0) return 0;
  uint32_t rows = end == known && known < slot.limit ? 1 : 0;
  if (slot.score && std::min(end, slot.stats.prompt_tokens) > slot.scored) {
    // Scored positions are a prefix of the prompt, and nothing is generated before all of them are.
    rows = std::max(rows, end - slot.scored);
  }
  return rows;
}

// How many tokens of the sequence fit in a step with so much room: 0 if none.
uint32_t tokens_for(const RequestSlot& slot, uint32_t tokens_room, uint32_t logits_room,
                    uint32_t chunk_tokens_max) {
  uint32_t tokens = std::min(slot.tokens_left(), tokens_room);
  if (chunk_tokens_max != 0) tokens = std::min(tokens, chunk_tokens_max);
  if (slot.chunk_tokens_max != 0) tokens = std::min(tokens, slot.chunk_tokens_max);
  // One token less is one row less, as long as there are rows at all.
  const uint32_t rows = logits_for(slot, tokens);
  if (rows > logits_room) tokens -= rows - logits_room;
  INFERD_DCHECK(logits_for(slot, tokens) <= logits_room);
  return tokens;
}

// Tokens of the planned share that can be written with `free` more pages: 0 if none.
uint32_t tokens_within_pages(const RequestSlot& slot, PageCount free) {
  const PageCount needed = slot.table.pages_needed(slot.planned);
  if (needed <= free) return slot.planned;
  const PageCount pages_end = memory::pages_for_tokens(slot.computed + slot.planned);
  const uint32_t end = (pages_end - (needed - free)).value * kPageTokens;
  return end > slot.computed ? end - slot.computed : 0;
}

// Pages of all known tokens and of the next one.
PageCount pages_wanted(const RequestSlot& slot) {
  const uint32_t known = static_cast<uint32_t>(slot.tokens.size());
  return memory::pages_for_tokens(std::min(known + 1, slot.limit));
}

}  // namespace

bool Scheduler::plan(const StepBudget& budget, BatchPlan& plan) {
  INFERD_CHECK(!in_flight_);
  INFERD_CHECK(budget.tokens > 0 && budget.tokens <= config_.step_tokens);
  INFERD_CHECK(budget.logits > 0 && budget.logits <= config_.step_logits);
  plan.clear();
  plan.items.reserve(memory_.sequences().sequences_max());
  plan.copies.reserve(memory_.sequences().sequences_max());
  planned_.clear();
  preempted_ = false;

  grant_running(budget);
  reserve_running(budget);
  admit(budget);
  build(plan);
  memory_.pool().forfeit(reservation_);
  in_flight_ = !plan.items.empty();
  return in_flight_;
}

Candidate Scheduler::candidate(uint32_t index) const {
  const RequestSlot& slot = slots_[index];
  Candidate candidate;
  candidate.sequence = slot.sequence;
  candidate.session = slot.session;
  candidate.user = slot.user;
  candidate.arrival = slot.arrival;
  candidate.tokens_left = slot.tokens_left();
  candidate.decode = slot.state == SequenceState::kDecoding;
  candidate.weight = slot.weight;
  candidate.nice = slot.nice;
  candidate.slot = index;
  return candidate;
}

void Scheduler::grant_running(const StepBudget& budget) {
  candidates_.clear();
  for (uint32_t index : running_.slots()) {
    INFERD_DCHECK(slots_[index].planned == 0);
    if (!slots_[index].paused) candidates_.push_back(candidate(index));
  }
  policy_.order_running(candidates_);
  tokens_granted_ = 0;
  logits_granted_ = 0;
  for (const Candidate& next : candidates_) {
    RequestSlot& slot = slots_[next.slot];
    slot.planned = tokens_for(slot, budget.tokens - tokens_granted_,
                              budget.logits - logits_granted_, budget.chunk_tokens_max);
    tokens_granted_ += slot.planned;
    logits_granted_ += logits_for(slot, slot.planned);
  }
}

void Scheduler::reserve_running(const StepBudget& budget) {
  // A copy: who loses their pages leaves running_.
  by_age_.assign(running_.slots().begin(), running_.slots().end());
  tokens_granted_ = 0;
  logits_granted_ = 0;
  for (uint32_t index : by_age_) {
    if (slots_[index].planned == 0) continue;
    reserve_share(index);
    tokens_granted_ += slots_[index].planned;
    logits_granted_ += logits_for(slots_[index], slots_[index].planned);
  }
  if (tokens_granted_ == 0) serve_oldest(budget);
}

// Nobody whom the policy chose got pages: those are with older sequences that it did not choose.
// The oldest can always go on, so that the step is not empty and the next ones neither.
void Scheduler::serve_oldest(const StepBudget& budget) {
  for (uint32_t index : running_.slots()) {
    RequestSlot& slot = slots_[index];
    if (slot.paused) continue;
    slot.planned = tokens_for(slot, budget.tokens, budget.logits, budget.chunk_tokens_max);
    reserve_share(index);
    INFERD_CHECK(slot.planned > 0);
    tokens_granted_ = slot.planned;
    logits_granted_ = logits_for(slot, slot.planned);
    return;
  }
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
    const std::optional<uint32_t> victim = choose_victim(slot.arrival);
    if (!victim) {
      // Everyone older has the pages. It keeps its own, and waits.
      slot.planned = 0;
      return;
    }
    preempt(*victim);
  }
}

// Who lets go for a sequence of this age: the youngest paused one, else the youngest that is
// younger.
std::optional<uint32_t> Scheduler::choose_victim(uint64_t arrival) const {
  if (const std::optional<uint32_t> paused = youngest_paused()) return paused;
  if (running_.empty()) return std::nullopt;
  const uint32_t youngest = running_[running_.size() - 1];
  if (slots_[youngest].arrival <= arrival) return std::nullopt;
  return youngest;
}

std::optional<uint32_t> Scheduler::youngest_paused() const {
  for (uint32_t place = running_.size(); place-- > 0;) {
    if (slots_[running_[place]].paused) return running_[place];
  }
  return std::nullopt;
}

void Scheduler::preempt(uint32_t index) {
  RequestSlot& slot = slots_[index];
  INFERD_CHECK(!in_flight_ && slot.table.is_open());
  memory_.sequences().close(slot.table);
  running_.erase(index);
  slot.state = SequenceState::kWaiting;
  slot.computed = 0;
  slot.planned = 0;
  slot.indexed = 0;
  slot.waiting_since_ns = clock_.now_ns();
  waiting_.insert(slots_, index);
  ++slot.stats.preemptions;
  ++totals_.preemptions;
  preempted_ = true;
}

void Scheduler::admit(const StepBudget& budget) {
  if (preempted_ || waiting_.empty()) return;
  candidates_.clear();
  for (uint32_t index : waiting_.slots()) {
    if (!slots_[index].paused) candidates_.push_back(candidate(index));
  }
  uint32_t prefix_waiters = 0;
  while (!candidates_.empty()) {
    const uint32_t choice = policy_.next_waiting(candidates_);
    INFERD_CHECK(choice < candidates_.size());
    const uint32_t index = candidates_[choice].slot;
    RequestSlot& slot = slots_[index];
    const uint32_t cached = find_prefix(slot);
    if (computed_elsewhere(slot, cached)) {
      // However many wait for one prefix, a step's work stays bounded.
      if (++prefix_waiters == kPrefixWaitersTried) return;
      candidates_.erase(candidates_.begin() + choice);
      continue;
    }
    slot.computed = cached;
    if (!start(index, budget)) {
      slot.computed = 0;
      return;
    }
    candidates_.erase(candidates_.begin() + choice);
  }
}

// Lets a waiting request in, with what prefix_ has of it, if the step and the memory have room.
bool Scheduler::start(uint32_t index, const StepBudget& budget) {
  RequestSlot& slot = slots_[index];
  if (budget.tokens == tokens_granted_) return false;
  bool room = make_room(slot);
  if (preempted_ && slot.parent.value != 0) {
    // Its parent may have been the one that made way, with the pages that prefix_ names.
    slot.computed = find_prefix(slot);
    room = make_room(slot);
  }
  if (!room && slot.computed % kPageTokens != 0) {
    // The page that it would copy from takes room too. Without that one it may fit.
    prefix_.pop_back();
    slot.computed -= slot.computed % kPageTokens;
    room = make_room(slot);
  }
  const uint32_t tokens = tokens_for(slot, budget.tokens - tokens_granted_,
                                     budget.logits - logits_granted_, budget.chunk_tokens_max);
  if (!room || tokens == 0) return false;
  start_running(index);
  slot.planned = tokens;
  // If it shares the part-filled last page of a parent that is served in this step too, the parent
  // did not reserve a copy. Of all who write behind a shared page, the last one finds it its own
  // and makes no copy; each child reserves one here; so there is one for each who does.
  const memory::ReserveStatus status =
      memory_.reserve(slot.table.pages_needed(tokens), reservation_);
  INFERD_CHECK(status == memory::ReserveStatus::kReserved);
  tokens_granted_ += tokens;
  logits_granted_ += logits_for(slot, tokens);
  return true;
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
  if (slot.domain.value != 0) cached = memory_.prefixes().lookup(slot.domain, tokens, prefix_);
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
// pages of the request's beginning than are cached.
bool Scheduler::computed_elsewhere(const RequestSlot& slot, uint32_t cached) const {
  if (slot.score) return false;
  const RequestSlot* parent = running_parent(slot);
  if (slot.domain.value == 0 && parent == nullptr) return false;
  const auto tokens = std::span<const TokenId>(slot.tokens).first(slot.tokens.size() - 1);
  for (uint32_t index : running_.slots()) {
    const RequestSlot& other = slots_[index];
    const bool shares = slot.domain.value != 0 && other.domain == slot.domain;
    if ((!shares && &other != parent) || other.paused ||
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

// Whether a waiting request may enter: a free sequence, and pages for all its tokens beyond those
// that prefix_ has, what running prefills still lack and one page for each running sequence. Paused
// ones make way if that helps.
bool Scheduler::make_room(const RequestSlot& slot) {
  PageCount required = pages_wanted(slot) - PageCount(slot.computed / kPageTokens);
  // What it found in the cache stays, and is not there for others.
  const auto spare = [this] {
    PageCount kept;
    for (PageId page : prefix_) {
      if (memory_.pool().state(page) == memory::PageState::kCached) ++kept;
    }
    return memory_.available() - kept;
  };
  PageCount available = spare();
  bool any_paused = false;
  for (uint32_t index : running_.slots()) {
    const RequestSlot& running = slots_[index];
    if (running.paused) {
      any_paused = true;
      available += memory::pages_for_tokens(running.computed);
      continue;
    }
    const PageCount held = memory::pages_for_tokens(running.computed + running.planned);
    ++required;
    if (pages_wanted(running) > held) required += pages_wanted(running) - held;
  }
  if (available < required) return false;
  if (memory_.sequences().full() && !any_paused) return false;
  while (memory_.sequences().full() || spare() < required) {
    const std::optional<uint32_t> paused = youngest_paused();
    if (!paused) return false;  // pages of paused ones were shared, and others hold them still
    preempt(*paused);
  }
  return true;
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
  running_.insert(slots_, index);
}

void Scheduler::build(BatchPlan& plan) {
  for (uint32_t index : running_.slots()) {
    RequestSlot& slot = slots_[index];
    if (slot.planned == 0) continue;
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
