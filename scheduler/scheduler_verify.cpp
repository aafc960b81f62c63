// Scheduler::verify(): every invariant of the scheduler, walked, and that it agrees with the
// memory.
#include <string>
#include <vector>

#include "scheduler/scheduler.h"

namespace inferd::scheduler {

namespace {

Error violation(std::string message) {
  return Error(ErrorCode::kInternal, "scheduler: " + std::move(message));
}

std::string sequence_text(const RequestSlot& slot) {
  return "sequence " + std::to_string(slot.sequence.value);
}

}  // namespace

Result<void> Scheduler::verify() const {
  INFERD_TRY(memory_.verify());
  INFERD_TRY(verify_lists());
  INFERD_TRY(verify_lanes());
  for (uint32_t index : waiting_.slots()) INFERD_TRY(verify_waiting(slots_[index]));
  for (uint32_t index : running_.slots()) INFERD_TRY(verify_running(slots_[index]));
  if (reservation_.count().value != 0 || memory_.pool().counts().reserved.value != 0) {
    return violation("pages are still reserved outside of plan()");
  }
  if (memory_.sequences().open_count() != running_.size()) {
    return violation(std::to_string(running_.size()) + " sequences run, but " +
                     std::to_string(memory_.sequences().open_count()) + " page tables are open");
  }
  return {};
}

// Every slot in use is in one list, ordered by age, and found by its id.
Result<void> Scheduler::verify_lists() const {
  std::vector<bool> seen(slots_.size(), false);
  uint32_t cancelled = 0;
  for (const SlotList* list : {&waiting_, &running_}) {
    uint64_t arrival = 0;
    for (uint32_t index : list->slots()) {
      const RequestSlot& slot = slots_[index];
      if (slot.sequence.value == 0) return violation("a free slot is in a list");
      if (seen[index]) return violation(sequence_text(slot) + " is listed twice");
      if (slot.arrival <= arrival) return violation(sequence_text(slot) + " is out of order");
      const auto found = slot_of_.find(slot.sequence);
      if (slot.cancelled == (found != slot_of_.end() && found->second == index)) {
        return violation(sequence_text(slot) + " is not found by its id");
      }
      seen[index] = true;
      arrival = slot.arrival;
      if (slot.cancelled) ++cancelled;
    }
  }
  for (uint32_t index = 0; index < slots_.size(); ++index) {
    if (slots_[index].sequence.value != 0 && !seen[index]) {
      return violation(sequence_text(slots_[index]) + " is in no list");
    }
  }
  const uint64_t present = waiting_.size() + running_.size() - cancelled;
  if (slot_of_.size() != present) return violation("the index of ids has strangers");
  if (totals_.submitted != totals_.finished + totals_.cancelled + present) {
    return violation(std::to_string(totals_.submitted) + " requests came, but " +
                     std::to_string(totals_.finished) + " finished, " +
                     std::to_string(totals_.cancelled) + " were cancelled, " +
                     std::to_string(present) + " are here");
  }
  return {};
}

// Every request is a member of its lane, and every one that waits is in its lane's list, once and in order.
Result<void> Scheduler::verify_lanes() const {
  INFERD_TRY(fair_.verify());
  std::vector<uint32_t> members(fair_.lane_count(), 0);
  for (const SlotList* list : {&waiting_, &running_}) {
    for (uint32_t index : list->slots()) {
      const RequestSlot& slot = slots_[index];
      if (slot.lane >= members.size() || fair_.lane(slot.lane).key != slot.session.value ||
          fair_.user_of(slot.lane).key != slot.user.value ||
          fair_.class_of(slot.lane) != slot.priority) {
        return violation(sequence_text(slot) + " is charged to another's account");
      }
      ++members[slot.lane];
    }
  }
  size_t listed = 0;
  for (uint32_t lane = 0; lane < members.size(); ++lane) {
    if (fair_.lane(lane).members != members[lane]) {
      return violation("session " + std::to_string(fair_.lane(lane).key) + " counts " +
                       std::to_string(fair_.lane(lane).members) + " requests, but has " +
                       std::to_string(members[lane]));
    }
    if (lane >= work_.size()) continue;
    const RequestSlot* before = nullptr;
    for (uint32_t index : work_[lane].waiting) {
      const RequestSlot& slot = slots_[index];
      if (slot.lane != lane || slot.state != SequenceState::kWaiting ||
          (before != nullptr && (before->nice > slot.nice ||
                                 (before->nice == slot.nice && before->arrival >= slot.arrival)))) {
        return violation(sequence_text(slot) + " is in the wrong place of its session's queue");
      }
      before = &slot;
      ++listed;
    }
  }
  if (listed != waiting_.size()) return violation("a waiting request is in no session's queue");
  return {};
}

Result<void> Scheduler::verify_waiting(const RequestSlot& slot) const {
  INFERD_TRY(verify_tokens(slot));
  if (slot.state != SequenceState::kWaiting || slot.table.is_open()) {
    return violation(sequence_text(slot) + " waits, but holds a page table");
  }
  if (slot.computed != 0 || slot.planned != 0 || slot.stored_end != 0 || slot.fetches ||
      slot.cancelled) {
    return violation(sequence_text(slot) + " waits, but computes");
  }
  return {};
}

Result<void> Scheduler::verify_running(const RequestSlot& slot) const {
  INFERD_TRY(verify_tokens(slot));
  if (slot.state == SequenceState::kWaiting || !slot.table.is_open()) {
    return violation(sequence_text(slot) + " runs without a page table");
  }
  if (slot.table.id() != slot.sequence || slot.table.user() != slot.user) {
    return violation(sequence_text(slot) + " has the page table of sequence " +
                     std::to_string(slot.table.id().value));
  }
  if (slot.table.tokens() != slot.computed + slot.planned) {
    return violation(sequence_text(slot) + " computed " + std::to_string(slot.computed) +
                     " and plans " + std::to_string(slot.planned) +
                     " tokens, but its page table covers " + std::to_string(slot.table.tokens()));
  }
  if (slot.planned > slot.tokens_left() || slot.computed >= slot.tokens.size()) {
    return violation(sequence_text(slot) + " has nothing left to compute, but runs");
  }
  if (slot.stored_end % kPageTokens != 0 || slot.stored_end >= slot.tokens.size() ||
      (slot.fetches && slot.planned % kPageTokens != 0)) {
    return violation(sequence_text(slot) + " loads beyond what it knows");
  }
  if ((slot.planned != 0 || slot.cancelled) && !in_flight_) {
    return violation(sequence_text(slot) + " is part of a step, but none is in flight");
  }
  return {};
}

// Its tokens are the prompt and what it generated, within its limit.
Result<void> Scheduler::verify_tokens(const RequestSlot& slot) const {
  const uint64_t known = uint64_t{slot.stats.prompt_tokens} + slot.stats.generated_tokens;
  if (slot.tokens.size() != known) {
    return violation(sequence_text(slot) + " has " + std::to_string(slot.tokens.size()) +
                     " tokens, but " + std::to_string(slot.stats.prompt_tokens) +
                     " in the prompt and " + std::to_string(slot.stats.generated_tokens) +
                     " generated");
  }
  if (known > slot.limit || slot.limit > limit_.tokens) {
    return violation(sequence_text(slot) + " has " + std::to_string(known) +
                     " tokens and a limit of " + std::to_string(slot.limit));
  }
  if (slot.scored > slot.stats.prompt_tokens || slot.stop_count > kStopTokensMax) {
    return violation(sequence_text(slot) + " has figures out of range");
  }
  return {};
}

}  // namespace inferd::scheduler
