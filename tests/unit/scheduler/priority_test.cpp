// Classes, nice and the latency target.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/unit/scheduler/scheduler_test_util.h"

namespace inferd::scheduler {
namespace {

constexpr auto kBatch = PriorityClass::kBatch;
constexpr auto kIdle = PriorityClass::kIdle;

SchedulerConfig config_of() {
  SchedulerConfig config;
  config.step_tokens = 64;
  config.step_logits = 64;
  config.context_tokens = 1024;
  config.queue_max = 256;
  return config;
}

class Priority : public testing::Test {
 protected:
  Priority() : rig_({PageCount(2048), 48, 1024}, config_of()) {}

  Result<void> submit(uint64_t id, uint32_t prompt_tokens, uint32_t max_tokens,
                      PriorityClass priority = PriorityClass::kInteractive, uint64_t session = 1,
                      int32_t nice = 0) {
    Request request;
    request.priority = priority;
    request.nice = nice;
    return rig_.submit(request, id, prompt_tokens, max_tokens, session);
  }
  // One step within this time; tokens that the sequences of `ids` computed in it.
  uint32_t step(std::initializer_list<uint64_t> ids = {}, int64_t time_ns = 0) {
    StepBudget budget = rig_.scheduler.step_budget();
    budget.time_ns = time_ns;
    budget.cost = cost_;
    EXPECT_TRUE(rig_.plan(budget));
    uint32_t tokens = 0;
    for (uint64_t id : ids) {
      const BatchItem* item = rig_.item(id);
      tokens += item == nullptr ? 0 : static_cast<uint32_t>(item->tokens.size());
    }
    rig_.commit();
    return tokens;
  }
  double planned_ns() const {
    double ns = cost_.step_ns;
    for (const BatchItem& item : rig_.batch.items) {
      ns += cost_.share_ns(static_cast<uint32_t>(item.tokens.size()), item.logits_count,
                           item.position_first);
    }
    return ns;
  }

