// Scheduler: continuous batching, ends, cancel and pause, figures.
#include "scheduler/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/scheduler/scheduler_test_util.h"

namespace inferd::scheduler {
namespace {

using testing::HasSubstr;

SchedulerConfig config_of(uint32_t step_tokens) {
  SchedulerConfig config;
  config.step_tokens = step_tokens;
  config.step_logits = 16;
  config.context_tokens = 256;
  config.queue_max = 8;
  return config;
}

class SchedulerTest : public testing::Test, public SchedulerRig {
 protected:
  SchedulerTest() : SchedulerRig({PageCount(64), 4, 256}, config_of(32)) {}
};

TEST_F(SchedulerTest, APromptIsComputedInChunksAndOnlyItsEndGivesLogits) {
  ASSERT_TRUE(submit(1, 70, 3).ok());
  std::vector<uint32_t> chunks;
  std::vector<uint32_t> logits;
  while (plan()) {
    ASSERT_EQ(batch.items.size(), 1u);
    EXPECT_EQ(batch.items[0].tokens.front(), batch.items[0].position_first < 70
                                                 ? TokenId(1000 + batch.items[0].position_first)
                                                 : generated[SequenceId(1)].back());
    chunks.push_back(batch.token_count);
    logits.push_back(batch.logits_count);
    commit();
  }
  EXPECT_THAT(chunks, testing::ElementsAre(32, 32, 6, 1, 1));
  EXPECT_THAT(logits, testing::ElementsAre(0, 0, 1, 1, 1));
  EXPECT_EQ(finish(1), FinishReason::kLength);
  EXPECT_EQ(generated[SequenceId(1)].size(), 3u);
  EXPECT_EQ(free_pages(), 64u);
}

TEST_F(SchedulerTest, RunningDecodesGoOnWhileALongPromptIsComputed) {
  ASSERT_TRUE(submit(1, 5, 50).ok());
  ASSERT_TRUE(plan());
  commit();
  ASSERT_TRUE(submit(2, 150, 1).ok());
  while (finish(2) == FinishReason::kNone) {
    ASSERT_TRUE(plan());
    ASSERT_NE(item(1), nullptr) << "the decode has its token in every step";
    EXPECT_EQ(item(1)->tokens.size(), 1u);
    EXPECT_LE(batch.token_count, 32u);
    commit();
  }
}

TEST_F(SchedulerTest, ARequestJoinsAndLeavesAtAnyStep) {
  ASSERT_TRUE(submit(1, 3, 10).ok());
  ASSERT_TRUE(plan());
  commit();
  ASSERT_TRUE(submit(2, 3, 2).ok());
  ASSERT_TRUE(plan());
  EXPECT_EQ(batch.items.size(), 2u);
  commit();
  ASSERT_TRUE(plan());
  commit();
  EXPECT_EQ(finish(2), FinishReason::kLength);
  ASSERT_TRUE(plan());
  EXPECT_EQ(batch.items.size(), 1u);
  commit();
}

TEST_F(SchedulerTest, AdmissionIsFirstComeFirstServed) {
  for (uint64_t id = 1; id <= 6; ++id) ASSERT_TRUE(submit(id, 4, 5).ok());
  ASSERT_TRUE(plan());
  for (uint64_t id = 1; id <= 4; ++id) EXPECT_NE(item(id), nullptr);
  EXPECT_EQ(state(5), SequenceState::kWaiting) << "four sequences at a time";
  commit();
  EXPECT_TRUE(scheduler.cancel(SequenceId(3)));
  ASSERT_TRUE(plan());
  EXPECT_NE(item(5), nullptr);
  EXPECT_EQ(item(6), nullptr);
  commit();
}

TEST_F(SchedulerTest, TheChunkLimitOfARequestHolds) {
  Request request;
  request.chunk_tokens_max = 7;
  ASSERT_TRUE(submit(request, 1, 20, 1).ok());
  std::vector<uint32_t> chunks;
  while (plan()) {
    chunks.push_back(batch.token_count);
    commit();
  }
  EXPECT_THAT(chunks, testing::ElementsAre(7, 7, 6));
}

TEST_F(SchedulerTest, EachEndHasItsReason) {
  const std::vector<TokenId> stops = {7, 2};
  Request stopping;
  stopping.stop_tokens = stops;
  ASSERT_TRUE(submit(stopping, 1, 3, 100).ok());  // generates 0, 1, 2
  ASSERT_TRUE(submit(2, 3, 4).ok());
  ASSERT_TRUE(submit(3, 250, kUnlimitedTokens).ok());
  next_token[SequenceId(2)] = 500;
  next_token[SequenceId(3)] = 600;
  run();
  EXPECT_EQ(finish(1), FinishReason::kStop);
  EXPECT_EQ(generated[SequenceId(1)], (std::vector<TokenId>{0, 1, 2})) << "the stop token included";
  EXPECT_EQ(finish(2), FinishReason::kLength);
  EXPECT_EQ(finish(3), FinishReason::kContext);
  EXPECT_EQ(generated[SequenceId(3)].size(), 6u) << "256 tokens of context, 250 of prompt";
}

TEST_F(SchedulerTest, AFiniteLengthThatEndsAtTheContextIsALength) {
  ASSERT_TRUE(submit(1, 250, 6).ok());
  run();
  EXPECT_EQ(finish(1), FinishReason::kLength);
}

TEST_F(SchedulerTest, AskingForNoTokensComputesThePromptAndEnds) {
  ASSERT_TRUE(submit(1, 40, 0).ok());
  ASSERT_TRUE(plan());
  commit();
  ASSERT_TRUE(plan());
  EXPECT_EQ(batch.logits_count, 0u);
  const std::vector<SequenceEvent> events = commit();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(events[0].tokens.empty());
  EXPECT_EQ(events[0].finish, FinishReason::kLength);
}

TEST_F(SchedulerTest, AScoreRequestGetsLogitsOfEveryPositionWithinTheRowsOfAStep) {
  Request request;
  request.score = true;
  ASSERT_TRUE(submit(request, 1, 40, 0).ok());
  uint32_t rows = 0;
  std::vector<ItemResult> results(1);
  while (plan()) {
    EXPECT_LE(batch.logits_count, 16u);
    EXPECT_EQ(
        batch.items[0].position_first + batch.items[0].tokens.size() - batch.items[0].logits_count,
        rows);
    rows += batch.logits_count;
    scheduler.commit(results);
  }
  EXPECT_EQ(rows, 40u);
}

TEST_F(SchedulerTest, AScoreRequestMayBeginInMidPrompt) {
  Request request;
  request.score = true;
  request.score_first = 25;
  ASSERT_TRUE(submit(request, 1, 40, 0).ok());
  uint32_t rows = 0;
  std::vector<ItemResult> results(1);
  while (plan()) {
    EXPECT_LE(batch.logits_count, 16u);
    const auto end =
        batch.items[0].position_first + static_cast<uint32_t>(batch.items[0].tokens.size());
    EXPECT_EQ(batch.logits_count, end <= 25 ? 0 : end - 25 - rows);
    rows += batch.logits_count;
    scheduler.commit(results);
  }
  EXPECT_EQ(rows, 15u);
}

TEST_F(SchedulerTest, SeveralTokensInOneCommitAreAppendedUpToTheFirstEnd) {
  const std::vector<TokenId> stops = {9};
  Request request;
  request.stop_tokens = stops;
  ASSERT_TRUE(submit(request, 1, 3, 100).ok());
  ASSERT_TRUE(plan());
  const std::vector<TokenId> three = {5, 6, 7};
  std::vector<ItemResult> results = {{three}};
  EXPECT_EQ(scheduler.commit(results)[0].tokens.size(), 3u);
  ASSERT_TRUE(plan());
  EXPECT_EQ(batch.items[0].tokens.size(), 3u) << "none of them is computed yet";
  EXPECT_EQ(batch.items[0].position_first, 3u);
  const std::vector<TokenId> beyond = {8, 9, 10};
  results = {{beyond}};
  const SequenceEvent event = scheduler.commit(results)[0];
  EXPECT_EQ(event.tokens.size(), 2u);
  EXPECT_EQ(event.finish, FinishReason::kStop);
  EXPECT_TRUE(scheduler.idle());
}

TEST_F(SchedulerTest, APausedSequenceComputesNothingAndGoesOnWhereItWas) {
  ASSERT_TRUE(submit(1, 3, 3).ok());
  ASSERT_TRUE(plan());
  EXPECT_TRUE(scheduler.pause(SequenceId(1)));
  EXPECT_EQ(commit().size(), 1u) << "the step in flight counts";
  EXPECT_FALSE(plan());
  EXPECT_TRUE(scheduler.info(SequenceId(1))->paused);
  EXPECT_EQ(scheduler.info(SequenceId(1))->pages.value, 1u);
  EXPECT_TRUE(scheduler.resume(SequenceId(1)));
  run();
  EXPECT_EQ(generated[SequenceId(1)], (std::vector<TokenId>{0, 1, 2}));
  EXPECT_FALSE(scheduler.pause(SequenceId(1)));
  EXPECT_FALSE(scheduler.resume(SequenceId(1)));
}

TEST_F(SchedulerTest, QueueAndSessionLimitsTellToTryAgain) {
  for (uint64_t id = 1; id <= 8; ++id) ASSERT_TRUE(submit(id, 4, 5).ok());
  const Result<void> full = submit(9, 4, 5);
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(full.error().message(), HasSubstr("[scheduler] queue allows 8"));
  EXPECT_EQ(scheduler.stats().refused, 1u);

  SchedulerConfig config = config_of(32);
  config.session_requests_max = 2;
  SchedulerRig other({PageCount(64), 4, 256}, config);
  ASSERT_TRUE(other.submit(1, 4, 5, 1).ok());
  ASSERT_TRUE(other.submit(2, 4, 5, 1).ok());
  EXPECT_THAT(other.submit(3, 4, 5, 1).error().message(), HasSubstr("at most 2"));
  EXPECT_TRUE(other.submit(4, 4, 5, 2).ok());
}

TEST_F(SchedulerTest, AnIdInUseIsRefused) {
  ASSERT_TRUE(submit(1, 4, 5).ok());
  EXPECT_EQ(submit(1, 4, 5).error().code(), ErrorCode::kInvalidArgument);
}

TEST_F(SchedulerTest, FiguresAreThoseOfTheSequence) {
  clock.advance_ns(1000);
  ASSERT_TRUE(submit(1, 40, 2).ok());
  clock.advance_ns(50);
  ASSERT_TRUE(plan());
  clock.advance_ns(7);
  commit();
  ASSERT_TRUE(plan());
  clock.advance_ns(7);
  commit();
  ASSERT_TRUE(plan());
  const std::vector<SequenceEvent> events = commit();
  ASSERT_EQ(events.size(), 1u);
  const SequenceStats& stats = events[0].stats;
  EXPECT_EQ(stats.prompt_tokens, 40u);
  EXPECT_EQ(stats.generated_tokens, 2u);
  EXPECT_EQ(stats.computed_tokens, 41u) << "the last token is never computed";
  EXPECT_EQ(stats.cached_tokens, 0u);
  EXPECT_EQ(stats.submitted_ns, 1000);
  EXPECT_EQ(stats.admitted_ns, 1050);
  EXPECT_EQ(stats.first_token_ns, 1064);
  EXPECT_EQ(stats.queue_wait_ns, 50);
  const SchedulerStats sums = scheduler.stats();
  EXPECT_EQ(sums.steps, 3u);
  EXPECT_EQ(sums.finished, 1u);
  EXPECT_EQ(sums.prompt_tokens, 40u);
  EXPECT_EQ(sums.computed_tokens, 41u);
  EXPECT_EQ(sums.generated_tokens, 2u);
}

TEST_F(SchedulerTest, TheListIsOrderedByAgeWhateverTheState) {
  for (uint64_t id = 1; id <= 6; ++id) ASSERT_TRUE(submit(id, 4, 5, id % 2).ok());
  ASSERT_TRUE(plan());
  commit();
  std::vector<SequenceInfo> infos;
  scheduler.list(infos);
  ASSERT_EQ(infos.size(), 6u);
  for (uint64_t id = 1; id <= 6; ++id) {
    EXPECT_EQ(infos[id - 1].sequence, SequenceId(id));
    EXPECT_EQ(infos[id - 1].user, UserId(1000 + static_cast<uint32_t>(id % 2)));
  }
  EXPECT_EQ(scheduler.stats().running, 4u);
  EXPECT_EQ(scheduler.stats().waiting, 2u);
}

using SchedulerDeathTest = SchedulerTest;

TEST_F(SchedulerDeathTest, ASecondPlanBeforeTheCommitAborts) {
  ASSERT_TRUE(submit(1, 4, 5).ok());
  ASSERT_TRUE(plan());
  EXPECT_DEATH((void)plan(), "check failed");
}

TEST_F(SchedulerDeathTest, ATokenThatIsMissingOrTooManyAborts) {
  ASSERT_TRUE(submit(1, 4, 5).ok());
  ASSERT_TRUE(plan());
  std::vector<ItemResult> none(1);
  EXPECT_DEATH((void)scheduler.commit(none), "check failed");
  EXPECT_DEATH((void)scheduler.commit({}), "check failed");
}

}  // namespace
}  // namespace inferd::scheduler
