// Where the scheduler keeps its requests: a fixed array of slots, and lists of them ordered by age.
// Owner: Scheduler; private to scheduler/. Engine thread only.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "memory/page_table.h"
#include "scheduler/request.h"

namespace inferd::scheduler {

struct RequestSlot {
  SequenceId sequence;  // 0: the slot is free
  SessionId session;
  UserId user;
  CacheDomain domain;  // 0: no prefix cache
  uint64_t arrival = 0;
  SequenceState state = SequenceState::kWaiting;
  bool paused = false;
  bool cancelled = false;  // while its step is in flight; released by commit()
  bool score = false;
  bool short_of_pages = false;  // in the step that was planned last
  PriorityClass priority = PriorityClass::kInteractive;
  // The class that its claim on pages is of: its own, or the first once its class was starved for long.
  PriorityClass rank = PriorityClass::kInteractive;
  uint32_t weight = kWeightDefault;
  int32_t nice = 0;
  int64_t deadline_ns = 0;  // 0: none, or it was admitted
  SequenceId parent;        // whom it was forked from; 0: nobody
  uint32_t lane = 0;         // its account in the fair queue
  uint32_t charged = 0;      // positions that were charged: computing them again is free
  uint64_t served_turn = 0;  // number of its last turn, of all turns that were given
  uint32_t lane_next = 0;    // scratch of a step: the next one of its lane
  uint32_t chunk_tokens_max = 0;
  uint32_t limit = 0;  // tokens at which it ends
  bool limit_is_context = false;
  uint32_t scored = 0;  // positions whose logits a score request was given
  // Positions whose pages hold results; the page table covers these and `planned`.
  uint32_t computed = 0;
  uint32_t planned = 0;  // tokens of the step in flight
  uint32_t planned_again = 0;  // of those, the ones that it had before it was preempted
  // Up to here, a multiple of 16, its positions are in the next tier and are loaded instead of computed.
  uint32_t stored_end = 0;
  bool fetches = false;  // what is planned is loaded
  uint32_t indexed = 0;  // pages that were offered to the prefix index
  int64_t waiting_since_ns = 0;
  std::vector<TokenId> tokens;  // prompt and generated; capacity `limit`, so that it never grows
  memory::PageTable table;      // open exactly while running
  SequenceStats stats;
  // Last, so that what every step looks at lies together.
  uint32_t stop_count = 0;
  std::array<TokenId, kStopTokensMax> stop_tokens{};  // [stop_count]

  bool loads() const { return computed < stored_end; }
  uint32_t tokens_left() const { return static_cast<uint32_t>(tokens.size()) - computed; }
};

// A fixed number of slots; the lowest free one is handed out first.
class RequestSlots {
 public:
  explicit RequestSlots(uint32_t count);

  uint32_t size() const { return static_cast<uint32_t>(slots_.size()); }
  bool full() const { return free_.empty(); }
  // Acquire needs !full(). A released slot is as new; its page table must be closed.
  uint32_t acquire();
  void release(uint32_t slot);

  RequestSlot& operator[](uint32_t slot);
  const RequestSlot& operator[](uint32_t slot) const;

 private:
  std::vector<RequestSlot> slots_;
  std::vector<uint32_t> free_;  // a heap, lowest first
};

// Slots ordered by arrival. Never allocates beyond the capacity it was made with. O(n) to change.
class SlotList {
 public:
  explicit SlotList(uint32_t capacity) { slots_.reserve(capacity); }

  void insert(const RequestSlots& slots, uint32_t slot);
  // The slot must be in the list.
  void erase(uint32_t slot);

  bool empty() const { return slots_.empty(); }
  uint32_t size() const { return static_cast<uint32_t>(slots_.size()); }
  uint32_t operator[](uint32_t index) const { return slots_[index]; }
  std::span<const uint32_t> slots() const { return slots_; }

 private:
  std::vector<uint32_t> slots_;
};

}  // namespace inferd::scheduler