  StepCost cost_{5e6, 0.5e6, 0.5e6, 100};
  SchedulerRig rig_;
};

TEST_F(Priority, AnEarlierClassIsServedFirstAndALaterOneKeepsItsShare) {
  for (uint64_t id = 1; id <= 20; ++id) ASSERT_TRUE(submit(id, 900, 2, kBatch, 1).ok());
  for (int i = 0; i < 10; ++i) step();
  for (uint64_t id = 101; id <= 140; ++id) {
    ASSERT_TRUE(submit(id, 900, 2, PriorityClass::kInteractive, 2).ok());
  }
  uint32_t batch = 0;
  uint32_t all = 0;
  for (int i = 0; i < 300; ++i) {
    step();
    for (const BatchItem& item : rig_.batch.items) {
      const auto tokens = static_cast<uint32_t>(item.tokens.size());
      all += tokens;
      if (item.sequence.value <= 20) batch += tokens;
    }
  }
  EXPECT_NEAR(batch / static_cast<double>(all), 0.10, 0.02) << "share_percent of the class";
}

TEST_F(Priority, ALaterClassMakesWayForPagesAndIsNotStarvedOfThemEither) {
  SchedulerRig rig({PageCount(20), 8, 256}, config_of());
  Request batch;
  batch.priority = kBatch;
  for (uint64_t id = 1; id <= 2; ++id) ASSERT_TRUE(rig.submit(batch, id, 130, 20, 1).ok());
  ASSERT_TRUE(rig.plan());
  rig.commit();
  ASSERT_TRUE(rig.plan());
  rig.commit();
  // A request of the first class takes their pages at once.
  ASSERT_TRUE(rig.submit(10, 200, 10, 2).ok());
  ASSERT_TRUE(rig.plan());
  EXPECT_NE(rig.item(10), nullptr);
  rig.commit();
  EXPECT_GT(rig.scheduler.stats().preemptions, 0u);
  // And if such requests never cease, the batch is done all the same.
  uint64_t next = 11;
  uint32_t steps = 0;
  while (rig.finish(1) == FinishReason::kNone || rig.finish(2) == FinishReason::kNone) {
    while (rig.scheduler.stats().waiting < 6) ASSERT_TRUE(rig.submit(next++, 200, 10, 2).ok());
    ASSERT_TRUE(rig.plan());
    rig.commit();
    ASSERT_LT(++steps, 3000u);
  }
}

TEST_F(Priority, IdleRequestsRunWithWhatOthersLeave) {
  ASSERT_TRUE(submit(1, 600, 2, kIdle).ok());
  EXPECT_EQ(step({1}), 64u) << "alone it has everything";
  ASSERT_TRUE(submit(2, 600, 2, kBatch).ok());
  uint32_t idle = 0;
  uint32_t batch = 0;
  for (int i = 0; i < 9; ++i) {
    idle += step({1});
    const BatchItem* item = rig_.item(2);
    batch += item == nullptr ? 0 : static_cast<uint32_t>(item->tokens.size());
  }
  EXPECT_GT(batch, 20 * idle);
}

TEST_F(Priority, NobodyWaitsForAPrefixThatALaterClassComputes) {
  Request batch;
  batch.priority = kBatch;
  batch.domain = CacheDomain(7);
  ASSERT_TRUE(rig_.submit(batch, 1, 900, 2).ok());
  step();
  std::vector<TokenId> prompt;
  for (uint32_t i = 0; i < 900; ++i) prompt.push_back(static_cast<TokenId>(1000 + i));
  Request same;
  same.sequence = SequenceId(2);
  same.session = SessionId(2);
  same.user = UserId(1001);
  same.domain = CacheDomain(7);
  same.prompt = prompt;
  same.max_tokens = 2;
  ASSERT_TRUE(rig_.scheduler.submit(same).ok());
  EXPECT_EQ(step({2}), 64u) << "all of the step is its own";
  // The batch, for its part, waits for what the other one computes, or takes it when it is there.
  rig_.run();
  EXPECT_LT(rig_.scheduler.stats().computed_tokens, 1800u + 64);
}

TEST_F(Priority, NiceOrdersASessionsRequestsAndReniceMovesThem) {
  ASSERT_TRUE(submit(1, 900, 1).ok());
  step();
  ASSERT_TRUE(submit(2, 900, 1, PriorityClass::kInteractive, 1, 5).ok());
  ASSERT_TRUE(submit(3, 900, 1, PriorityClass::kInteractive, 1, -5).ok());
  ASSERT_TRUE(submit(4, 900, 1, PriorityClass::kInteractive, 1, 10).ok());
  EXPECT_TRUE(rig_.scheduler.renice(SequenceId(4), PriorityClass::kInteractive, -10));
  EXPECT_FALSE(rig_.scheduler.renice(SequenceId(99), PriorityClass::kInteractive, 0));
  std::vector<uint64_t> order;
  while (rig_.finished.size() < 4) {
    const size_t before = rig_.finished.size();
    step();
    if (rig_.finished.size() == before) continue;
    for (const auto& [sequence, reason] : rig_.finished) {
      if (std::find(order.begin(), order.end(), sequence.value) == order.end()) {
        order.push_back(sequence.value);
      }
    }
  }
  EXPECT_EQ(order, (std::vector<uint64_t>{4, 1, 3, 2}));
}

TEST_F(Priority, ReniceToALaterClassTakesEffectAtOnce) {
  ASSERT_TRUE(submit(1, 900, 1).ok());
  ASSERT_TRUE(submit(2, 900, 1, PriorityClass::kInteractive, 2).ok());
  step();
  EXPECT_TRUE(rig_.scheduler.renice(SequenceId(1), kIdle, 0));
  EXPECT_EQ(verdict(rig_.scheduler.verify()), "");
  uint32_t first = 0;
  for (int i = 0; i < 10; ++i) first += step({1});
  EXPECT_LT(first, 64u);
}

TEST_F(Priority, APromptIsCutToKeepTheTargetOfAnswersUnderWay) {
  ASSERT_TRUE(submit(1, 10, 200).ok());
  step();
  ASSERT_TRUE(submit(2, 900, 1, PriorityClass::kInteractive, 2).ok());
  for (int i = 0; i < 20; ++i) {
    EXPECT_GE(step({2}, 20'000'000), 20u) << "it goes on";
    EXPECT_NE(rig_.item(1), nullptr);
    EXPECT_LE(planned_ns(), 20e6);
    EXPECT_GE(planned_ns(), 18e6) << "and takes all that the target leaves";
  }
}

TEST_F(Priority, TheTargetIsKeptWhicheverFiguresAreZero) {
  const StepCost costs[] = {{0, 0.5e6, 0.5e6, 100}, {5e6, 0, 0.5e6, 100}, {0, 0, 0.5e6, 0},
                            {0, 0, 0, 20'000}};
  uint64_t id = 10;
  for (const StepCost& cost : costs) {
    cost_ = cost;
    ASSERT_TRUE(submit(id, 10, 40).ok());
    step({}, 20'000'000);
    ASSERT_TRUE(submit(id + 1, 900, 1, PriorityClass::kInteractive, 2).ok());
    for (int i = 0; i < 10; ++i) {
      EXPECT_GE(step({id + 1}, 20'000'000), 1u);
      EXPECT_LE(planned_ns(), 20e6);
      EXPECT_GE(planned_ns(), 17e6);
    }
    rig_.scheduler.cancel(SequenceId(id));
    rig_.scheduler.cancel(SequenceId(id + 1));
    id += 10;
  }
}

TEST_F(Priority, WithNoInteractiveAnswerUnderWayTheTargetIsNobodys) {
  ASSERT_TRUE(submit(1, 10, 200, kBatch).ok());
  step();
  ASSERT_TRUE(submit(2, 900, 1, kBatch, 2).ok());
  EXPECT_EQ(step({2}, 20'000'000), 63u);
}

TEST_F(Priority, ABatchSkipsStepsSoThatAStreamKeepsItsTarget) {
  for (uint64_t id = 1; id <= 32; ++id) ASSERT_TRUE(submit(id, 4, 400).ok());
  for (int i = 0; i < 5; ++i) step();
  ASSERT_TRUE(submit(99, 4, 100, PriorityClass::kInteractive, 2).ok());
  step();
  std::map<uint64_t, uint32_t> served;
  for (int i = 0; i < 62; ++i) {
    // 5 ms and 1 ms for each: ten answers fit into 15 ms, the stream's among them.
    EXPECT_EQ(step({99}, 15'100'000), 1u);
    EXPECT_LE(planned_ns(), 15.1e6);
    EXPECT_GE(rig_.batch.items.size(), 9u);
    for (const BatchItem& item : rig_.batch.items) ++served[item.sequence.value];
  }
  // The batch's answers take turns.
  uint32_t least = 1000;
  uint32_t most = 0;
  for (uint64_t id = 1; id <= 32; ++id) {
    least = std::min(least, served[id]);
    most = std::max(most, served[id]);
  }
  EXPECT_LE(most - least, 1u);
}

TEST_F(Priority, ABatchsAnswersLeaveTimeForTheLeastOfItsPrompts) {
  for (uint64_t id = 1; id <= 16; ++id) ASSERT_TRUE(submit(id, 4, 400, kBatch).ok());
  for (int i = 0; i < 5; ++i) step();
  ASSERT_TRUE(submit(99, 4, 400, PriorityClass::kInteractive, 2).ok());
  step();
  ASSERT_TRUE(submit(50, 900, 1, kBatch).ok());
  for (int i = 0; i < 40; ++i) {
    // 5 ms and 1 ms for each answer, half a millisecond for a token of the prompt.
    EXPECT_GE(step({50}, 15'500'000), 4u);
    EXPECT_NE(rig_.item(99), nullptr);
    EXPECT_LE(planned_ns(), 15.5e6);
    EXPECT_GE(rig_.batch.items.size(), 8u);
  }
}

TEST_F(Priority, NobodysAnswersAreCutIfThatKeepsNobodysTarget) {
  for (uint64_t id = 1; id <= 16; ++id) {
    ASSERT_TRUE(submit(id, 4, 400, PriorityClass::kInteractive, 1).ok());
    ASSERT_TRUE(submit(100 + id, 4, 400, PriorityClass::kInteractive, 2).ok());
  }
  for (int i = 0; i < 5; ++i) step();
  step({}, 15'000'000);
  EXPECT_EQ(rig_.batch.items.size(), 32u);
}

TEST(StepCost, IsLearnedFromWhatStepsTook) {
  const StepCost truth{4e6, 0.8e6, 0.3e6, 50};
  StepCostModel model;
  EXPECT_EQ(model.cost().step_ns, 0);
  std::vector<TokenId> tokens(512, 1);
  BatchPlan plan;
  const auto add = [&](uint32_t count, uint32_t rows, uint32_t position) {
    plan.items.push_back({SequenceId(plan.items.size() + 1), {}, std::span(tokens).first(count),
                          position, rows});
    plan.token_count += count;
    plan.logits_count += rows;
    return truth.share_ns(count, rows, position);
  };
  const auto measure = [&](uint32_t decodes, uint32_t chunk, uint32_t position) {
    plan.clear();
    double ns = truth.step_ns;
    for (uint32_t i = 0; i < decodes; ++i) ns += add(1, 1, position);
    if (chunk > 1) ns += add(chunk, chunk % 2, position);
    return static_cast<int64_t>(ns);
  };
  for (uint32_t i = 0; i < 200; ++i) {
    const int64_t took_ns = measure(i % 9, 2 + (i * 37) % 200, (i * 101) % 3000);
    model.observe(plan, took_ns);
  }
  for (const auto& [decodes, chunk, position] :
       {std::tuple{8u, 0u, 100u}, {1u, 128u, 2000u}, {0u, 500u, 0u}, {4u, 64u, 1000u}}) {
    const auto took_ns = static_cast<double>(measure(decodes, chunk, position));
    EXPECT_NEAR(model.predict_ns(plan) / took_ns, 1, 0.05) << decodes << " " << chunk;
  }
  // Steps that are all alike take nothing of that away, and a slower machine is noticed.
  for (uint32_t i = 0; i < 400; ++i) model.observe(plan, 2 * measure(4, 0, 1000));
  EXPECT_NEAR(model.predict_ns(plan) / static_cast<double>(2 * measure(4, 0, 1000)), 1, 0.05);
  EXPECT_GE(model.cost().token_ns, 0);
}

// For minutes there were only short answers, so that nothing is known of depth; then a long prompt comes.
TEST(StepCost, WhatALongContextCostsIsLearnedInAFewSteps) {
  const StepCost truth{3.6e6, 0.5e6, 1.2e6, 1155};
  StepCostModel model;
  std::vector<TokenId> tokens(512, 1);
  BatchPlan plan;
  double took_ns = 0;
  const auto begin = [&] {
    plan.clear();
    took_ns = truth.step_ns;
  };
  const auto add = [&](uint32_t count, uint32_t rows, uint32_t position) {
    plan.items.push_back({SequenceId(plan.items.size() + 1), {}, std::span(tokens).first(count),
                          position, rows});
    plan.token_count += count;
    plan.logits_count += rows;
    took_ns += truth.share_ns(count, rows, position);
  };
  begin();
  for (int i = 0; i < 4; ++i) add(100, 1, 0);
  model.observe(plan, static_cast<int64_t>(took_ns));
  for (uint32_t i = 0; i < 2000; ++i) {
    begin();
    for (int k = 0; k < 4; ++k) add(1, 1, 100 + i % 200);
    model.observe(plan, static_cast<int64_t>(took_ns));
  }
  for (uint32_t position = 0; position < 4000; position += 24) {
    begin();
    for (int k = 0; k < 4; ++k) add(1, 1, 200);
    add(24, 0, position);
    if (position > 240) {
      EXPECT_NEAR(model.predict_ns(plan) / took_ns, 1, 0.05) << "at " << position;
    }
    model.observe(plan, static_cast<int64_t>(took_ns));
  }
}

// A machine on which every `period`-th step takes `slow` times what was foreseen: how many of the last 1,000
// of `steps` steps, each planned for what the margin leaves, end after the target.
uint32_t late_steps(StepMargin& margin, uint32_t steps, uint32_t period, double slow) {
  constexpr int64_t kTargetNs = 50'000'000;
  uint32_t late = 0;
  for (uint32_t i = 0; i < steps; ++i) {
    const auto predicted_ns = static_cast<double>(margin.planned_ns(kTargetNs));
    const auto step_ns = static_cast<int64_t>(predicted_ns * (i % period == 0 ? slow : 1));
    if (i + 1000 >= steps && step_ns > kTargetNs) ++late;
    margin.observe(predicted_ns, step_ns, kTargetNs);
  }
  return late;
}

TEST(StepMargin, KeepsInReserveWhatTheMachineNeeds) {
  constexpr int64_t kTargetNs = 50'000'000;
  StepMargin calm;
  EXPECT_EQ(late_steps(calm, 3000, 1, 1.0), 0u);
  EXPECT_GT(calm.planned_ns(kTargetNs), kTargetNs * 94 / 100);
  StepMargin shared;  // one step of ten takes longer, but of 1,000 no more than a few are late
  EXPECT_LE(late_steps(shared, 3000, 10, 1.4), 30u);
  EXPECT_LT(shared.planned_ns(kTargetNs), kTargetNs * 75 / 100);
  EXPECT_EQ(late_steps(shared, 3000, 1, 1.0), 0u);
  EXPECT_GT(shared.planned_ns(kTargetNs), kTargetNs * 94 / 100);
  // What is rarer than the part that may be late costs nothing in the long run.
  StepMargin rare;
  EXPECT_LE(late_steps(rare, 5000, 500, 3.0), 2u);
  EXPECT_GT(rare.planned_ns(kTargetNs), kTargetNs * 85 / 100);
}

TEST(StepMargin, LooksOnlyAtStepsThatWereGivenAllTheTimeAndStaysWithinBounds) {
  constexpr int64_t kTargetNs = 50'000'000;
  StepMargin margin;
  const int64_t before = margin.planned_ns(kTargetNs);
  for (uint32_t i = 0; i < 1000; ++i) margin.observe(30e6, 70'000'000, kTargetNs);
  for (uint32_t i = 0; i < 1000; ++i) margin.observe(49e6, 400'000'000, 0);
  EXPECT_EQ(margin.planned_ns(kTargetNs), before);
  for (uint32_t i = 0; i < 1000; ++i) margin.observe(49e6, 400'000'000, kTargetNs);
  EXPECT_GE(margin.planned_ns(kTargetNs), kTargetNs / 2);
  EXPECT_EQ(margin.planned_ns(0), 0);
}

}  // namespace
}  // namespace inferd::scheduler
