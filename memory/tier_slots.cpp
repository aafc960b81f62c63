#include "memory/tier_slots.h"

#include <new>
#include <string>

#include "base/check.h"

namespace inferd::memory {

namespace {

struct SlotsLayout {
  size_t records_offset = 0;
  size_t bytes = 0;
};

SlotsLayout layout_of(uint32_t slots) {
  LayoutBuilder builder;
  SlotsLayout layout;
  builder.place<TierHeader>(1);
  layout.records_offset = builder.place<SlotRecord>(slots);
  layout.bytes = builder.bytes();
  return layout;
}

Error violation(const std::string& message) {
  return Error(ErrorCode::kInternal, "slots of the next tier: " + message);
}

}  // namespace

size_t TierSlots::layout_bytes(uint32_t slots) { return layout_of(slots).bytes; }

TierSlots::TierSlots(std::span<std::byte> region, uint32_t slots, bool format) {
  INFERD_CHECK(slots < kNoIndex && region.size() >= layout_bytes(slots));
  header_ = array_at<TierHeader>(region, 0, 1).data();
  if (format) {
    header_ = new (header_) TierHeader;
    header_->slots = slots;
  }
  INFERD_CHECK(header_->slots == slots);
  records_ = array_at<SlotRecord>(region, layout_of(slots).records_offset, slots);
}

SlotRecord& TierSlots::record(uint32_t slot) const {
  INFERD_CHECK(slot < header_->touched);
  return records_[slot];
}

SlotRef TierSlots::acquire(uint32_t node) {
  INFERD_CHECK(!full() && node != kNoIndex);
  uint32_t slot = header_->free_first;
  if (slot != kNoIndex) {
    header_->free_first = records_[slot].older;
  } else {
    slot = header_->touched++;
    records_[slot] = SlotRecord{};
  }
  SlotRecord& taken = record(slot);
  INFERD_CHECK(taken.node == kNoIndex);
  taken.node = node;
  ++taken.generation;
  link_newest(slot);
  ++header_->used;
  return {slot, taken.generation};
}

void TierSlots::release(uint32_t slot) {
  INFERD_CHECK(record(slot).node != kNoIndex && header_->used > 0);
  unlink(slot);
  record(slot).node = kNoIndex;
  record(slot).older = header_->free_first;
  header_->free_first = slot;
  --header_->used;
}

void TierSlots::touch(uint32_t slot) {
  INFERD_CHECK(record(slot).node != kNoIndex);
  unlink(slot);
  link_newest(slot);
}

uint32_t TierSlots::node_of(SlotRef slot) const {
  if (slot.slot >= header_->touched) return kNoIndex;
  const SlotRecord& found = records_[slot.slot];
  return found.generation == slot.generation ? found.node : kNoIndex;
}

void TierSlots::link_newest(uint32_t slot) {
  SlotRecord& linked = record(slot);
  linked.newer = kNoIndex;
  linked.older = header_->newest;
  if (header_->newest != kNoIndex) record(header_->newest).newer = slot;
  header_->newest = slot;
  if (header_->oldest == kNoIndex) header_->oldest = slot;
}

void TierSlots::unlink(uint32_t slot) {
  const SlotRecord& unlinked = record(slot);
  if (unlinked.newer != kNoIndex) record(unlinked.newer).older = unlinked.older;
  if (unlinked.older != kNoIndex) record(unlinked.older).newer = unlinked.newer;
  if (header_->newest == slot) header_->newest = unlinked.older;
  if (header_->oldest == slot) header_->oldest = unlinked.newer;
}

Result<void> TierSlots::verify() const {
  uint32_t used = 0;
  uint32_t older = kNoIndex;
  for (uint32_t slot = header_->oldest; slot != kNoIndex; slot = record(slot).newer) {
    if (record(slot).node == kNoIndex || record(slot).older != older || ++used > header_->used) {
      return violation("the list by age is broken at slot " + std::to_string(slot));
    }
    older = slot;
  }
  if (used != header_->used || header_->newest != older) {
    return violation("the header counts " + std::to_string(header_->used) + " in use, listed are " +
                     std::to_string(used));
  }
  uint32_t free = 0;
  for (uint32_t slot = header_->free_first; slot != kNoIndex; slot = record(slot).older) {
    if (record(slot).node != kNoIndex || ++free > header_->touched) {
      return violation("the list of free ones is broken at slot " + std::to_string(slot));
    }
  }
  if (used + free != header_->touched || header_->touched > header_->slots) {
    return violation("of " + std::to_string(header_->touched) + " slots, " + std::to_string(used) +
                     " are in use and " + std::to_string(free) + " free");
  }
  return {};
}

}  // namespace inferd::memory
