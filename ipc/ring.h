// Single-producer single-consumer ring of 64-byte slots, and the protocol by which its reader
// sleeps. Owner: ipc. RingProducer belongs to the one thread that writes, RingConsumer to the one
// that reads; both sides live in different processes, and neither trusts the other's index. Must
// not know what a record means.
//
// Indices are free-running counts of slots, masked on use. Each side keeps its own index privately
// (shared memory only ever receives copies of it) and a private copy of the other's, which it looks
// up again only when the ring seems full or empty. An index of the other side that is more than the
// ring is long away is kRingBroken: the other side broke the protocol, and nothing more is read.
//
// Sleep protocol. The reader owns a wake word (IndexLine): even means awake, odd means asleep, and
// each time it falls asleep it takes a new odd value. The writer remembers the last odd value that
// it rang for, and so rings once per sleep. tail and wake word are accessed seq_cst:
//
//   writer                                   reader
//   W1  write slots (relaxed)                R1  wake = new odd value (seq_cst)
//   W2  tail = new value (seq_cst *)         R2  read tail (seq_cst); not empty: wake = even, go on
//   W3  read wake (seq_cst)                  R3  sleep until the doorbell rings
//   W4  odd and not rung for yet: ring       R4  empty the doorbell; wake = even; read the ring
//
// No wake-up is lost:
//   1. W2, W3, R1, R2 are in one total order, which respects program order on each side.
//   2. If R2 comes after W2 in that order, R2 sees the new tail, and the reader does not sleep.
//   3. Otherwise R2 is before W2, so R1 < R2 < W2 < W3, and W3 sees the odd value of R1 or a later
//      value of the wake word. A later value means the reader has woken since, and it reads the
//      ring after that (R4) or goes through R1 and R2 again, where this argument starts anew.
//   4. W3 saw R1's value: the writer rings, or had rung for that same value before. In the latter
//      case that ring of the bell is either still unread, and the reader wakes by it; or was read
//      in R4, and then the wake word is left behind by R4 or replaced by the next R1, whose R2
//      follows.
//   5. In R4 the bell is emptied before the ring is read, and W4 follows W2, so emptying never eats
//      a bell whose record the reader then fails to see. (SPIN tries it all: tests/model/.) The daemon does
//      not touch its bells (doorbell.h): it waits for edges, and epoll_wait() empties the list of those.
//
// * A writer of several rings may show all their tails by release stores, with one seq_cst fence
//   between these and all its W3s (RingProducer::show()): it then waits once for all the lines that
//   it takes from the readers' caches. The argument holds with the fence F in the place of W2:
//   1. R2 that does not see W2 is coherence-ordered before W2, which happens before F: R2 < F.
//   2. F happens before W3. If W3 saw an older value than R1's, it would be coherence-ordered
//      before R1, so F < R1; with R1 < R2 < F that is a cycle. So W3 sees R1's value or a later
//      one.
//   ([atomics.order] of C++20. ThreadSanitizer knows no fences: under it the stores are seq_cst.)
#pragma once

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "ipc/wire.h"

namespace inferd::ipc {

#if defined(__SANITIZE_THREAD__)
#define INFERD_RING_FENCES 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define INFERD_RING_FENCES 0
#endif
#endif
#ifndef INFERD_RING_FENCES
#define INFERD_RING_FENCES 1
#endif

// Returned by available() and free_slots() when the other side's index is impossible.
inline constexpr uint64_t kRingBroken = UINT64_MAX;

class RingProducer {
 public:
  RingProducer() = default;
  // `slots` [count], count a power of two; `tail` is ours to write, `head` the reader's. Both
  // regions outlive this object. `start`: where this ring's writer left off (0 for a new ring).
  RingProducer(Slot* slots, uint64_t count, IndexLine* tail, const IndexLine* head,
               uint64_t start = 0)
      : slots_(slots),
        count_(count),
        tail_line_(tail),
        head_line_(head),
        tail_(start),
        head_(start) {
    INFERD_CHECK(count >= kRingSlotsMin && std::has_single_bit(count));
  }

  // Slots that can be written now; looks the reader's index up only if fewer than `wanted` are
  // known to be free. kRingBroken if that index is impossible.
  uint64_t free_slots(uint64_t wanted) {
    if (count_ - (tail_ - head_) < wanted) {
      const uint64_t head = head_line_->value.load(std::memory_order_seq_cst);
      if (tail_ - head > count_) return kRingBroken;
      // A head that moves back shows less room than there is: it hurts only the reader itself.
      head_ = head;
    }
    return count_ - (tail_ - head_);
  }

  // Starts a record of `slots` slots, which free_slots() said are free. Then append() in order; the
  // record is seen by the reader after finish() and publish().
  void begin(uint32_t slots) {
    INFERD_DCHECK(count_ - (tail_ - head_) >= slots);
    record_slots_ = slots;
    filled_bytes_ = 0;
  }
  void append(const void* bytes, size_t count) {
    INFERD_DCHECK(filled_bytes_ + count <= size_t{record_slots_} * kSlotBytes);
    const auto* from = static_cast<const std::byte*>(bytes);
    while (count > 0) {
      const size_t used = filled_bytes_ % kSlotBytes;
      const size_t piece = std::min(count, kSlotBytes - used);
      std::memcpy(line_ + used, from, piece);
      from += piece;
      count -= piece;
      filled_bytes_ += piece;
      if (used + piece == kSlotBytes) store_line(filled_bytes_ / kSlotBytes - 1);
    }
  }
  // Completes the record (zeros to the end of its last slot) and counts its slots.
  void finish() {
    const size_t used = filled_bytes_ % kSlotBytes;
    if (used != 0) {
      std::memset(line_ + used, 0, kSlotBytes - used);
      store_line(filled_bytes_ / kSlotBytes);
      filled_bytes_ += kSlotBytes - used;
    }
    INFERD_DCHECK(filled_bytes_ == size_t{record_slots_} * kSlotBytes);
    tail_ += record_slots_;
  }

