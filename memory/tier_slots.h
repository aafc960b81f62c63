// Slots of the next tier: which are in use, by which node of the prefix index, and which goes first.
// Owner: PrefixIndex. Engine thread only. Must not know pages, tokens, or where the bytes are.
//
// All metadata is a view over one span of bytes: indices, no pointers. Slots that were never used are
// not written, so that a large tier costs nothing until then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "memory/layout.h"
#include "memory/page_tier.h"

namespace inferd::memory {

struct TierHeader {
  uint32_t slots = 0;
  uint32_t used = 0;
  uint32_t touched = 0;            // slots before this one were used once
  uint32_t free_first = kNoIndex;  // of those, the free ones
  uint32_t newest = kNoIndex;
  uint32_t oldest = kNoIndex;
};

struct SlotRecord {
  uint32_t node = kNoIndex;  // kNoIndex: free
  uint32_t generation = 0;   // raised by each use
  uint32_t newer = kNoIndex;
  uint32_t older = kNoIndex;  // of a free one: the next free one
};

class TierSlots {
 public:
  static size_t layout_bytes(uint32_t slots);

  TierSlots() = default;
  // A view of `region` (aligned, of layout_bytes()), which outlives it; with `format` an empty one is made.
  TierSlots(std::span<std::byte> region, uint32_t slots, bool format);

  uint32_t size() const { return header_->slots; }
  uint32_t used() const { return header_->used; }
  bool is_used(uint32_t slot) const {
    return slot < header_->touched && records_[slot].node != kNoIndex;
  }
  bool full() const { return header_->used == header_->slots; }

  // A free slot for the node, as the newest. There must be one.
  SlotRef acquire(uint32_t node);
  void release(uint32_t slot);
  // Makes it the newest.
  void touch(uint32_t slot);

  SlotRef ref(uint32_t slot) const { return {slot, record(slot).generation}; }
  // The node that has it; kNoIndex if the content is no longer there.
  uint32_t node_of(SlotRef slot) const;
  // kNoIndex at the end.
  uint32_t oldest() const { return header_->oldest; }
  uint32_t newer(uint32_t slot) const { return record(slot).newer; }
  uint32_t older(uint32_t slot) const { return record(slot).older; }

  // Lists and counts agree. The first violation in words, kInternal.
  Result<void> verify() const;

 private:
  SlotRecord& record(uint32_t slot) const;
  void link_newest(uint32_t slot);
  void unlink(uint32_t slot);

  TierHeader* header_ = nullptr;    // borrowed, in the region
  std::span<SlotRecord> records_;  // [slots]
};

}  // namespace inferd::memory
