// Sequences that load from the next tier: when they do, what it costs, and what ends it.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/unit/scheduler/scheduler_test_util.h"

namespace inferd::scheduler {
namespace {

using memory::FetchState;
using memory::SlotRef;

// A tier that the test has in hand.
class HandTier final : public memory::PageTier {
 public:
  uint32_t stores_free() const override { return room; }
  double fetch_ns() const override { return ns; }
  FetchState fetch(SlotRef slot) override {
    asked.insert(slot.slot);
    const auto found = states.find(slot.slot);
    return found == states.end() ? otherwise : found->second;
  }

  uint32_t room = 1000;
  double ns = 0;
  FetchState otherwise = FetchState::kHere;
  std::map<uint32_t, FetchState> states;
  std::set<uint32_t> asked;
};

class Loading : public testing::Test {
 protected:
  Loading() { rig_.memory.set_tier(&tier_); }
  ~Loading() override { rig_.memory.stores().clear(); }

  void submit(uint64_t id, uint32_t tokens, uint32_t max_tokens = 2, uint64_t text = 1) {
    std::vector<TokenId> prompt;
    for (uint32_t i = 0; i < tokens; ++i) prompt.push_back(static_cast<TokenId>(text * 1000 + i));
    Request request;
    request.sequence = SequenceId(id);
    request.session = SessionId(id);
    request.user = UserId(1000);
    request.prompt = prompt;
    request.max_tokens = max_tokens;
    request.domain = CacheDomain(1);
    ASSERT_TRUE(rig_.scheduler.submit(request).ok());
  }
  // Computes a prompt of so many tokens and has its pages leave for the next tier.
  void store(uint32_t tokens, uint64_t text = 1) {
    submit(next_id_, tokens, 1, text);
    rig_.run();
    ++next_id_;
    rig_.memory.drop_cached(UINT32_MAX, UINT32_MAX);
    rig_.memory.stores().clear();
  }
  SequenceStats stats(uint64_t id) const { return rig_.scheduler.info(SequenceId(id))->stats; }