  // Makes all finished records visible to the reader (W2).
  void publish() { tail_line_->value.store(tail_, std::memory_order_seq_cst); }

  // The same, for several rings: show() each, then order_shown() once, then read the wake words.
  void show() {
    tail_line_->value.store(
        tail_, INFERD_RING_FENCES != 0 ? std::memory_order_release : std::memory_order_seq_cst);
  }
  static void order_shown() {
#if INFERD_RING_FENCES
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  }

  uint64_t tail() const { return tail_; }

 private:
  void store_line(size_t slot_of_record) {
    Slot& slot = slots_[(tail_ + slot_of_record) & (count_ - 1)];
    for (size_t i = 0; i < kSlotBytes / 8; ++i) {
      uint64_t word;
      std::memcpy(&word, line_ + i * 8, 8);
      slot.words[i].store(word, std::memory_order_relaxed);
    }
  }

  Slot* slots_ = nullptr;
  uint64_t count_ = 0;
  IndexLine* tail_line_ = nullptr;
  const IndexLine* head_line_ = nullptr;
  uint64_t tail_ = 0;
  uint64_t head_ = 0;  // the reader's index as last seen
  uint32_t record_slots_ = 0;
  size_t filled_bytes_ = 0;
  alignas(8) std::byte line_[kSlotBytes] = {};
};

class RingConsumer {
 public:
  RingConsumer() = default;
  // As RingProducer, with the roles exchanged: `head` is ours to write, `tail` the writer's.
  RingConsumer(const Slot* slots, uint64_t count, IndexLine* head, const IndexLine* tail,
               uint64_t start = 0)
      : slots_(slots),
        count_(count),
        head_line_(head),
        tail_line_(tail),
        head_(start),
        tail_(start) {
    INFERD_CHECK(count >= kRingSlotsMin && std::has_single_bit(count));
  }

  // Slots that can be read; looks the writer's index up only if fewer than `wanted` are known.
  uint64_t available(uint64_t wanted = 1) {
    if (tail_ - head_ < wanted) {
      const uint64_t tail = tail_line_->value.load(std::memory_order_seq_cst);
      if (tail - head_ > count_) return kRingBroken;
      tail_ = tail;
    }
    return tail_ - head_;
  }

  // Copies slot `index` of those available to `out` [64]. Each slot is to be copied once, and the
  // copy validated: the memory may change between two looks.
  void copy_slot(uint64_t index, std::byte* out) const {
    INFERD_DCHECK(index < tail_ - head_);
    const Slot& slot = slots_[(head_ + index) & (count_ - 1)];
    for (size_t i = 0; i < kSlotBytes / 8; ++i) {
      const uint64_t word = slot.words[i].load(std::memory_order_relaxed);
      std::memcpy(out + i * 8, &word, 8);
    }
  }

  // Leaves the first `slots` slots behind; the writer sees it after publish().
  void skip(uint64_t slots) {
    INFERD_DCHECK(slots <= tail_ - head_);
    head_ += slots;
  }
  void publish() { head_line_->value.store(head_, std::memory_order_seq_cst); }

  uint64_t head() const { return head_; }

 private:
  const Slot* slots_ = nullptr;
  uint64_t count_ = 0;
  IndexLine* head_line_ = nullptr;
  const IndexLine* tail_line_ = nullptr;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;  // the writer's index as last seen
};

// Reader's side of the wake word. A 64-bit word never comes round to an old value.
class Sleeper {
 public:
  Sleeper() = default;
  explicit Sleeper(IndexLine* wake) : wake_(wake) {}

  // R1. The caller then rechecks the ring (R2), and sleeps only if it is still empty.
  void arm() {
    value_ += (value_ & 1) != 0 ? 2 : 1;
    wake_->value.store(value_, std::memory_order_seq_cst);
  }
  // R2 or R4: awake again.
  void disarm() {
    if ((value_ & 1) == 0) return;
    ++value_;
    wake_->value.store(value_, std::memory_order_seq_cst);
  }
  bool armed() const { return (value_ & 1) != 0; }

 private:
  IndexLine* wake_ = nullptr;
  uint64_t value_ = 0;
};

// Writer's side of the wake word. The word may hold anything; at worst a bell is rung for nothing.
class Waker {
 public:
  Waker() = default;
  explicit Waker(const IndexLine* wake) : wake_(wake) {}

  // W3: whether the bell is to be rung (W4). True once per sleep.
  bool should_ring() {
    const uint64_t value = wake_->value.load(std::memory_order_seq_cst);
    if ((value & 1) == 0 || value == rung_) return false;
    rung_ = value;
    return true;
  }

 private:
  const IndexLine* wake_ = nullptr;
  uint64_t rung_ = 0;
};

}  // namespace inferd::ipc
