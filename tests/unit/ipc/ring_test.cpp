// Rings between two threads and between two processes.
#include "ipc/ring.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <thread>
#include <vector>

#include "base/prng.h"

namespace inferd::ipc {
namespace {

// A ring in memory that a forked child shares.
struct SharedRing {
  IndexLine head;
  IndexLine tail;
  IndexLine wake;
  Slot slots[kRingSlotsMin];
};

struct Unmap {
  void operator()(SharedRing* ring) const { munmap(ring, sizeof(SharedRing)); }
};
std::unique_ptr<SharedRing, Unmap> make_ring() {
  void* memory =
      mmap(nullptr, sizeof(SharedRing), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(memory, MAP_FAILED);
  return std::unique_ptr<SharedRing, Unmap>(static_cast<SharedRing*>(memory));
}
RingProducer producer_of(SharedRing& r) { return {r.slots, kRingSlotsMin, &r.tail, &r.head}; }
RingConsumer consumer_of(SharedRing& r) { return {r.slots, kRingSlotsMin, &r.head, &r.tail}; }

// Record number `n` has 1 to 43 slots and a content that follows from n.
uint32_t slots_of(uint64_t n) { return 1 + static_cast<uint32_t>(Prng(n).below(kRecordSlotsMax)); }
void write_record(RingProducer& producer, uint64_t n) {
  const uint32_t slots = slots_of(n);
  Prng content(n * 31 + 1);
  producer.begin(slots);
  for (uint32_t i = 0; i < slots * 8; ++i) {
    const uint64_t word = content.next();
    producer.append(&word, sizeof(word));
  }
  producer.finish();
}
// Whether the next record in the ring, whose slots are available, is record `n`.
bool read_record(RingConsumer& consumer, uint64_t n) {
  Prng content(n * 31 + 1);
  alignas(8) std::byte slot[kSlotBytes];
  for (uint32_t i = 0; i < slots_of(n); ++i) {
    consumer.copy_slot(i, slot);
    for (uint32_t w = 0; w < 8; ++w) {
      uint64_t word;
      std::memcpy(&word, slot + w * 8, 8);
      if (word != content.next()) return false;
    }
  }
  consumer.skip(slots_of(n));
  consumer.publish();
  return true;
}

void produce(SharedRing& ring, uint64_t records) {
  RingProducer producer = producer_of(ring);
  for (uint64_t n = 0; n < records; ++n) {
    while (producer.free_slots(slots_of(n)) < slots_of(n)) std::this_thread::yield();
    write_record(producer, n);
    producer.publish();
  }
}
uint64_t consume(SharedRing& ring, uint64_t records) {
  RingConsumer consumer = consumer_of(ring);
  for (uint64_t n = 0; n < records; ++n) {
    while (consumer.available(slots_of(n)) < slots_of(n)) std::this_thread::yield();
    if (!read_record(consumer, n)) return n;
  }
  return records;
}

TEST(Ring, RecordsOfAnyLengthPassBetweenThreadsInOrderAndWhole) {
  constexpr uint64_t kRecords = 20'000;  // some 3,400 rounds of the ring
  const auto ring = make_ring();
  std::thread writer([&] { produce(*ring, kRecords); });
  EXPECT_EQ(consume(*ring, kRecords), kRecords);
  writer.join();
}

TEST(Ring, RecordsOfAnyLengthPassBetweenProcessesInOrderAndWhole) {
  constexpr uint64_t kRecords = 20'000;
  const auto ring = make_ring();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    produce(*ring, kRecords);
    _exit(0);
  }
  EXPECT_EQ(consume(*ring, kRecords), kRecords);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Ring, FullRingHasNoRoomUntilTheReaderPublishes) {
  const auto ring = make_ring();
  RingProducer producer = producer_of(*ring);
  RingConsumer consumer = consumer_of(*ring);
  const uint64_t word = 7;
  for (uint32_t i = 0; i < kRingSlotsMin; ++i) {
    ASSERT_GE(producer.free_slots(1), 1u);
    producer.begin(1);
    producer.append(&word, sizeof(word));
    producer.finish();
  }
  EXPECT_EQ(consumer.available(), 0u) << "nothing is seen before publish()";
  producer.publish();
  EXPECT_EQ(producer.free_slots(1), 0u);
  EXPECT_EQ(consumer.available(kRingSlotsMin), kRingSlotsMin);
  consumer.skip(3);
  EXPECT_EQ(producer.free_slots(1), 0u) << "the reader has not published";
  consumer.publish();
  EXPECT_EQ(producer.free_slots(1), 3u);
}

TEST(Ring, IndicesThatWrapAt64BitsAreNothingSpecial) {
  const auto ring = make_ring();
  const uint64_t start = UINT64_MAX - 5;
  ring->head.value = start;
  ring->tail.value = start;
  RingProducer producer(ring->slots, kRingSlotsMin, &ring->tail, &ring->head, start);
  RingConsumer consumer(ring->slots, kRingSlotsMin, &ring->head, &ring->tail, start);
  for (uint64_t n = 0; n < 50; ++n) {
    ASSERT_GE(producer.free_slots(slots_of(n)), slots_of(n));
    write_record(producer, n);
    producer.publish();
    ASSERT_GE(consumer.available(slots_of(n)), slots_of(n));
    ASSERT_TRUE(read_record(consumer, n));
  }
}

TEST(Ring, ImpossibleIndicesAreSeenAsBroken) {
  Prng random(1);
  for (int i = 0; i < 1000; ++i) {
    const auto ring = make_ring();
    RingProducer producer = producer_of(*ring);
    RingConsumer consumer = consumer_of(*ring);
    const uint64_t garbage = random.next();
    const bool possible = garbage <= kRingSlotsMin;
    ring->tail.value = garbage;
    EXPECT_EQ(consumer.available() == kRingBroken, !possible);
    ring->head.value = garbage;
    EXPECT_EQ(producer.free_slots(kRingSlotsMin + 1) == kRingBroken, garbage != 0);
  }
}

TEST(Ring, ReaderThatMovesItsIndexBackOnlyTakesRoomFromItself) {
  const auto ring = make_ring();
  RingProducer producer = producer_of(*ring);
  const uint64_t word = 7;
  for (int i = 0; i < 100; ++i) {
    ASSERT_GE(producer.free_slots(1), 1u);
    producer.begin(1);
    producer.append(&word, sizeof(word));
    producer.finish();
  }
  ring->head.value = 90;
  EXPECT_EQ(producer.free_slots(100), kRingSlotsMin - 10);
  ring->head.value = 10;
  EXPECT_EQ(producer.free_slots(kRingSlotsMin), kRingSlotsMin - 90);
  ring->head.value = 101;  // beyond what was written
  EXPECT_EQ(producer.free_slots(kRingSlotsMin), kRingBroken);
}

}  // namespace
}  // namespace inferd::ipc
