// Many threads on one connection, and event loops: every answer reaches its reader, whoever read
// the ring.
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "fake_server.h"
#include "library_fixture.h"

namespace inferd::test {
namespace {

// The answer to a prompt [a, b] is b times the byte a.
Script repeat(const ipc::Submission& s) {
  Script script;
  script.ids.assign(static_cast<size_t>(s.prompt[1]), s.prompt[0]);
  script.tokens_per_step = 1 + static_cast<uint32_t>(s.prompt[1]) % 3;
  return script;
}

void ask_many(Client& client, int rounds, char letter, std::atomic<int>& right) {
  Prng random(static_cast<uint64_t>(letter));
  for (int round = 0; round < rounds; ++round) {
    const auto count = static_cast<int32_t>(1 + random.below(40));
    auto sequence = client.ask({letter, count});
    const Answer got = read_all(sequence.get());
    right += got.text == std::string(static_cast<size_t>(count), letter) &&
             got.finish == INFERD_FINISH_STOP;
  }
}

TEST(Waiting, EachThreadGetsItsOwnAnswers) {
  constexpr int kThreads = 8, kRounds = 60;
  for (const uint32_t spin_us : {0u, 20u}) {
    FakeServer server(repeat);
    Client client(server, spin_us);
    std::atomic<int> right{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back(
          [&, i] { ask_many(client, kRounds, static_cast<char>('a' + i), right); });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(right, kThreads * kRounds);
  }
}

TEST(Waiting, AWaitThatEndsInTimeHandsTheLeadOn) {
  FakeServer server([](const ipc::Submission& s) {
    Script script;
    if (s.prompt[0] == 'a') {
      script.hold = true;
    } else {
      script.ids.assign(20, 'b');
      script.step_us = 2000;
    }
    return script;
  });
  Client client(server);
  auto held = client.ask({'a'});
  std::atomic<bool> done{false};
  // This thread leads again and again, and leaves by its deadline each time.
  std::thread leaver([&] {
    inferd_event event;
    inferd_event_init(&event);
    while (!done) EXPECT_EQ(inferd_next(held.get(), 1, &event, nullptr), INFERD_TIMED_OUT);
  });
  for (int i = 0; i < 3; ++i) {
    auto other = client.ask({'b'});
    EXPECT_EQ(read_all(other.get()).ids.size(), 20u);
  }
  done = true;
  leaver.join();
}

TEST(Waiting, DeathWakesEveryWaiter) {
  FakeServer server(Script{.hold = true});
  Client client(server);
  std::vector<SequencePtr> sequences;
  for (int i = 0; i < 6; ++i) sequences.push_back(client.ask({1}));
  std::atomic<int> unavailable{0};
  std::vector<std::thread> threads;
  for (auto& sequence : sequences) {
    threads.emplace_back(
        [&] { unavailable += read_all(sequence.get()).status == INFERD_UNAVAILABLE; });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  server.kill();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(unavailable, 6);
}

TEST(Waiting, CancelFromAnotherThreadEndsAWait) {
  FakeServer server(Script{.hold = true});
  Client client(server);
  auto sequence = client.ask({1});
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    inferd_cancel(sequence.get());
  });
  EXPECT_EQ(read_all(sequence.get()).finish, INFERD_FINISH_CANCELLED);
  canceller.join();
}

// An event loop over `sequences`, as inferd.h prescribes it. False after ten silent seconds.
bool run_event_loop(Client& client, std::vector<SequencePtr>& sequences,
                    std::vector<Answer>& answers) {
  size_t open = sequences.size();
  while (open > 0) {
    for (size_t i = 0; i < sequences.size(); ++i) {
      inferd_event event;
      inferd_event_init(&event);
      inferd_error* error = nullptr;
      while (answers[i].finish == INFERD_FINISH_NONE) {
        const inferd_status status = inferd_next(sequences[i].get(), 0, &event, &error);
        if (status == INFERD_TIMED_OUT) break;
        if (status == INFERD_OK) {
          answers[i].take(event);
        } else {
          answers[i].status = status;
          answers[i].finish = event.finish;
          inferd_error_free(error);
        }
        open -= answers[i].finish != INFERD_FINISH_NONE;
      }
    }
    if (open == 0) return true;
    pollfd poller = {inferd_connection_fd(client.get()), POLLIN, 0};
    if (poll(&poller, 1, 10'000) != 1) return false;
    inferd_connection_clear(client.get());
  }
  return true;
}

TEST(EventLoop, SleepsBetweenEventsAndMissesNone) {
  FakeServer server([](const ipc::Submission& s) {
    Script script = repeat(s);
    script.step_us = 50;  // so that the loop often sleeps in between
    return script;
  });
  Client client(server);
  for (int round = 0; round < 10; ++round) {
    std::vector<SequencePtr> sequences;
    for (int32_t i = 0; i < 8; ++i) sequences.push_back(client.ask({'a' + i, 10 + i}));
    std::vector<Answer> answers(sequences.size());
    ASSERT_TRUE(run_event_loop(client, sequences, answers)) << "a wake-up was lost";
    for (size_t i = 0; i < answers.size(); ++i) {
      EXPECT_EQ(answers[i].text, std::string(10 + i, static_cast<char>('a' + i)));
    }
  }
}

TEST(EventLoop, WorksBesideThreadsThatWait) {
  FakeServer server([](const ipc::Submission& s) {
    Script script = repeat(s);
    script.step_us = 20;
    return script;
  });
  Client client(server);
  std::atomic<int> right{0};
  std::thread waiter([&] { ask_many(client, 40, 'z', right); });
  for (int round = 0; round < 10; ++round) {
    std::vector<SequencePtr> sequences;
    for (int32_t i = 0; i < 4; ++i) sequences.push_back(client.ask({'a' + i, 20}));
    std::vector<Answer> answers(sequences.size());
    EXPECT_TRUE(run_event_loop(client, sequences, answers)) << "a wake-up was lost";
  }
  waiter.join();
  EXPECT_EQ(right, 40);
}

TEST(EventLoop, DeathIsAnEventAndDoesNotStayReadable) {
  FakeServer server(Script{.hold = true});
  Client client(server);
  std::vector<SequencePtr> sequences;
  sequences.push_back(client.ask({1}));
  ASSERT_TRUE(eventually([&] { return server.running() == 1; }));
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    server.kill();
  });
  std::vector<Answer> answers(1);
  EXPECT_TRUE(run_event_loop(client, sequences, answers));
  killer.join();
  EXPECT_EQ(answers[0].status, INFERD_UNAVAILABLE);
  inferd_connection_clear(client.get());
  pollfd poller = {inferd_connection_fd(client.get()), POLLIN, 0};
  EXPECT_EQ(poll(&poller, 1, 0), 0) << "a loop over a dead connection would spin";
}

TEST(Waiting, SleepingReaderIsRungAtMostOncePerSleep) {
  FakeServer server(Script{.ids = std::vector<TokenId>(2000, 'x')});
  Client client(server);
  auto sequence = client.ask({1});
  // Nobody waits: however many tokens come, nobody is rung for.
  ASSERT_TRUE(eventually([&] { return server.running() == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(server.bells(), 0u);
  EXPECT_EQ(read_all(sequence.get()).ids.size(), 2000u);
}

}  // namespace
}  // namespace inferd::test
