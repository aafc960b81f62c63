// Scheduler: how a step's budget of tokens, logits rows and time is shared out among those that run.
//
// Class by class, and within a class: decodes, then prefills. Whose turn it is is the fair queue's word.
// A decode of a user who is more than a step ahead of one that lacks something waits for what is left; so
// does a lower class, but for the share that is kept for it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "scheduler/scheduler.h"
#include "scheduler/slot_work.h"

namespace inferd::scheduler {

namespace {

// A step that holds a latency target still computes so many tokens of prefill, or prompts would starve.
constexpr uint32_t kPrefillTokensMin = 4;
// A class that has a share kept spends it on prefill in pieces no smaller than this.
constexpr int64_t kCreditChunkMin = 32;

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

size_t number(PriorityClass priority) { return static_cast<size_t>(priority); }

}  // namespace

// Of its next `tokens` tokens, those that it had before it was preempted.
uint32_t Scheduler::tokens_again(const RequestSlot& slot, uint32_t tokens) {
  return std::min(tokens, std::max(slot.charged, slot.computed) - slot.computed);
}

uint64_t Scheduler::cost_of(const RequestSlot& slot, uint32_t tokens) {
  if (slot.state == SequenceState::kDecoding) return uint64_t{tokens} * kDecodeCost;
  return tokens - tokens_again(slot, tokens);
}

// Tokens that a prefill can use of a step.
uint32_t Scheduler::step_prefill(const RequestSlot& slot, const StepBudget& budget) {
  uint32_t tokens = slot.tokens_left();
  if (slot.chunk_tokens_max != 0) tokens = std::min(tokens, slot.chunk_tokens_max);
  if (budget.chunk_tokens_max != 0) tokens = std::min(tokens, budget.chunk_tokens_max);
  return tokens;
}

// Before admission: whose lanes have prefills to finish.
void Scheduler::count_work(const StepBudget& budget) {
  work_.resize(std::max<size_t>(work_.size(), fair_.lane_count()));
  for (LaneWork& work : work_) {
    work.prefill_tokens = 0;
    work.decode_count = 0;
    work.decode_first = work.decode_last = work.prefill_first = work.prefill_last = kNone;
  }
  for (uint32_t index : running_.slots()) {
    RequestSlot& slot = slots_[index];
    INFERD_DCHECK(slot.planned == 0);
    slot.short_of_pages = false;
    if (!slot.paused && !slot.loads() && slot.state == SequenceState::kPrefilling) {
      work_[slot.lane].prefill_tokens += step_prefill(slot, budget);
    }
  }
}

void Scheduler::grant_running(const StepBudget& budget) {
  room_ = Room{.tokens = budget.tokens,
               .logits = budget.logits,
               .chunk_tokens_max = budget.chunk_tokens_max,
               .prefill_min = kPrefillTokensMin,
               .time_ns = std::numeric_limits<double>::infinity(),
               .cost = budget.cost};
  set_time_room(budget);
  list_work(budget);
  for (size_t priority = kPriorityClasses; priority-- > 1;) {
    if (credit_[priority] > 0) grant_class(priority, static_cast<uint64_t>(credit_[priority]));
  }
  for (size_t priority = 0; priority < kPriorityClasses; ++priority) {
    grant_class(priority, std::numeric_limits<uint64_t>::max());
  }
  fair_.forget_expected();
}

// The latency target is for interactive answers under way. It always bounds prefill. It bounds decodes
// only where that keeps it for somebody: for a user all of whose answers fit into an even share of the
// step. Where none does, everyone is served, for half a batch takes more than half the time.
void Scheduler::set_time_room(const StepBudget& budget) {
  if (budget.time_ns == 0 || !budget.cost.known()) return;
  user_decode_ns_.assign(fair_.user_count(), 0);
  double decodes_ns = 0;
  bool lower = false;
  bool interactive = false;
  for (uint32_t index : running_.slots()) {
    const RequestSlot& slot = slots_[index];
    if (slot.paused || slot.loads()) continue;
    if (slot.state != SequenceState::kDecoding) {
      const double token_ns = budget.cost.share_ns(1, slot.score ? 1 : 0, slot.computed);
      room_.prefill_token_ns = std::max(room_.prefill_token_ns, token_ns);
      room_.prefill_class = std::min(room_.prefill_class, slot.priority);
      continue;
    }
    const double one_ns = budget.cost.share_ns(1, 1, slot.computed);
    decodes_ns += one_ns;
    if (slot.priority == PriorityClass::kInteractive) {
      user_decode_ns_[fair_.user_index(slot.lane)] += one_ns;
      interactive = true;
    } else {
      lower = true;
    }
  }
  if (!interactive) return;
  room_.time_ns = static_cast<double>(budget.time_ns) - budget.cost.step_ns;
  if (decodes_ns + room_.prefill_min * room_.prefill_token_ns <= room_.time_ns) return;
  uint32_t users = 0;
  double least_ns = std::numeric_limits<double>::infinity();
  for (double user_ns : user_decode_ns_) {
    if (user_ns == 0) continue;
    ++users;
    least_ns = std::min(least_ns, user_ns);
  }
  room_.cut_decodes = (users > 1 || lower) && least_ns <= room_.time_ns / users;
}

// Sorts what runs into its lanes: decodes by age, or by turns if the step may be too small for all of
// them; prefills by nice and age.
void Scheduler::list_work(const StepBudget& budget) {
  for (std::vector<uint32_t>& lanes : class_lanes_) lanes.clear();
  user_decode_cost_.assign(fair_.user_count(), 0);
  by_age_.assign(running_.slots().begin(), running_.slots().end());
  if (room_.cut_decodes || std::min(budget.tokens, budget.logits) < running_.size()) {
    std::sort(by_age_.begin(), by_age_.end(), [this](uint32_t a, uint32_t b) {
      const RequestSlot& one = slots_[a];
      const RequestSlot& other = slots_[b];
      const bool decodes = one.state == SequenceState::kDecoding &&
                           other.state == SequenceState::kDecoding;
      if (decodes && one.served_turn != other.served_turn) {
        return one.served_turn < other.served_turn;
      }
      if (one.state != other.state) return one.state > other.state;
      return one.arrival < other.arrival;
    });
  }
  for (uint32_t index : by_age_) {
    RequestSlot& slot = slots_[index];
    if (slot.paused || slot.fetches || slot.loads()) continue;
    LaneWork& work = work_[slot.lane];
    if (work.decode_first == kNone && work.prefill_first == kNone) {
      class_lanes_[number(slot.priority)].push_back(slot.lane);
    }
    slot.lane_next = kNone;
    const bool decodes = slot.state == SequenceState::kDecoding;
    if (decodes) {
      ++work.decode_count;
      user_decode_cost_[fair_.user_index(slot.lane)] += FairQueue::nice_cost(kDecodeCost, slot.nice);
    }
    uint32_t& first = decodes ? work.decode_first : work.prefill_first;
    uint32_t& last = decodes ? work.decode_last : work.prefill_last;
    if (first == kNone) {
      first = last = index;
    } else if (decodes || slots_[last].nice <= slot.nice) {
      slots_[last].lane_next = index;
      last = index;
    } else {
      insert_by_nice(first, index);
    }
  }
}

// Into a list whose last one has a higher nice.
void Scheduler::insert_by_nice(uint32_t& first, uint32_t index) {
  RequestSlot& slot = slots_[index];
  uint32_t* link = &first;
  while (slots_[*link].nice <= slot.nice) link = &slots_[*link].lane_next;
  slot.lane_next = *link;
  *link = index;
}

void Scheduler::grant_class(size_t priority, uint64_t cost_max) {
  if (class_lanes_[priority].empty()) return;
  uint64_t spent = 0;
  grant_decodes(priority, decode_time_max(priority), cost_max, spent);
  grant_prefills(priority, cost_max, spent);
  grant_decodes(priority, std::numeric_limits<uint64_t>::max(), cost_max, spent);
}

// Up to which virtual time a user's decodes go before the prefills of those behind: one step ahead of the
// user furthest behind of all that have something to do.
uint64_t Scheduler::decode_time_max(size_t priority) const {
  uint64_t behind = std::numeric_limits<uint64_t>::max();
  const auto look = [&](uint32_t lane) { behind = std::min(behind, fair_.user_of(lane).now()); };
  for (uint32_t lane : class_lanes_[priority]) look(lane);
  for (uint32_t lane = 0; lane < work_.size(); ++lane) {
    if (number(fair_.class_of(lane)) == priority && next_waiting(lane) != kNone) look(lane);
  }
  return behind + uint64_t{config_.step_tokens} * kCostTime;
}

// Whether the step has room for all decodes of the class that have had no turn yet.
bool Scheduler::decodes_fit(size_t priority, uint64_t cost_max) const {
  if (room_.cut_decodes || cost_max != std::numeric_limits<uint64_t>::max()) return false;
  uint32_t decodes = 0;
  for (uint32_t lane : class_lanes_[priority]) decodes += work_[lane].decode_count;
  return decodes <= std::min(room_.tokens, room_.logits);
}

// The lane's next decode has its turn. False if the step has no room for it.
bool Scheduler::grant_decode(LaneWork& work, uint32_t lane, uint64_t& spent) {
  RequestSlot& slot = slots_[work.decode_first];
  if (grant(slot, 1) == 0) return false;
  spent += kDecodeCost;
  fair_.expect(lane, kDecodeCost, slot.nice);
  uint64_t& left = user_decode_cost_[fair_.user_index(lane)];
  left -= FairQueue::nice_cost(kDecodeCost, slot.nice);
  --work.decode_count;
  work.decode_first = slot.lane_next;
  return true;
}

// All decodes of a lane, whose turns come in any case.
void Scheduler::grant_lane(LaneWork& work, uint32_t lane, uint64_t& spent) {
  while (work.decode_first != kNone && grant_decode(work, lane, spent)) {
  }
}

void Scheduler::grant_decodes(size_t priority, uint64_t time_max, uint64_t cost_max,
                              uint64_t& spent) {
  turns_.clear();
  // Where there is room for all, no turn matters but for the bound of time, and that is a matter of each user.
  const bool fit = decodes_fit(priority, cost_max);
  for (uint32_t lane : class_lanes_[priority]) {
    const uint32_t first = work_[lane].decode_first;
    if (first == kNone) continue;
    const uint64_t cost = user_decode_cost_[fair_.user_index(lane)];
    if (fit && fair_.user_of(lane).now() + fair_.user_time(lane, cost) <= time_max) {
      grant_lane(work_[lane], lane, spent);
    } else {
      turns_.add(lane, slots_[first].arrival);
    }
  }
  turns_.start();
  while (!turns_.empty() && spent < cost_max) {
    const uint32_t lane = turns_.lane();
    if (fair_.user_of(lane).now() > time_max) return;
    LaneWork& work = work_[lane];
    if (!grant_decode(work, lane, spent)) return;
    if (work.decode_first == kNone) {
      turns_.remove();
    } else {
      turns_.requeue(slots_[work.decode_first].arrival);
    }
  }
}

void Scheduler::grant_prefills(size_t priority, uint64_t cost_max, uint64_t& spent) {
  turns_.clear();
  for (uint32_t lane : class_lanes_[priority]) {
    const uint32_t first = work_[lane].prefill_first;
    if (first != kNone) turns_.add(lane, slots_[first].arrival);
  }
  turns_.start();
  while (!turns_.empty() && spent < cost_max && room_.tokens > 0) {
    const uint32_t lane = turns_.lane();
    LaneWork& work = work_[lane];
    RequestSlot& slot = slots_[work.prefill_first];
    const uint64_t left = cost_max - spent;
    if (left < kCreditChunkMin && left < slot.tokens_left()) return;
    const uint64_t before = cost_of(slot, slot.planned);
    const auto tokens_max = static_cast<uint32_t>(std::min<uint64_t>(left, slot.tokens_left()));
    grant(slot, tokens_max);
    const uint64_t cost = cost_of(slot, slot.planned) - before;
    spent += cost;
    fair_.expect(lane, cost, slot.nice);
    const bool blocked = slot.planned < own_share(slot);  // by tokens, rows, time or the class's share
    if (!blocked) work.prefill_first = slot.lane_next;
    if (blocked || work.prefill_first == kNone) {
      turns_.remove();
    } else {
      turns_.requeue(slots_[work.prefill_first].arrival);
    }
  }
}

// What the sequence would compute in a step of its own.
uint32_t Scheduler::own_share(const RequestSlot& slot) const {
  uint32_t chunk = slot.tokens_left();
  if (room_.chunk_tokens_max != 0) chunk = std::min(chunk, room_.chunk_tokens_max);
  if (slot.chunk_tokens_max != 0) chunk = std::min(chunk, slot.chunk_tokens_max);
  return chunk;
}

double Scheduler::time_of(const RequestSlot& slot, uint32_t tokens) const {
  return room_.cost.share_ns(tokens, logits_for(slot, tokens), slot.computed);
}

// What a decode of the class leaves for the least of prefill, which is granted in any case.
double Scheduler::prefill_time(PriorityClass priority) const {
  return priority < room_.prefill_class ? 0 : room_.prefill_min * room_.prefill_token_ns;
}

// Tokens of a chunk that fit into what is left of the step's time.
uint32_t Scheduler::tokens_in_time(const RequestSlot& slot, uint32_t tokens) const {
  if (time_of(slot, tokens) <= room_.time_ns) return tokens;
  // Less than the whole wants no row, but where every position is scored. The largest n such that
  // n * first + n * n / 2 * position_ns fits, by the form of the root that does not cancel.
  const double row_ns = slot.score ? room_.cost.row_ns : 0;
  const double first_ns = row_ns + room_.cost.token_ns + room_.cost.position_ns * slot.computed;
  const double left_ns = std::max(room_.time_ns, 0.0);
  const double root = std::sqrt(first_ns * first_ns + 2 * room_.cost.position_ns * left_ns);
  const double fitting = std::min<double>(tokens, 2 * left_ns / (first_ns + root));
  return std::max(static_cast<uint32_t>(fitting), std::min(tokens, room_.prefill_min));
}

// Up to `tokens_max` more tokens for the sequence in this step; returns how many.
uint32_t Scheduler::grant(RequestSlot& slot, uint32_t tokens_max) {
  const uint32_t before = slot.planned;
  const bool decodes = slot.state == SequenceState::kDecoding;
  const double before_ns = before == 0 ? 0 : time_of(slot, before);
  const uint32_t before_rows = logits_for(slot, before);
  uint32_t tokens = tokens_for(slot, std::min(room_.tokens + before, before + tokens_max),
                               room_.logits + before_rows, room_.chunk_tokens_max);
  const bool first_of_step = tokens_granted_ == 0;
  room_.time_ns += before_ns;
  if (decodes) {
    const double left_ns = room_.time_ns - prefill_time(slot.priority);
    if (room_.cut_decodes && !first_of_step && time_of(slot, 1) > left_ns) tokens = before;
  } else {
    tokens = std::max(before, std::min(tokens, tokens_in_time(slot, tokens)));
    room_.prefill_min -= std::min(room_.prefill_min, tokens - before);
  }
  INFERD_DCHECK(tokens >= before);
  slot.planned = tokens;
  if (tokens > before) slot.served_turn = ++turns_given_;
  room_.time_ns -= tokens == 0 ? 0 : time_of(slot, tokens);
  room_.tokens -= tokens - before;
  room_.logits = room_.logits + before_rows - logits_for(slot, tokens);
  tokens_granted_ += tokens - before;
  return tokens - before;
}

// The plan stands: charges it, and notes who was left wanting.
void Scheduler::settle() {
  std::array<uint64_t, kPriorityClasses> cost{};
  std::array<bool, kPriorityClasses> unserved{};
  for (uint32_t index : running_.slots()) {
    RequestSlot& slot = slots_[index];
    if (slot.fetches || slot.loads()) continue;
    if (slot.planned > 0) {
      const uint64_t one = cost_of(slot, slot.planned);
      fair_.charge(slot.lane, one, slot.nice);
      cost[number(slot.priority)] += one;
      slot.planned_again = tokens_again(slot, slot.planned);
      slot.charged = std::max(slot.charged, slot.computed + slot.planned);
    }
    if (!slot.paused && slot.planned < own_share(slot)) {
      fair_.note_unserved(slot.lane);
      unserved[number(slot.priority)] = true;
    }
  }
  for (uint32_t lane = 0; lane < work_.size(); ++lane) {
    if (next_waiting(lane) == kNone) continue;
    fair_.note_unserved(lane);
    unserved[number(fair_.class_of(lane))] = true;
  }
  fair_.end_step();
  const uint64_t total = cost[0] + cost[1] + cost[2];
  const int64_t credit_max = int64_t{kCreditSteps} * config_.step_tokens;
  for (size_t priority = 1; priority < kPriorityClasses; ++priority) {
    int64_t& credit = credit_[priority];
    const auto kept = static_cast<int64_t>(total * config_.share_percent[priority] / 100);
    // What it was served while nobody else wanted it is no debt: at most one grant is.
    credit = unserved[priority]
                 ? std::clamp(credit + kept - static_cast<int64_t>(cost[priority]),
                              -int64_t{config_.step_tokens}, credit_max)
                 : 0;
  }
}

// A lane counts with all that wait in it: a client that does not read has all its requests paused.
void Scheduler::count_waits() {
  uint32_t waiting = 0;
  for (uint32_t lane = 0; lane < work_.size(); ++lane) {
    if (next_waiting(lane) == kNoSlot) continue;
    waiting += static_cast<uint32_t>(work_[lane].waiting.size());
  }
  waiting -= std::min(waiting, waits_.for_prefix);
  (pages_short_ ? waits_.for_pages : waits_.for_turn) += waiting;
  for (uint32_t index : running_.slots()) {
    const RequestSlot& slot = slots_[index];
    if (slot.loads()) {
      // What was here once is on its way back: that is what too few pages cost.
      if (!slot.paused) ++waits_.for_pages;
    } else if (slot.planned > 0) {
      ++(slot.planned_again < slot.planned ? waits_.computing : waits_.recomputing);
    } else if (!slot.paused) {
      ++(slot.short_of_pages ? waits_.for_pages : waits_.for_turn);
    }
  }
}

}  // namespace inferd::scheduler
