#include "daemon/step_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/prng.h"
#include "tests/unit/daemon/loop_fixture.h"

namespace inferd::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

TEST(StepLoop, OnePromptIsAnsweredTokenForToken) {
  LoopFixture fixture;
  FakeClient client = fixture.connect();
  const uint64_t cookie = client.submit(prompt_of(100), 40);
  fixture.run_until_idle({&client});
  EXPECT_TRUE(client[cookie].accepted);
  EXPECT_EQ(client[cookie].ids, fake_answer(prompt_of(100), 40));
  EXPECT_TRUE(client[cookie].finished);
  EXPECT_EQ(client[cookie].reason, ipc::FinishReason::kLength);
  EXPECT_EQ(client[cookie].completion_tokens, 40u);
  EXPECT_EQ(fixture.pages_free(), PageCount(256));
}

TEST(StepLoop, ManySessionsGetWhatEachWouldGetAlone) {
  LoopFixture fixture;
  std::vector<FakeClient> clients;
  for (int i = 0; i < 6; ++i) clients.push_back(fixture.connect());
  std::vector<std::vector<uint64_t>> cookies(6);
  for (uint32_t i = 0; i < 6; ++i) {
    for (uint32_t j = 0; j < 4; ++j) {
      const auto seed = static_cast<TokenId>(i * 10 + j);
      cookies[i].push_back(clients[i].submit(prompt_of(1 + i * 37 + j, seed), 30));
    }
  }
  fixture.run_until_idle({&clients[0], &clients[1], &clients[2], &clients[3], &clients[4],
                          &clients[5]});
  for (uint32_t i = 0; i < 6; ++i) {
    for (uint32_t j = 0; j < 4; ++j) {
      const auto seed = static_cast<TokenId>(i * 10 + j);
      EXPECT_EQ(clients[i][cookies[i][j]].ids, fake_answer(prompt_of(1 + i * 37 + j, seed), 30));
      EXPECT_TRUE(clients[i][cookies[i][j]].finished);
    }
  }
  EXPECT_EQ(fixture.pages_free(), PageCount(256));
}

TEST(StepLoop, TheModelsEndTokenEndsTheAnswerAndIsNotPartOfIt) {
  LoopFixture fixture;
  FakeClient client = fixture.connect();
  const uint64_t cookie = client.submit({5, 48}, 40);
  const uint64_t ignoring = client.submit({5, 48}, 3, ipc::kSubmitIgnoreEos);
  fixture.run_until_idle({&client});
  EXPECT_THAT(client[cookie].ids, testing::IsEmpty());
  EXPECT_EQ(client[cookie].reason, ipc::FinishReason::kStop);
  EXPECT_EQ(client[cookie].completion_tokens, 0u);
  EXPECT_THAT(client[ignoring].ids, SizeIs(3));
  EXPECT_EQ(client[ignoring].ids[0], kFakeEnd);
  EXPECT_EQ(client[ignoring].reason, ipc::FinishReason::kLength);
}

TEST(StepLoop, AStopTokenOfTheRequestEndsIt) {
  LoopFixture fixture;
  FakeClient client = fixture.connect();
  const std::vector<TokenId> prompt = prompt_of(20);
  const std::vector<TokenId> answer = fake_answer(prompt, 10);
  const size_t first = static_cast<size_t>(std::find(answer.begin(), answer.end(), answer[5]) -
                                           answer.begin());
  std::memcpy(client.raw->arena + 4096, &answer[5], sizeof(TokenId));
  ipc::SubmitRecord record = ipc::good_submission(9, 20);
  record.stop_offset = 4096;
  record.stop_count = 1;
  client.submit(record, prompt);
  fixture.run_until_idle({&client});
  EXPECT_EQ(client[9].ids, fake_answer(prompt, static_cast<uint32_t>(first)));
  EXPECT_EQ(client[9].reason, ipc::FinishReason::kStop);
}

TEST(StepLoop, LogProbabilitiesComeWithTheTokensThatAskedForThem) {
  LoopFixture fixture;
  FakeClient client = fixture.connect();
  ipc::SubmitRecord record = ipc::good_submission(3, 4);
  record.max_tokens = 5;
  record.header.flags = ipc::kSubmitLogprobs;
  record.top_logprobs = 20;
  client.submit(record, prompt_of(4));
  fixture.run_until_idle({&client});
  EXPECT_EQ(client[3].ids, fake_answer(prompt_of(4), 5));
  ASSERT_THAT(client[3].logprobs, SizeIs(5));
  EXPECT_NEAR(client[3].logprobs[0], 5 - std::log(std::exp(5.0) + kFakeVocabulary - 1), 1e-4);
}

