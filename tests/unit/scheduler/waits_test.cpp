// What a plan tells about those whom it left out, and what is computed a second time.
#include <gtest/gtest.h>

#include "tests/unit/scheduler/scheduler_test_util.h"

namespace inferd::scheduler {
namespace {

SchedulerConfig config_of(uint32_t step_tokens) {
  SchedulerConfig config;
  config.step_tokens = step_tokens;
  config.step_logits = 16;
  config.context_tokens = 256;
  config.queue_max = 16;
  return config;
}

void expect_waits(const StepWaits& waits, const StepWaits& expected) {
  EXPECT_EQ(waits.computing, expected.computing);
  EXPECT_EQ(waits.recomputing, expected.recomputing);
  EXPECT_EQ(waits.for_pages, expected.for_pages);
  EXPECT_EQ(waits.for_prefix, expected.for_prefix);
  EXPECT_EQ(waits.for_turn, expected.for_turn);
}

TEST(StepWaits, NobodyWaitsWhereAllCompute) {
  SchedulerRig rig({PageCount(64), 4, 256}, config_of(32));
  EXPECT_FALSE(rig.plan());
  expect_waits(rig.scheduler.waits(), {});
  ASSERT_TRUE(rig.submit(1, 4, 2).ok());
  ASSERT_TRUE(rig.submit(2, 4, 2).ok());
  ASSERT_TRUE(rig.plan());
  expect_waits(rig.scheduler.waits(), {.computing = 2});
  rig.commit();
  rig.run();
  expect_waits(rig.scheduler.waits(), {});
}

TEST(StepWaits, TokensAndPlacesOfTheStepAreATurn) {
  SchedulerRig rig({PageCount(64), 4, 256}, config_of(32));
  for (uint64_t id = 1; id <= 6; ++id) ASSERT_TRUE(rig.submit(id, 4, 5, id).ok());
  ASSERT_TRUE(rig.plan());
  expect_waits(rig.scheduler.waits(), {.computing = 4, .for_turn = 2});
  rig.commit();
  ASSERT_TRUE(rig.plan({3, 16}));
  expect_waits(rig.scheduler.waits(), {.computing = 3, .for_turn = 3});
  rig.commit();
}

TEST(StepWaits, PausedOnesAreNotWaiting) {
  SchedulerRig rig({PageCount(64), 4, 256}, config_of(32));
  for (uint64_t id = 1; id <= 5; ++id) ASSERT_TRUE(rig.submit(id, 4, 5, id).ok());
  ASSERT_TRUE(rig.plan());
  rig.commit();
  for (uint64_t id = 3; id <= 5; ++id) rig.scheduler.pause(SequenceId(id));
  ASSERT_TRUE(rig.plan());
  expect_waits(rig.scheduler.waits(), {.computing = 2});
  rig.commit();
}

TEST(StepWaits, WhoDoesNotFitWaitsForPages) {
  SchedulerRig rig({PageCount(8), 4, 128}, config_of(64));
  ASSERT_TRUE(rig.submit(1, 60, 30, 1).ok());
  ASSERT_TRUE(rig.submit(2, 60, 30, 2).ok());
  ASSERT_TRUE(rig.submit(3, 60, 30, 3).ok());
  ASSERT_TRUE(rig.plan());
  expect_waits(rig.scheduler.waits(), {.computing = 1, .for_pages = 2});
  rig.commit();
  rig.run();
}

// The older one has the last page and writes into it for a while; nobody may take it from that one.
TEST(StepWaits, WhoRunsButCannotGrowWaitsForPages) {
  SchedulerRig rig({PageCount(8), 4, 128}, config_of(64));
  ASSERT_TRUE(rig.submit(1, 40, 30, 1).ok());
  ASSERT_TRUE(rig.submit(2, 54, 30, 2).ok());
  uint32_t stood_still = 0;
  while (rig.plan()) {
    if (rig.scheduler.stats().running == 2 && rig.item(2) == nullptr) {
      ++stood_still;
      expect_waits(rig.scheduler.waits(), {.computing = 1, .for_pages = 1});
    }
    rig.commit();
  }
  EXPECT_GT(stood_still, 0u);
}

TEST(StepWaits, WhoWaitsForAPrefixWaitsForNeither) {
  SchedulerRig rig({PageCount(64), 4, 256}, config_of(32));
  for (uint64_t id = 1; id <= 2; ++id) {
    Request request;
    request.sequence = SequenceId(id);
    request.session = SessionId(id);
    request.user = UserId(1000);
    request.domain = CacheDomain(1);
    const std::vector<TokenId> prompt(100, 7);
    request.prompt = prompt;
    request.max_tokens = 2;
    ASSERT_TRUE(rig.scheduler.submit(request).ok());
  }
  ASSERT_TRUE(rig.plan());
  expect_waits(rig.scheduler.waits(), {.computing = 1, .for_prefix = 1});
  rig.commit();
  rig.run();
}

// Two that both fit at first and outgrow the pool: the younger one lets go, and later has again only what
// it lost, while nobody else has anything to do.
TEST(StepWaits, ComputingAgainIsTold) {
  SchedulerRig rig({PageCount(8), 4, 128}, config_of(16));
  ASSERT_TRUE(rig.submit(1, 30, 60, 1).ok());
  ASSERT_TRUE(rig.submit(2, 30, 60, 2).ok());
  uint32_t waited = 0;
  uint32_t again = 0;
  while (rig.plan()) {
    const StepWaits waits = rig.scheduler.waits();
    waited += waits.for_pages;
    again += waits.recomputing;
    if (rig.scheduler.stats().preemptions == 0) {
      EXPECT_EQ(waits.recomputing, 0u);
    }
    rig.commit();
  }
  const SchedulerStats stats = rig.scheduler.stats();
  EXPECT_GT(stats.preemptions, 0u);
  EXPECT_GT(waited, 0u);
  EXPECT_GT(again, 0u);
  EXPECT_GT(stats.recomputed_tokens, 0u);
  // Every position once, but for the last token of each, and those again.
  EXPECT_EQ(stats.computed_tokens, 2u * 89 + stats.recomputed_tokens);
}

TEST(StepWaits, ARequestSaysWhatItComputedAgainAndHowLongItWaits) {
  SchedulerRig rig({PageCount(8), 4, 128}, config_of(16));
  ASSERT_TRUE(rig.submit(1, 30, 60, 1).ok());
  ASSERT_TRUE(rig.submit(2, 30, 60, 2).ok());
  while (rig.scheduler.stats().preemptions == 0) {
    ASSERT_TRUE(rig.plan());
    rig.commit();
  }
  rig.clock.advance_ns(70);
  SequenceInfo info = *rig.scheduler.info(SequenceId(2));
  EXPECT_EQ(info.state, SequenceState::kWaiting);
  EXPECT_EQ(info.waiting_ns, 70);
  EXPECT_EQ(info.stats.recomputed_tokens, 0u);
  const uint64_t before = info.stats.computed_tokens;
  while (rig.state(2) == SequenceState::kWaiting) {
    ASSERT_TRUE(rig.plan());
    rig.commit();
  }
  info = *rig.scheduler.info(SequenceId(2));
  EXPECT_EQ(info.waiting_ns, 0);
  EXPECT_EQ(info.stats.queue_wait_ns, 70);
  EXPECT_GT(info.stats.recomputed_tokens, 0u);
  EXPECT_EQ(info.stats.recomputed_tokens, info.stats.computed_tokens - before);
}

}  // namespace
}  // namespace inferd::scheduler
