// StepLoop: cancellation in every state, limits of a session, and whose rings are looked at.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <utility>
#include <vector>

#include "daemon/step_loop.h"
#include "tests/unit/daemon/loop_fixture.h"

namespace inferd::daemon {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

scheduler::SequenceState state_of(LoopFixture& fixture, uint64_t sequence) {
  for (const SequenceEntry& entry : fixture.loop->snapshot().sequences) {
    if (entry.info.sequence.value == sequence) return entry.info.state;
  }
  ADD_FAILURE() << "sequence " << sequence << " is not there";
  return {};
}

TEST(StepLoop, ACancelTakesOneTurnInEveryStateAndDisturbsNobody) {
  LoopFixture fixture({.sequences_max = 1, .step_tokens = 16});
  FakeClient client = fixture.connect();
  const uint64_t decoding = client.submit(prompt_of(5), ipc::kUnlimitedTokens);
  for (int i = 0; i < 4; ++i) fixture.loop->turn(false);
  const uint64_t queued = client.submit(prompt_of(100), 9);
  const uint64_t last = client.submit(prompt_of(90, 3), 7);
  fixture.loop->turn(false);
  client.read();
  EXPECT_EQ(state_of(fixture, client[queued].sequence_id), scheduler::SequenceState::kWaiting);

  client.cancel(queued);
  fixture.loop->turn(false);
  client.read();
  EXPECT_EQ(client[queued].reason, ipc::FinishReason::kCancelled);
  EXPECT_THAT(client[queued].ids, IsEmpty());
  EXPECT_FALSE(client[decoding].finished);

  EXPECT_EQ(state_of(fixture, client[decoding].sequence_id), scheduler::SequenceState::kDecoding);
  client.cancel(decoding);
  fixture.loop->turn(false);
  client.read();
  EXPECT_EQ(client[decoding].reason, ipc::FinishReason::kCancelled);
  EXPECT_EQ(client[decoding].ids, fake_answer(prompt_of(5), client[decoding].completion_tokens));

  // The one that waited behind them is computed by now, part by part.
  EXPECT_EQ(state_of(fixture, client[last].sequence_id), scheduler::SequenceState::kPrefilling);
  EXPECT_LT(fixture.pages_free(), PageCount(256));
  client.cancel(last);
  const uint64_t steps = fixture.loop->counters().steps;
  fixture.loop->turn(false);
  client.read();
  EXPECT_EQ(client[last].reason, ipc::FinishReason::kCancelled);
  EXPECT_THAT(client[last].ids, IsEmpty());
  EXPECT_EQ(fixture.loop->counters().steps, steps) << "nothing more is computed for it";
  EXPECT_EQ(fixture.pages_free(), PageCount(256));
  EXPECT_TRUE(fixture.loop->verify().ok());
}

TEST(StepLoop, ASessionsRequestsAreLimitedAndTheLimitMayChange) {
  LoopFixture fixture({.sequences_per_session = 4});
  FakeClient client = fixture.connect();
  std::vector<uint64_t> cookies;
  for (int i = 0; i < 5; ++i) cookies.push_back(client.submit(prompt_of(5), ipc::kUnlimitedTokens));
  for (int i = 0; i < 4; ++i) fixture.loop->turn(false);
  client.read();
  EXPECT_EQ(client[cookies[4]].error, ErrorCode::kResourceExhausted);
  EXPECT_THAT(client[cookies[4]].sentence, HasSubstr("allows 4"));

  StepLoopLimits limits;
  limits.sequences_per_session = 2;
  limits.running_max = 8;
  fixture.loop->set_limits(limits);
  EXPECT_EQ(fixture.scheduler.config().session_requests_max, 2u);
  client.cancel(cookies[0]);
  client.cancel(cookies[1]);
  const uint64_t refused = client.submit(prompt_of(5), 3);
  for (int i = 0; i < 4; ++i) fixture.loop->turn(false);
  client.read();
  EXPECT_EQ(client[refused].error, ErrorCode::kResourceExhausted);
  client.cancel(cookies[2]);
  const uint64_t accepted = client.submit(prompt_of(5), 3);
  fixture.run_until_idle({&client});
  EXPECT_TRUE(client[accepted].finished);
}

uint64_t bells_of(const FakeClient& client) {
  uint64_t count = 0;
  const ssize_t got = ::read(client.raw->completion_bell.get(), &count, sizeof(count));
  return got > 0 ? count : 0;
}

TEST(StepLoop, AStepRingsOnceForASleepingClientHoweverManyTokensItBrings) {
  LoopFixture fixture({.sequences_max = 8});
  std::vector<FakeClient> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(fixture.connect());
  // The first has four answers under way, the others two and one; the last stays awake.
  for (const auto& [client, sequences] : {std::pair{0u, 4u}, {1u, 2u}, {2u, 1u}}) {
    for (uint32_t i = 0; i < sequences; ++i) {
      clients[client].submit(prompt_of(5, static_cast<TokenId>(8 * client + i)), 500);
    }
  }
  while (fixture.loop->counters().tokens_published < 7 * 3) fixture.loop->turn(false);
  EXPECT_EQ(fixture.loop->counters().doorbells, 0u) << "nobody slept";
  for (FakeClient& client : clients) client.read();

  for (uint64_t step = 1; step <= 20; ++step) {
    clients[0].raw->sleeper.arm();
    clients[1].raw->sleeper.arm();
    const uint64_t published = fixture.loop->counters().tokens_published;
    fixture.loop->turn(false);
    ASSERT_EQ(fixture.loop->counters().tokens_published, published + 7);
    EXPECT_EQ(fixture.loop->counters().doorbells, 2 * step);
    EXPECT_EQ(bells_of(clients[0]), 1u);
    EXPECT_EQ(bells_of(clients[1]), 1u);
    EXPECT_EQ(bells_of(clients[2]), 0u);
    // Who has been rung for and sleeps on is not rung for again.
    fixture.loop->turn(false);
    EXPECT_EQ(fixture.loop->counters().doorbells, 2 * step);
    for (FakeClient& client : clients) {
      client.raw->sleeper.disarm();
      client.read();
    }
  }
}

TEST(StepLoop, AmongManyIdleSessionsAStalledOneGoesOnAsSoonAsItIsRead) {
  LoopFixture fixture;
  std::vector<FakeClient> idle;
  for (int i = 0; i < 100; ++i) idle.push_back(fixture.connect());
  FakeClient lazy = fixture.connect();
  const uint64_t cookie = lazy.submit(prompt_of(10), 900);
  fixture.run_until_idle({});
  EXPECT_LT(lazy.raw->completions.available(), 900u);
  size_t heard = 0;
  for (int i = 0; i < 2000 && !lazy[cookie].finished; ++i) {
    lazy.read(3);
    fixture.loop->turn(false);
    EXPECT_TRUE(fixture.loop->verify().ok());
    EXPECT_GE(lazy[cookie].ids.size(), heard);
    heard = lazy[cookie].ids.size();
  }
  EXPECT_EQ(lazy[cookie].ids, fake_answer(prompt_of(10), 900));
}

}  // namespace
}  // namespace inferd::daemon