TEST(StepLoop, CancelEndsTheSequenceAndFreesItsPagesInTheSameTurn) {
  LoopFixture fixture;
  FakeClient client = fixture.connect();
  const uint64_t cookie = client.submit(prompt_of(100), ipc::kUnlimitedTokens);
  for (int i = 0; i < 5; ++i) fixture.loop->turn(false);
  EXPECT_LT(fixture.pages_free(), PageCount(256));
  client.cancel(cookie);
  fixture.loop->turn(false);
  EXPECT_EQ(fixture.pages_free(), PageCount(256));
  client.read();
  EXPECT_EQ(client[cookie].reason, ipc::FinishReason::kCancelled);
  EXPECT_EQ(client[cookie].completion_tokens, client[cookie].ids.size());
}

TEST(StepLoop, TruncationByTheClientCountsOnlyWhatItHad) {
  LoopFixture fixture;
  FakeClient client = fixture.connect();
  const uint64_t cookie = client.submit(prompt_of(10), ipc::kUnlimitedTokens);
  for (int i = 0; i < 20; ++i) fixture.loop->turn(false);
  client.truncate(cookie, 7);
  fixture.loop->turn(false);
  client.read();
  EXPECT_EQ(client[cookie].reason, ipc::FinishReason::kStop);
  EXPECT_EQ(client[cookie].completion_tokens, 7u);
}

TEST(StepLoop, DeathFreesEverythingBetweenTwoTurnsAndTheOthersGoOn) {
  LoopFixture fixture;
  FakeClient survivor = fixture.connect();
  const uint64_t cookie = survivor.submit(prompt_of(30), 50);
  {
    FakeClient victim = fixture.connect();
    for (int i = 0; i < 6; ++i) victim.submit(prompt_of(100), ipc::kUnlimitedTokens);
    for (int i = 0; i < 9; ++i) fixture.loop->turn(false);
    fixture.die(victim);
  }
  EXPECT_EQ(fixture.loop->snapshot().sessions.size(), 1u);
  EXPECT_TRUE(fixture.loop->verify().ok());
  fixture.run_until_idle({&survivor});
  EXPECT_EQ(survivor[cookie].ids, fake_answer(prompt_of(30), 50));
  EXPECT_EQ(fixture.pages_free(), PageCount(256));
}

TEST(StepLoop, ARemovedSessionIsGoneAtOnce) {
  LoopFixture fixture;
  FakeClient client = fixture.connect();
  client.submit(prompt_of(100), ipc::kUnlimitedTokens);
  for (int i = 0; i < 4; ++i) fixture.loop->turn(false);
  fixture.loop->remove_session(fixture.last_session());
  EXPECT_EQ(fixture.pages_free(), PageCount(256));
  EXPECT_THAT(fixture.loop->snapshot().sessions, SizeIs(0));
  EXPECT_TRUE(fixture.loop->verify().ok());
}

TEST(StepLoop, AFullCompletionRingPausesOnlyItsSessionAndNothingIsLost) {
  LoopFixture fixture;
  FakeClient lazy = fixture.connect();
  FakeClient eager = fixture.connect();
  const uint64_t slow = lazy.submit(prompt_of(10), 900);
  const uint64_t quick = eager.submit(prompt_of(20), 600);
  fixture.run_until_idle({&eager});
  EXPECT_EQ(eager[quick].ids, fake_answer(prompt_of(20), 600));
  ASSERT_FALSE(fixture.loop->snapshot().sessions.empty());
  EXPECT_TRUE(fixture.loop->snapshot().sessions[0].stalled);
  fixture.run_until_idle({&lazy});
  EXPECT_EQ(lazy[slow].ids, fake_answer(prompt_of(10), 900));
  EXPECT_TRUE(lazy[slow].finished);
}

