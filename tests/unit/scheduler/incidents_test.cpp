// What has hurt the users of others, and cannot happen here.
#include <gtest/gtest.h>

#include "tests/unit/scheduler/scheduler_test_util.h"

namespace inferd::scheduler {
namespace {

SchedulerConfig small_config() {
  SchedulerConfig config;
  config.step_tokens = 32;
  config.step_logits = 8;
  config.context_tokens = 4096;
  config.queue_max = 16;
  return config;
}

// Eight pages: 128 tokens in all.
constexpr memory::MemoryConfig kSmallMemory{PageCount(8), 4, 4096};

TEST(Incident, ARequestLargerThanThePoolNeverBlocksTheQueue) {
  SchedulerRig rig(kSmallMemory, small_config());
  ASSERT_TRUE(rig.submit(1, 20, 4).ok());
  const Result<void> refused = rig.submit(2, 200, 4);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_FALSE(rig.submit(3, 100, 29).ok()) << "prompt and answer together do not fit";
  ASSERT_TRUE(rig.submit(4, 20, 4).ok());
  rig.run();
  EXPECT_EQ(rig.finish(1), FinishReason::kLength);
  EXPECT_EQ(rig.finish(4), FinishReason::kLength);
}

TEST(Incident, SequencesThatOutgrowThePoolTogetherAllFinishWhole) {
  SchedulerRig rig(kSmallMemory, small_config());
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(rig.submit(id, 10, 110).ok());
  const uint32_t steps = rig.run();
  for (uint64_t id = 1; id <= 4; ++id) {
    EXPECT_EQ(rig.finish(id), FinishReason::kLength);
    const std::vector<TokenId>& generated = rig.generated[SequenceId(id)];
    ASSERT_EQ(generated.size(), 110u);
    for (uint32_t i = 0; i < generated.size(); ++i) {
      ASSERT_EQ(generated[i], TokenId(i)) << "no token twice, none left out";
    }
  }
  EXPECT_GT(rig.scheduler.stats().preemptions, 0u);
  EXPECT_LE(steps, 4u * 110u + 64u);
  EXPECT_EQ(rig.free_pages(), 8u);
}

TEST(Incident, PreemptionDoesNotThrash) {
  SchedulerRig rig(kSmallMemory, small_config());
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(rig.submit(id, 10, 110).ok());
  rig.run();
  const SchedulerStats stats = rig.scheduler.stats();
  // Each preemption needs the older sequences to have grown by a page: 3 sequences, 8 pages at
  // most.
  EXPECT_LE(stats.preemptions, 24u);
  const uint64_t needed = 4 * (10 + 110 - 1);
  EXPECT_LE(stats.computed_tokens, 3 * needed) << "most of the work is done once";
}

TEST(Incident, ThePreemptedOneIsTheYoungestAndComesBackBeforeTheQueue) {
  SchedulerRig rig(kSmallMemory, small_config());
  for (uint64_t id = 1; id <= 6; ++id) ASSERT_TRUE(rig.submit(id, 10, 60).ok());
  while (rig.scheduler.stats().preemptions == 0) {
    ASSERT_TRUE(rig.plan());
    rig.commit();
  }
  EXPECT_EQ(rig.state(4), SequenceState::kWaiting);
  EXPECT_EQ(rig.scheduler.info(SequenceId(4))->stats.preemptions, 1u);
  while (rig.state(4) == SequenceState::kWaiting) {
    EXPECT_EQ(rig.state(5), SequenceState::kWaiting);
    ASSERT_TRUE(rig.plan());
    rig.commit();
  }
  rig.run();
  EXPECT_EQ(rig.finished.size(), 6u);
}

TEST(Incident, AClientThatStopsReadingDoesNotHoldThePool) {
  SchedulerRig rig(kSmallMemory, small_config());
  ASSERT_TRUE(rig.submit(1, 100, 20, 1).ok());
  while (rig.generated[SequenceId(1)].empty()) {
    ASSERT_TRUE(rig.plan());
    rig.commit();
  }
  ASSERT_TRUE(rig.scheduler.pause(SequenceId(1)));
  ASSERT_TRUE(rig.submit(2, 60, 20, 2).ok());
  rig.run();
  EXPECT_EQ(rig.finish(2), FinishReason::kLength);
  EXPECT_EQ(rig.state(1), SequenceState::kWaiting);
  ASSERT_TRUE(rig.scheduler.resume(SequenceId(1)));
  rig.run();
  EXPECT_EQ(rig.finish(1), FinishReason::kLength);
  EXPECT_EQ(rig.generated[SequenceId(1)].size(), 20u);
}

TEST(Incident, ClientsThatStopReadingDoNotHoldTheSequences) {
  SchedulerRig rig(kSmallMemory, small_config());
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(rig.submit(id, 4, 4, 1).ok());
  ASSERT_TRUE(rig.plan());
  rig.commit();
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(rig.scheduler.pause(SequenceId(id)));
  ASSERT_TRUE(rig.submit(5, 4, 4, 2).ok());
  rig.run();
  EXPECT_EQ(rig.finish(5), FinishReason::kLength);
}

// In every state: waiting, in mid-prompt, decoding, paused, preempted, and in the step in flight.
TEST(Incident, AnAbortLeaksNoPageInAnyState) {
  SchedulerRig rig(kSmallMemory, small_config());
  const auto nothing_left = [&rig] {
    EXPECT_EQ(rig.free_pages(), 8u);
    EXPECT_TRUE(rig.scheduler.idle());
    EXPECT_EQ(verdict(rig.scheduler.verify()), "");
  };
  ASSERT_TRUE(rig.submit(1, 100, 4).ok());
  EXPECT_TRUE(rig.scheduler.cancel(SequenceId(1)));  // waiting
  nothing_left();
  EXPECT_FALSE(rig.scheduler.cancel(SequenceId(1)));

  ASSERT_TRUE(rig.submit(2, 100, 4).ok());
  ASSERT_TRUE(rig.plan());
  rig.commit();
  ASSERT_EQ(rig.state(2), SequenceState::kPrefilling);
  EXPECT_TRUE(rig.scheduler.cancel(SequenceId(2)));
  nothing_left();

  ASSERT_TRUE(rig.submit(3, 10, 50).ok());
  ASSERT_TRUE(rig.plan());
  rig.commit();
  ASSERT_EQ(rig.state(3), SequenceState::kDecoding);
  ASSERT_TRUE(rig.scheduler.pause(SequenceId(3)));
  EXPECT_TRUE(rig.scheduler.cancel(SequenceId(3)));
  nothing_left();

  ASSERT_TRUE(rig.submit(4, 10, 50).ok());
  ASSERT_TRUE(rig.plan());
  EXPECT_TRUE(rig.scheduler.cancel(SequenceId(4)));
  EXPECT_FALSE(rig.scheduler.cancel(SequenceId(4)));
  EXPECT_LT(rig.free_pages(), 8u) << "the engine may be writing it";
  EXPECT_TRUE(rig.commit().empty());
  nothing_left();

  for (uint64_t id = 5; id <= 8; ++id) ASSERT_TRUE(rig.submit(id, 10, 110, id).ok());
  while (rig.scheduler.stats().preemptions == 0) {
    ASSERT_TRUE(rig.plan());
    rig.commit();
  }
  ASSERT_EQ(rig.state(8), SequenceState::kWaiting);
  for (uint64_t session = 5; session <= 8; ++session) {
    EXPECT_EQ(rig.scheduler.cancel_session(SessionId(session)), 1u);
  }
  nothing_left();
}

TEST(Incident, ASessionsDeathEndsAllOfItAndNothingElse) {
  SchedulerRig rig(kSmallMemory, small_config());
  for (uint64_t id = 1; id <= 6; ++id) ASSERT_TRUE(rig.submit(id, 4, 6, id % 2).ok());
  ASSERT_TRUE(rig.plan());
  EXPECT_EQ(rig.scheduler.cancel_session(SessionId(1)), 3u);
  EXPECT_EQ(rig.scheduler.cancel_session(SessionId(1)), 0u);
  for (const SequenceEvent& event : rig.commit()) EXPECT_EQ(event.session, SessionId(0));
  rig.run();
  EXPECT_EQ(rig.finished.size(), 3u);
}

TEST(Incident, OneFullContextEndsOnlyItself) {
  SchedulerRig rig(kSmallMemory, small_config());
  ASSERT_TRUE(rig.submit(1, 60, kUnlimitedTokens).ok());
  ASSERT_TRUE(rig.submit(2, 10, 100).ok());
  rig.run();
  EXPECT_EQ(rig.finish(1), FinishReason::kContext);
  EXPECT_EQ(rig.generated[SequenceId(1)].size(), 128u - 60u);
  EXPECT_EQ(rig.finish(2), FinishReason::kLength);
  EXPECT_EQ(rig.generated[SequenceId(2)].size(), 100u);
}

// A step too small for everyone who decodes still moves, whoever holds the pages.
TEST(Incident, TheSmallestBudgetStillGetsEverythingDone) {
  SchedulerRig rig(kSmallMemory, small_config());
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(rig.submit(id, 30, 60).ok());
  uint32_t steps = 0;
  while (rig.plan({1, 1, 0})) {
    EXPECT_EQ(rig.batch.token_count, 1u);
    rig.commit();
    ASSERT_LT(++steps, 2000u);
  }
  EXPECT_EQ(rig.finished.size(), 4u);
}

// The younger one's decode goes first, and the step has room for nothing else: once
// that one has taken every free page, the older prefill must go on, or nobody would.
TEST(Incident, ADecodeThatOutgrewThePoolDoesNotStopAnOlderPrefill) {
  SchedulerRig rig(kSmallMemory, small_config());
  Request slow;
  slow.chunk_tokens_max = 1;
  ASSERT_TRUE(rig.submit(slow, 1, 60, 20).ok());
  ASSERT_TRUE(rig.submit(2, 4, 120).ok());
  ASSERT_TRUE(rig.plan());
  rig.commit();
  ASSERT_EQ(rig.state(2), SequenceState::kDecoding);
  uint32_t steps = 0;
  while (rig.plan({1, 1, 0})) {
    rig.commit();
    ASSERT_LT(++steps, 2000u);
  }
  EXPECT_EQ(rig.finished.size(), 2u);
}

TEST(Incident, ALongPromptIsRefusedWithItsFiguresAndNeverCutShort) {
  SchedulerConfig config = small_config();
  config.context_tokens = 96;
  SchedulerRig rig(kSmallMemory, config);
  const Result<void> refused = rig.submit(1, 97, 4);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message().find("97"), std::string::npos) << refused.error().message();
  EXPECT_NE(refused.error().message().find("96"), std::string::npos) << refused.error().message();
  EXPECT_FALSE(rig.submit(2, 90, 7).ok()) << "prompt and answer together are too long";
  ASSERT_TRUE(rig.submit(3, 90, 6).ok());
  std::vector<TokenId> computed;
  while (rig.plan()) {
    computed.insert(computed.end(), rig.item(3)->tokens.begin(), rig.item(3)->tokens.end());
    rig.commit();
  }
  ASSERT_EQ(computed.size(), 95u);  // the last token that it generated needs no more
  for (uint32_t i = 0; i < 90; ++i) EXPECT_EQ(computed[i], static_cast<TokenId>(3000 + i));
}

}  // namespace
}  // namespace inferd::scheduler
