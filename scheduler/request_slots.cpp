#include "scheduler/request_slots.h"

#include <algorithm>
#include <functional>

#include "base/check.h"

namespace inferd::scheduler {

RequestSlots::RequestSlots(uint32_t count) : slots_(count) {
  INFERD_CHECK(count > 0);
  free_.reserve(count);
  // Ascending is a heap with the lowest first.
  for (uint32_t slot = 0; slot < count; ++slot) free_.push_back(slot);
}

uint32_t RequestSlots::acquire() {
  INFERD_CHECK(!full());
  std::pop_heap(free_.begin(), free_.end(), std::greater<>());
  const uint32_t slot = free_.back();
  free_.pop_back();
  INFERD_CHECK(slots_[slot].sequence.value == 0);
  return slot;
}

void RequestSlots::release(uint32_t slot) {
  INFERD_CHECK(slot < slots_.size() && free_.size() < slots_.size());
  INFERD_CHECK(!slots_[slot].table.is_open());
  slots_[slot] = RequestSlot{};
  free_.push_back(slot);
  std::push_heap(free_.begin(), free_.end(), std::greater<>());
}

RequestSlot& RequestSlots::operator[](uint32_t slot) {
  INFERD_DCHECK(slot < slots_.size());
  return slots_[slot];
}

const RequestSlot& RequestSlots::operator[](uint32_t slot) const {
  INFERD_DCHECK(slot < slots_.size());
  return slots_[slot];
}

void SlotList::insert(const RequestSlots& slots, uint32_t slot) {
  INFERD_CHECK(slots_.size() < slots_.capacity());
  const auto place = std::upper_bound(
      slots_.begin(), slots_.end(), slot,
      [&slots](uint32_t a, uint32_t b) { return slots[a].arrival < slots[b].arrival; });
  slots_.insert(place, slot);
}

void SlotList::erase(uint32_t slot) {
  const auto place = std::find(slots_.begin(), slots_.end(), slot);
  INFERD_CHECK(place != slots_.end());
  slots_.erase(place);
}

}  // namespace inferd::scheduler