TEST(StepLoop, AClientThatNeverReadsIsEndedWithAStatusAfterTheDeadline) {
  LoopFixture fixture;
  FakeClient lazy = fixture.connect();
  const uint64_t slow = lazy.submit(prompt_of(10), 900);
  fixture.run_until_idle({});
  fixture.clock.advance_ns(31'000'000'000);
  fixture.loop->turn(false);
  EXPECT_EQ(fixture.pages_free(), PageCount(256));
  ASSERT_THAT(fixture.ended, SizeIs(1));
  EXPECT_EQ(fixture.ended[0].second.code(), ErrorCode::kTimedOut);
  lazy.read();
  EXPECT_TRUE(lazy.session_ended);
  EXPECT_EQ(lazy.session_error, ErrorCode::kTimedOut);
  EXPECT_FALSE(lazy[slow].finished);
}

TEST(StepLoop, RefusalsThatNobodyReadsStallTheSessionToo) {
  LoopFixture fixture;
  FakeClient client = fixture.connect();
  for (int round = 0; round < 200 && fixture.ended.empty(); ++round) {
    if (client.raw->submissions.free_slots(2) >= 2) client.submit({-1}, 1);
    fixture.clock.advance_ns(1'000'000'000);
    fixture.loop->turn(false);
  }
  ASSERT_THAT(fixture.ended, SizeIs(1));
  EXPECT_EQ(fixture.ended[0].second.code(), ErrorCode::kTimedOut);
}

TEST(StepLoop, TokenIdsOutsideTheVocabularyAreRefusedWithTheRange) {
  LoopFixture fixture;
  FakeClient client = fixture.connect();
  const uint64_t high = client.submit({1, 50}, 5);
  const uint64_t low = client.submit({-1}, 5);
  fixture.run_until_idle({&client});
  EXPECT_EQ(client[high].error, ErrorCode::kInvalidArgument);
  EXPECT_THAT(client[high].sentence, HasSubstr("token id 50, but the model's ids go from 0 to 49"));
  EXPECT_EQ(client[low].error, ErrorCode::kInvalidArgument);
}

TEST(StepLoop, ARequestThatCanNeverFitIsRefusedAtOnce) {
  LoopFixture fixture;
  FakeClient client = fixture.connect();
  const uint64_t cookie = client.submit(prompt_of(1024), 5);
  fixture.run_until_idle({&client});
  EXPECT_EQ(client[cookie].error, ErrorCode::kResourceExhausted);
  EXPECT_THAT(client[cookie].sentence, HasSubstr("1,024"));
}

TEST(StepLoop, ASessionsRequestsAreLimited) {
  LoopFixture fixture;
  FakeClient client = fixture.connect();
  std::vector<uint64_t> cookies;
  for (int i = 0; i < 9; ++i) cookies.push_back(client.submit(prompt_of(5), 4));
  fixture.run_until_idle({&client});
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(client[cookies[static_cast<size_t>(i)]].finished);
  EXPECT_EQ(client[cookies[8]].error, ErrorCode::kResourceExhausted);
  EXPECT_THAT(client[cookies[8]].sentence, HasSubstr("sequences_per_session allows 8"));
}

TEST(StepLoop, BiasesThatForbidEveryTokenFailThatRequestOnly) {
  LoopFixture fixture;
  FakeClient client = fixture.connect();
  std::vector<ipc::LogitBiasEntry> biases;
  for (TokenId id = 0; id < 50; ++id) {
    biases.push_back({id, -std::numeric_limits<float>::infinity()});
  }
  std::memcpy(client.raw->arena + 65536, biases.data(), biases.size() * sizeof(biases[0]));
  ipc::SubmitRecord record = ipc::good_submission(100, 4);
  record.bias_offset = 65536;
  record.bias_count = 50;
  client.submit(record, prompt_of(4));
  const uint64_t other = client.submit(prompt_of(8), 5);
  fixture.run_until_idle({&client});
  EXPECT_EQ(client[100].error, ErrorCode::kInvalidArgument);
  EXPECT_EQ(client[other].ids, fake_answer(prompt_of(8), 5));
  EXPECT_EQ(fixture.pages_free(), PageCount(256));
}

TEST(StepLoop, OnlyTheOwnerOrAnAdministratorCancels) {
  LoopFixture fixture;
  FakeClient client = fixture.connect(1000);
  const uint64_t cookie = client.submit(prompt_of(10), ipc::kUnlimitedTokens);
  fixture.loop->turn(false);
  client.read();
  const SequenceId id(client[cookie].sequence_id);
  EXPECT_EQ(fixture.loop->cancel_sequence(id, UserId(1001)).error().code(), ErrorCode::kNotFound);
  EXPECT_TRUE(fixture.loop->cancel_sequence(id, UserId(1000)).ok());
  EXPECT_EQ(fixture.loop->cancel_sequence(id, std::nullopt).error().code(), ErrorCode::kNotFound);
  fixture.run_until_idle({&client});
  EXPECT_EQ(client[cookie].reason, ipc::FinishReason::kCancelled);
}

TEST(StepLoop, ADrainFinishesWhatRunsAndRefusesWhatIsNew) {
  LoopFixture fixture;
  FakeClient client = fixture.connect();
  const uint64_t running = client.submit(prompt_of(10), 30);
  fixture.loop->turn(false);
  fixture.loop->begin_drain(std::nullopt);
  const uint64_t late = client.submit(prompt_of(10), 30);
  for (int i = 0; i < 100 && !fixture.loop->stopped(); ++i) fixture.loop->turn(false);
  EXPECT_TRUE(fixture.loop->stopped());
  client.read();
  EXPECT_EQ(client[running].ids, fake_answer(prompt_of(10), 30));
  EXPECT_EQ(client[late].error, ErrorCode::kUnavailable);
  EXPECT_TRUE(client.session_ended);
  EXPECT_EQ(client.session_error, ErrorCode::kUnavailable);
}

TEST(StepLoop, ADrainsDeadlineEndsTheRest) {
  LoopFixture fixture;
  FakeClient client = fixture.connect();
  const uint64_t running = client.submit(prompt_of(10), ipc::kUnlimitedTokens);
  fixture.loop->turn(false);
  fixture.loop->begin_drain(fixture.clock.now_ns() + 1000);
  fixture.loop->turn(false);
  EXPECT_FALSE(fixture.loop->stopped());
  fixture.clock.advance_ns(1000);
  fixture.loop->turn(false);
  EXPECT_TRUE(fixture.loop->stopped());
  client.read();
  EXPECT_FALSE(client[running].finished);
  EXPECT_EQ(client.session_error, ErrorCode::kUnavailable);
  EXPECT_EQ(fixture.pages_free(), PageCount(256));
}

TEST(StepLoop, LongPromptsAreCutSmallerWhileOthersStream) {
  LoopOptions options;
  options.step_tokens = 512;
  LoopFixture fixture(options);
  // A token costs a millisecond: 512 of them would be ten times the target of 50 ms.
  fixture.engine.on_run = [&](const scheduler::BatchPlan& plan) {
    fixture.clock.advance_ns(int64_t{plan.token_count} * 1'000'000);
  };
  FakeClient client = fixture.connect();
  const uint64_t first = client.submit(prompt_of(600), ipc::kUnlimitedTokens);
  for (int i = 0; i < 4; ++i) fixture.loop->turn(false);
  EXPECT_EQ(fixture.engine.largest_step, 512u);
  client.read();
  ASSERT_FALSE(client[first].ids.empty());
  fixture.engine.largest_step = 0;
  const uint64_t second = client.submit(prompt_of(600), 3);
  fixture.run_until_idle({&client});
  EXPECT_LE(fixture.engine.largest_step, 50u);
  EXPECT_EQ(client[second].ids, fake_answer(prompt_of(600), 3));
}

TEST(StepLoop, RunningAnswersGetATokenInEveryTurnOfALongPrefill) {
  LoopFixture fixture;
  FakeClient answering = fixture.connect();
  FakeClient other = fixture.connect();
  std::vector<uint64_t> running;
  for (TokenId seed = 1; seed <= 3; ++seed) {
    running.push_back(answering.submit(prompt_of(5, seed), 400, ipc::kSubmitIgnoreEos));
  }
  for (int turn = 0; turn < 3; ++turn) fixture.loop->turn(false);
  answering.read();
  const uint64_t late = other.submit(prompt_of(900), 1);
  uint32_t turns = 0;
  while (other[late].ids.empty() && turns < 1000) {
    std::vector<size_t> before;
    for (uint64_t cookie : running) before.push_back(answering[cookie].ids.size());
    fixture.clock.advance_ns(1'000'000);
    fixture.loop->turn(false);
    answering.read();
    other.read();
    for (size_t i = 0; i < running.size(); ++i) {
      EXPECT_EQ(answering[running[i]].ids.size(), before[i] + 1) << "turn " << turns;
    }
    ++turns;
  }
  // 64 tokens a step, three of them for those who answer.
  EXPECT_GE(turns, 900u / 61);
  EXPECT_EQ(other[late].ids, fake_answer(prompt_of(900), 1));
  fixture.run_until_idle({&answering, &other});
}

TEST(StepLoop, IdlePagesGoBackAfterAWhile) {
  LoopFixture fixture;
  FakeClient client = fixture.connect();
  client.submit(prompt_of(100), 4);
  fixture.run_until_idle({&client});
  EXPECT_EQ(fixture.engine.pages_released, 0u);
  const auto turn_after = [&](int64_t ns) {
    fixture.clock.advance_ns(ns);
    // Blocking would be for ever, so something must be there to wake it: a task posted by a task.
    fixture.mailbox.post([&](StepLoop&) { fixture.mailbox.post([](StepLoop&) {}); });
    fixture.loop->turn(true);
  };
  turn_after(3'000'000'000);
  EXPECT_EQ(fixture.memory.pool().counts().cached, PageCount(6)) << "whole pages stay for a while";
  EXPECT_EQ(fixture.engine.pages_released, 1u);
  turn_after(StepLoopLimits{}.cache_idle_ns);
  turn_after(3'000'000'000);
  EXPECT_EQ(fixture.memory.pool().counts().cached, PageCount(0));
  EXPECT_EQ(fixture.engine.pages_released, 7u);
}

TEST(StepLoop, WhenMemoryIsShortHalfOfTheCacheAndAllIdlePagesGoBackAtOnce) {
  LoopFixture fixture;
  FakeClient client = fixture.connect();
  client.submit(prompt_of(100), 4);
  fixture.run_until_idle({&client});
  ASSERT_EQ(fixture.memory.pool().counts().cached, PageCount(6));
  EXPECT_EQ(fixture.loop->relieve_memory(), PageCount(4)) << "three cached ones and an idle one";
  EXPECT_EQ(fixture.memory.pool().counts().cached, PageCount(3));
  EXPECT_EQ(fixture.engine.pages_released, 4u);
  EXPECT_EQ(fixture.loop->counters().memory_shortages, 1u);
  EXPECT_EQ(fixture.loop->counters().pages_given_back, 4u);
  EXPECT_TRUE(fixture.loop->verify().ok());
  // What is left serves as before.
  const uint64_t again = client.submit(prompt_of(100), 4);
  fixture.run_until_idle({&client});
  EXPECT_EQ(client[again].ids, fake_answer(prompt_of(100), 4));
}

TEST(StepLoop, APromptThatBeginsLikeAnEarlierOneIsNotComputedAgain) {
  LoopFixture fixture;
  FakeClient client = fixture.connect();
  std::vector<TokenId> prompt = prompt_of(100);
  const uint64_t first = client.submit(prompt, 4);
  fixture.run_until_idle({&client});
  const uint64_t computed = fixture.engine.counters().tokens;
  prompt.back() = prompt.back() == 5 ? 6 : 5;
  const uint64_t second = client.submit(prompt, 4);
  fixture.run_until_idle({&client});
  EXPECT_EQ(client[first].ids, fake_answer(prompt_of(100), 4));
  EXPECT_EQ(client[second].ids, fake_answer(prompt, 4));
  // Six pages are found; the seventh was never whole.
  EXPECT_EQ(fixture.engine.counters().tokens - computed, 100u - 96 + 3);
}

TEST(StepLoop, TasksOfTheMailboxRunInOrderBetweenSteps) {
  LoopFixture fixture;
  std::vector<int> order;
  fixture.mailbox.post([&](StepLoop&) { order.push_back(1); });
  fixture.mailbox.post([&](StepLoop& loop) { order.push_back(2); loop.stop(); });
  fixture.loop->run();
  EXPECT_THAT(order, ElementsAre(1, 2));
}

// Pages that nobody gives back stand for a fault of ours: the loop tells that it got nowhere.
TEST(StepLoopProgress, WhoWaitsForNothingThatWillHappenIsNoticed) {
  LoopFixture fixture({.pages = 16, .context_tokens = 256});
  FakeClient client = fixture.connect();
  memory::Reservation reservation;
  ASSERT_EQ(fixture.memory.reserve(PageCount(12), reservation), memory::ReserveStatus::kReserved);
  std::vector<PageId> leaked;
  while (reservation.count().value > 0) {
    leaked.push_back(fixture.memory.pool().take(reservation, UserId(1)));
  }
  const uint64_t cookie = client.submit(prompt_of(100), 2);
  for (int i = 0; i < 20; ++i) {
    fixture.clock.advance_ns(1'000'000'000);
    fixture.loop->turn(false);
  }
  EXPECT_GT(fixture.loop->stuck_for_ns(), 15'000'000'000);
  for (PageId page : leaked) fixture.memory.pool().release(page);
  fixture.run_until_idle({&client});
  EXPECT_EQ(fixture.loop->stuck_for_ns(), 0);
  EXPECT_TRUE(client[cookie].finished);
  // Neither a client that does not read nor an idle loop is stuck.
  for (int i = 0; i < 20; ++i) {
    fixture.clock.advance_ns(1'000'000'000);
    fixture.loop->turn(false);
  }
  EXPECT_EQ(fixture.loop->stuck_for_ns(), 0);
}

}  // namespace
}  // namespace inferd::daemon
