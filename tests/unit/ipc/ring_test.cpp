// Rings between two threads and between two processes, and the sleep protocol.
#include "ipc/ring.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "ipc/doorbell.h"

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

// Waits for the bell; false if it did not ring for ten seconds, which is a lost wake-up.
bool wait_for_bell(int fd) {
  pollfd poller = {fd, POLLIN, 0};
  return poll(&poller, 1, 10'000) == 1;
}

// One side of a ping-pong: waits for a slot in `in`, answers with one in `out`, `rounds` times.
struct Side {
  RingConsumer in;
  Sleeper sleeper;
  int in_bell;
  RingProducer out;
  Waker waker;
  int out_bell;
  uint64_t rescues = 0;
  uint64_t parks = 0;

  void send() {
    const uint64_t word = 1;
    while (out.free_slots(1) < 1) std::this_thread::yield();
    out.begin(1);
    out.append(&word, sizeof(word));
    out.finish();
    out.publish();
    if (waker.should_ring()) ring_doorbell(out_bell);
  }
  // Sleeps whenever the ring is empty: no spinning, so that each round parks if it can.
  void receive() {
    while (in.available() == 0) {
      sleeper.arm();
      if (in.available() == 0) {
        ++parks;
        if (!wait_for_bell(in_bell)) ++rescues;
        clear_doorbell(in_bell);
      }
      sleeper.disarm();
    }
    in.skip(1);
    in.publish();
  }
};

struct PingPong {
  std::unique_ptr<SharedRing, Unmap> there = make_ring();
  std::unique_ptr<SharedRing, Unmap> back = make_ring();
  Doorbell there_bell = std::move(create_doorbell()).value();
  Doorbell back_bell = std::move(create_doorbell()).value();

  Side pinger() {
    return {consumer_of(*back),  Sleeper(&back->wake), back_bell.read_end.get(),
            producer_of(*there), Waker(&there->wake),  there_bell.write_end.get()};
  }
  Side ponger() {
    return {consumer_of(*there), Sleeper(&there->wake), there_bell.read_end.get(),
            producer_of(*back),  Waker(&back->wake),    back_bell.write_end.get()};
  }
};

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kRounds = 20'000;
#else
constexpr uint64_t kRounds = 250'000;
#endif

TEST(Sleep, NoWakeUpIsLostBetweenThreads) {
  PingPong pair;
  Side ping = pair.pinger();
  Side pong = pair.ponger();
  std::thread other([&] {
    for (uint64_t i = 0; i < kRounds / 4; ++i) {
      pong.receive();
      pong.send();
    }
  });
  for (uint64_t i = 0; i < kRounds / 4; ++i) {
    ping.send();
    ping.receive();
  }
  other.join();
  EXPECT_EQ(ping.rescues + pong.rescues, 0u);
  EXPECT_GT(ping.parks + pong.parks, 0u);
}

// Bursts of random length keep the two processes out of step, so that arming, publishing and
// ringing meet in every order.
TEST(Sleep, NoWakeUpIsLostBetweenProcesses) {
  PingPong pair;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Side pong = pair.ponger();
    for (uint64_t i = 0; i < kRounds; ++i) {
      pong.receive();
      pong.send();
    }
    _exit(pong.rescues == 0 ? 0 : 1);
  }
  Side ping = pair.pinger();
  Prng random(2);
  for (uint64_t sent = 0; sent < kRounds;) {
    const uint64_t burst = std::min(kRounds - sent, 1 + random.below(3));
    for (uint64_t i = 0; i < burst; ++i) ping.send();
    for (uint64_t i = 0; i < burst; ++i) ping.receive();
    sent += burst;
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(ping.rescues, 0u);
  EXPECT_GT(ping.parks, 0u);
}

TEST(Sleep, OneSleepIsRungForOnce) {
  IndexLine wake = {};
  Sleeper sleeper(&wake);
  Waker waker(&wake);
  EXPECT_FALSE(waker.should_ring()) << "awake from the start";
  sleeper.arm();
  EXPECT_TRUE(waker.should_ring());
  EXPECT_FALSE(waker.should_ring());
  sleeper.disarm();
  EXPECT_FALSE(waker.should_ring());
  sleeper.arm();
  EXPECT_TRUE(waker.should_ring());
  sleeper.arm();  // an event loop arms again without having been awake
  EXPECT_TRUE(waker.should_ring());
}

TEST(Sleep, AMillionBellsThatNobodyHearsAreOne) {
  Doorbell bell = std::move(create_doorbell()).value();
  for (int i = 0; i < 1'000'000; ++i) ring_doorbell(bell.write_end.get());
  EXPECT_TRUE(clear_doorbell(bell.read_end.get()));
  EXPECT_FALSE(clear_doorbell(bell.read_end.get()));
  ring_doorbell(bell.write_end.get());
  EXPECT_TRUE(clear_doorbell(bell.read_end.get()));
}

TEST(Sleep, RingingForADeadListenerRaisesNothing) {
  Doorbell bell = std::move(create_doorbell()).value();
  const UniqueFd keeper = std::move(reopen_read_end(bell.read_end.get())).value();
  bell.read_end.reset();
  ring_doorbell(bell.write_end.get());  // SIGPIPE would end the program
  EXPECT_TRUE(clear_doorbell(keeper.get()));
}

}  // namespace
}  // namespace inferd::ipc
