// The sleep protocol between threads and processes that meet in every stage of it, and the
// doorbell.
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>

#include "base/prng.h"
#include "ipc/doorbell.h"
#include "ipc/doorbell_batch.h"
#include "ipc/ring.h"

namespace inferd::ipc {
namespace {

using Clock = std::chrono::steady_clock;

// A lost wake-up ends a test after this long. No other wait is measured by it.
constexpr int kRescueMs = 20'000;

// Balls in play between two players. With two of them a player that waits for one knows nothing of
// when the other will throw it: it may come before the player lies down, while it does, or after.
constexpr uint64_t kBalls = 2;
constexpr uint64_t kBall = 1;
constexpr uint64_t kGameOver = 2;

// A player is busy between a catch and a throw, and looks out for a while before it lies down: each
// time for 1 to 2^power turns, every order of magnitude as likely. On one processor the other
// player only waits for it; on two, a few microseconds more let the players meet.
constexpr uint64_t kPowerOnOne = 6;
constexpr uint64_t kPowerOnTwo = 16;

struct Tally {
  uint64_t arms = 0;        // times it was about to sleep
  uint64_t last_looks = 0;  // of these, those in which its last look found something
  uint64_t parks = 0;       // of these, those in which it polled for the bell and woke by it
  uint64_t rescues = 0;     // of these, those in which no bell came: lost wake-ups
  uint64_t bells = 0;       // rung for the other player
};

// In memory that a forked child shares.
struct Lane {
  IndexLine head = {};
  IndexLine tail = {};
  IndexLine wake = {};
  Slot slots[kRingSlotsMin] = {};
};
struct Court {
  Lane there;
  Lane back;
  Tally tallies[2];
};
struct Unmap {
  void operator()(Court* court) const { munmap(court, sizeof(Court)); }
};
std::unique_ptr<Court, Unmap> make_court() {
  void* memory =
      mmap(nullptr, sizeof(Court), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(memory, MAP_FAILED);
  return std::unique_ptr<Court, Unmap>(new (memory) Court);
}

// One side: catches balls and throws each back. It sleeps whenever none comes.
class Player {
 public:
  Player(Lane& in, int in_bell, Lane& out, int out_bell, uint64_t seed, uint64_t power)
      : in_(in.slots, kRingSlotsMin, &in.head, &in.tail),
        sleeper_(&in.wake),
        in_bell_(in_bell),
        out_(out.slots, kRingSlotsMin, &out.tail, &out.head),
        waker_(&out.wake),
        out_bell_(out_bell),
        random_(seed),
        power_(power) {}

  // From now on it watches its bell and rings the other one as the daemon does.
  void be_daemon() {
    daemon_.emplace(UniqueFd(epoll_create1(EPOLL_CLOEXEC)), DoorbellBatch::create().value());
    epoll_event event = {};
    event.events = EPOLLIN | EPOLLET;
    EXPECT_EQ(epoll_ctl(daemon_->epoll.get(), EPOLL_CTL_ADD, in_bell_, &event), 0);
  }

  // Throws until it has parked so often itself or time is up, and has the other one stop then.
  Tally serve(uint64_t parks, Clock::time_point end) {
    for (uint64_t i = 0; i < kBalls; ++i) throw_ball(kBall);
    while (tally_.parks < parks && tally_.rescues == 0 && Clock::now() < end) {
      catch_ball();
      linger();
      throw_ball(kBall);
    }
    throw_ball(kGameOver);
    return tally_;
  }
  // Returns what is thrown to it until it is told that the game is over.
  Tally reply() {
    while (catch_ball() == kBall && tally_.rescues == 0) {
      linger();
      throw_ball(kBall);
    }
    return tally_;
  }

 private:
  void throw_ball(uint64_t ball) {
    ASSERT_GE(out_.free_slots(1), 1u);
    out_.begin(1);
    out_.append(&ball, sizeof(ball));
    out_.finish();
    out_.publish();
    if (waker_.should_ring()) {
      ring();
      ++tally_.bells;
    }
  }

  uint64_t catch_ball() {
    for (uint64_t left = some_turns(); left > 0 && in_.available() == 0; --left) {
    }
    while (in_.available() == 0 && tally_.rescues == 0) lie_down();
    alignas(8) std::byte slot[kSlotBytes];
    uint64_t ball = kGameOver;
    if (in_.available() == 0) return ball;
    in_.copy_slot(0, slot);
    std::memcpy(&ball, slot, sizeof(ball));
    in_.skip(1);
    in_.publish();
    return ball;
  }

  void lie_down() {
    sleeper_.arm();
    ++tally_.arms;
    if (in_.available() != 0) {
      ++tally_.last_looks;
    } else {
      if (sleep_on_bell()) {
        ++tally_.parks;
      } else {
        ++tally_.rescues;
      }
    }
    sleeper_.disarm();
  }

  // As the daemon does, or as a client does. False: nobody rang.
  bool sleep_on_bell() {
    if (daemon_) {
      epoll_event event;
      return epoll_wait(daemon_->epoll.get(), &event, 1, kRescueMs) == 1;
    }
    pollfd poller = {in_bell_, POLLIN, 0};
    const bool rang = poll(&poller, 1, kRescueMs) == 1;
    clear_doorbell(in_bell_);
    return rang;
  }
  void ring() {
    if (!daemon_) return ring_doorbell(out_bell_);
    daemon_->bells->add(out_bell_);
    daemon_->bells->ring();
  }

  void linger() {
    for (uint64_t left = some_turns(); left > 0; --left) asm volatile("" ::: "memory");
  }
  uint64_t some_turns() { return random_.below(uint64_t{1} << random_.below(power_ + 1)) + 1; }

  RingConsumer in_;
  Sleeper sleeper_;
  int in_bell_;
  RingProducer out_;
  Waker waker_;
  int out_bell_;
  Prng random_;
  uint64_t power_;
  Tally tally_;
  struct DaemonSide {
    DaemonSide(UniqueFd watched, std::unique_ptr<DoorbellBatch> rung)
        : epoll(std::move(watched)), bells(std::move(rung)) {}
    UniqueFd epoll;
    std::unique_ptr<DoorbellBatch> bells;
  };
  std::optional<DaemonSide> daemon_;
};

struct Game {
  explicit Game(uint64_t turns_power) : power(turns_power) {}

  uint64_t power;
  std::unique_ptr<Court, Unmap> court = make_court();
  UniqueFd there_bell = std::move(create_doorbell()).value();
  UniqueFd back_bell = std::move(create_doorbell()).value();

  // In the process that plays: a batch of bells is of one process.
  Player server() {
    Player player(court->back, back_bell.get(), court->there, there_bell.get(), 1, power);
    player.be_daemon();
    return player;
  }
  Player receiver() {
    return Player(court->there, there_bell.get(), court->back, back_bell.get(), 2, power);
  }

  void expect_no_lost_wake_up() const {
    const Tally& a = court->tallies[0];
    const Tally& b = court->tallies[1];
    EXPECT_EQ(a.rescues + b.rescues, 0u);
    // One bell a sleep at most, and none but for a sleep.
    EXPECT_LE(a.bells, b.arms);
    EXPECT_LE(b.bells, a.arms);
    EXPECT_GT(b.parks, a.parks / 2);
    ::testing::Test::RecordProperty("parks", std::to_string(a.parks + b.parks));
    ::testing::Test::RecordProperty("last_looks", std::to_string(a.last_looks + b.last_looks));
  }
};

#if defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define INFERD_FEW_PARKS 1
#endif
#endif
#if defined(INFERD_FEW_PARKS) || defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kParks = 20'000;
#else
constexpr uint64_t kParks = 1'000'000;
#endif

// Times that each of two players parks, for `share` of all parks that the test run is to see.
uint64_t parks_each(double share) {
  const char* wanted = std::getenv("INFERD_TEST_PARKS");
  const uint64_t parks = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : kParks;
  return static_cast<uint64_t>(static_cast<double>(parks) * share / 2) + 1;
}

// Where each throw waits for its turn behind other processes on another processor, as many parks as
// come in this time have to do; but all of those that INFERD_TEST_PARKS asks for.
Clock::time_point time_limit() {
  if (std::getenv("INFERD_TEST_PARKS") != nullptr) return Clock::time_point::max();
  return Clock::now() + std::chrono::seconds(15);
}

// Runs the calling process on this processor only, and again on all of `others` when destroyed.
class Pinned {
 public:
  explicit Pinned(int processor) {
    sched_getaffinity(0, sizeof(others_), &others_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    EXPECT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  }
  ~Pinned() { sched_setaffinity(0, sizeof(others_), &others_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  cpu_set_t others_;
};

// The processor that the caller runs on now, and one other that it may run on, or -1.
struct Processors {
  int here = sched_getcpu();
  int other = -1;

  Processors() {
    cpu_set_t all;
    CPU_ZERO(&all);
    EXPECT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &all) && i != here) other = i;
    }
  }
};

void play_between_processes(uint64_t parks, int processor, int other_processor) {
  Game game(processor == other_processor ? kPowerOnOne : kPowerOnTwo);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const Pinned pinned(other_processor);
    game.court->tallies[1] = game.receiver().reply();
    _exit(0);
  }
  const Clock::time_point end =
      processor == other_processor ? Clock::time_point::max() : time_limit();
  const Pinned pinned(processor);
  game.court->tallies[0] = game.server().serve(parks, end);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  game.expect_no_lost_wake_up();
}

TEST(Sleep, NoWakeUpIsLostBetweenThreads) {
  Game game(kPowerOnTwo);
  std::thread other([&] { game.court->tallies[1] = game.receiver().reply(); });
  game.court->tallies[0] = game.server().serve(parks_each(0.1), time_limit());
  other.join();
  game.expect_no_lost_wake_up();
}

// Most of them here, where they are cheap: one process goes to sleep, and the other one runs.
TEST(Sleep, NoWakeUpIsLostBetweenProcessesOnOneProcessor) {
  const Processors processors;
  play_between_processes(parks_each(1), processors.here, processors.here);
}

// Here one process throws while the other one lies down, and both have a store buffer.
TEST(Sleep, NoWakeUpIsLostBetweenProcessesOnTwoProcessors) {
  const Processors processors;
  if (processors.other < 0) GTEST_SKIP() << "there is one processor";
  play_between_processes(parks_each(0.1), processors.here, processors.other);
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
  const UniqueFd bell = std::move(create_doorbell()).value();
  for (int i = 0; i < 1'000'000; ++i) ring_doorbell(bell.get());
  EXPECT_TRUE(clear_doorbell(bell.get()));
  EXPECT_FALSE(clear_doorbell(bell.get()));
  ring_doorbell(bell.get());
  EXPECT_TRUE(clear_doorbell(bell.get()));
}

}  // namespace
}  // namespace inferd::ipc