  uint64_t next_id_ = 100;
  HandTier tier_;
  SchedulerRig rig_{
      {.pages = PageCount(64), .sequences_max = 8, .sequence_tokens_max = 1024, .tier_slots = 256},
      long_config(64)};
};

TEST_F(Loading, WhatTheTierHasIsNotComputed) {
  store(200);
  submit(1, 200);
  ASSERT_TRUE(rig_.plan());
  EXPECT_EQ(rig_.batch.loads.size(), 12u);
  EXPECT_TRUE(rig_.batch.items.empty());
  rig_.commit();
  EXPECT_EQ(stats(1).loaded_tokens, 192u);
  EXPECT_EQ(stats(1).cached_tokens, 192u);
  ASSERT_TRUE(rig_.plan());
  ASSERT_NE(rig_.item(1), nullptr);
  EXPECT_EQ(rig_.item(1)->tokens.size(), 8u);
  rig_.commit();
  rig_.run();
  EXPECT_EQ(rig_.finish(1), FinishReason::kLength);
}

TEST_F(Loading, OthersComputeMeanwhile) {
  store(200);
  tier_.otherwise = FetchState::kComing;
  submit(1, 200);
  submit(2, 40, 2, 5);
  ASSERT_TRUE(rig_.plan());
  EXPECT_TRUE(rig_.batch.loads.empty());
  ASSERT_EQ(rig_.batch.items.size(), 1u);
  EXPECT_EQ(rig_.batch.items[0].sequence, SequenceId(2));
  EXPECT_EQ(rig_.scheduler.waits().computing, 1u);
  EXPECT_EQ(rig_.scheduler.waits().for_pages, 1u);  // too few pages sent its own to the tier
  rig_.commit();
  rig_.run();
  EXPECT_EQ(rig_.finish(2), FinishReason::kLength);
  EXPECT_EQ(rig_.finish(1), FinishReason::kNone);
  EXPECT_FALSE(rig_.plan());  // nothing to do but to wait for the tier
  EXPECT_EQ(rig_.scheduler.waits().for_pages, 1u);
  tier_.otherwise = FetchState::kHere;
  rig_.run();
  EXPECT_EQ(rig_.finish(1), FinishReason::kLength);
  EXPECT_EQ(rig_.scheduler.stats().loaded_tokens, 192u);
}

TEST_F(Loading, WhatComesAfterALostPageIsComputed) {
  store(200);
  std::vector<PageId> pages;
  std::vector<SlotRef> stored;
  std::vector<TokenId> tokens;
  for (uint32_t i = 0; i < 200; ++i) tokens.push_back(static_cast<TokenId>(1000 + i));
  rig_.memory.prefixes().lookup(CacheDomain(1), tokens, pages, &stored);
  ASSERT_EQ(stored.size(), 12u);
  tier_.states[stored[3].slot] = FetchState::kLost;
  submit(1, 200);
  rig_.run();
  EXPECT_EQ(rig_.finish(1), FinishReason::kLength);
  EXPECT_EQ(rig_.scheduler.stats().loaded_tokens, 48u);
  // It was computed anew and is cached as ever.
  EXPECT_EQ(rig_.memory.prefixes().lookup(CacheDomain(1), tokens, pages, &stored), 200u / 16 * 16);
}

TEST_F(Loading, ATierThatDoesNotAnswerIsNotWaitedFor) {
  store(200);
  tier_.otherwise = FetchState::kUnavailable;
  submit(1, 200);
  rig_.run();
  EXPECT_EQ(rig_.finish(1), FinishReason::kLength);
  EXPECT_EQ(rig_.scheduler.stats().loaded_tokens, 0u);
}

TEST_F(Loading, ASlowTierIsLeftAloneAndNotWrittenTo) {
  store(200);
  tier_.ns = 1e9;
  submit(1, 200);
  StepBudget budget = rig_.scheduler.step_budget();
  budget.cost = {1e6, 0, 1e5, 0};  // a page's tokens take 1.6 ms
  tier_.asked.clear();
  ASSERT_TRUE(rig_.plan(budget));
  EXPECT_TRUE(rig_.batch.loads.empty());
  EXPECT_TRUE(tier_.asked.empty());
  rig_.commit();
  rig_.run();
  ASSERT_EQ(rig_.memory.prefixes().flush_all(), 12u);
  submit(2, 200);
  rig_.run();
  ASSERT_TRUE(rig_.memory.pool().counts().cached.value > 0);
  submit(3, 1000, 1, 7);  // needs their pages
  while (rig_.plan(budget)) rig_.commit();
  EXPECT_EQ(rig_.memory.prefixes().slots_used(), 0u);
}

TEST_F(Loading, ThoseWithTheSameBeginningWaitForTheOneThatLoads) {
  store(200);
  tier_.otherwise = FetchState::kComing;
  submit(1, 200);
  submit(2, 200);
  submit(3, 200);
  EXPECT_FALSE(rig_.plan());
  EXPECT_EQ(rig_.scheduler.stats().running, 1u);
  tier_.otherwise = FetchState::kHere;
  rig_.run();
  EXPECT_EQ(rig_.scheduler.stats().loaded_tokens, 192u);
  EXPECT_EQ(rig_.scheduler.stats().finished, 4u);
}

TEST_F(Loading, CancelledWhileItLoadsItLeavesNothing) {
  store(200);
  submit(1, 200);
  ASSERT_TRUE(rig_.plan());
  ASSERT_FALSE(rig_.batch.loads.empty());
  EXPECT_TRUE(rig_.scheduler.cancel(SequenceId(1)));
  rig_.commit();
  EXPECT_TRUE(rig_.scheduler.idle());
  EXPECT_EQ(rig_.memory.available(), PageCount(64));
  tier_.otherwise = FetchState::kComing;
  submit(2, 200);
  EXPECT_FALSE(rig_.plan());
  EXPECT_TRUE(rig_.scheduler.cancel(SequenceId(2)));
  EXPECT_TRUE(rig_.scheduler.idle());
  EXPECT_EQ(verdict(rig_.scheduler.verify()), "");
}

TEST_F(Loading, APreemptedSequenceComesBackByLoading) {
  submit(1, 16, 600, 1);
  submit(2, 16, 500, 2);  // together they want more than 64 pages
  uint32_t steps = 0;
  while (rig_.plan() && ++steps < 2000) {
    rig_.memory.stores().clear();
    rig_.commit();
  }
  const SchedulerStats stats = rig_.scheduler.stats();
  EXPECT_EQ(stats.finished, 2u);
  ASSERT_GT(stats.preemptions, 0u);
  ASSERT_GT(stats.loaded_tokens, 0u);
  // What was lost with the pages is at most a page and a half for each time.
  EXPECT_LE(stats.computed_tokens, 16u + 600 + 16 + 500 + stats.preemptions * 24);
}

TEST_F(Loading, LoadingIsNotCharged) {
  store(200);
  submit(1, 200);
  rig_.run();
  // A step's tokens were not spent on it: prefill of the rest and one decode.
  EXPECT_EQ(rig_.scheduler.stats().computed_tokens, 200u + 8 + 1);
}

}  // namespace
}  // namespace inferd::scheduler
