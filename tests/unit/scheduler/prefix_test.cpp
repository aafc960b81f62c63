// What the scheduler makes of the prefix index: work that many ask for is done once.
#include <gtest/gtest.h>

#include "tests/unit/scheduler/scheduler_test_util.h"

namespace inferd::scheduler {
namespace {

constexpr memory::MemoryConfig kMemory{
    .pages = PageCount(1024), .sequences_max = 16, .sequence_tokens_max = 4096};

// `common` tokens that all such prompts begin with, then `own` that only this one has.
std::vector<TokenId> prompt_of(uint64_t id, uint32_t common, uint32_t own) {
  std::vector<TokenId> prompt;
  for (uint32_t i = 0; i < common; ++i) prompt.push_back(static_cast<TokenId>(i));
  for (uint32_t i = 0; i < own; ++i) prompt.push_back(static_cast<TokenId>(10'000 * id + i));
  return prompt;
}

class PrefixSharing : public testing::Test {
 protected:
  void submit(uint64_t id, const std::vector<TokenId>& prompt, uint32_t max_tokens,
              CacheDomain domain = CacheDomain(1)) {
    Request request;
    request.sequence = SequenceId(id);
    request.session = SessionId(id);
    request.user = UserId(1000);
    request.prompt = prompt;
    request.max_tokens = max_tokens;
    request.domain = domain;
    ASSERT_TRUE(rig_.scheduler.submit(request).ok());
  }
  SequenceStats stats(uint64_t id) const { return rig_.scheduler.info(SequenceId(id))->stats; }

  SchedulerRig rig_{kMemory, long_config(512)};
};

TEST_F(PrefixSharing, EightClientsWithOnePreambleHaveItComputedOnce) {
  for (uint64_t id = 1; id <= 8; ++id) submit(id, prompt_of(id, 1500, 20), 4);
  rig_.run();
  const SchedulerStats stats = rig_.scheduler.stats();
  EXPECT_EQ(stats.finished, 8u);
  // The preamble once, what each has of its own, and three tokens each that were generated.
  EXPECT_EQ(stats.computed_tokens, 1500u + 8 * 20 + 8 * 3);
  EXPECT_EQ(stats.cached_tokens, 7u * 1500);
  EXPECT_EQ(stats.preemptions, 0u);
}

TEST_F(PrefixSharing, WhoWaitsForAPrefixHoldsUpNobodyBehind) {
  submit(1, prompt_of(1, 2000, 20), 4);
  submit(2, prompt_of(2, 2000, 20), 4);
  submit(3, prompt_of(3, 0, 30), 4);
  ASSERT_TRUE(rig_.plan({100, 16, 50}));
  EXPECT_NE(rig_.item(1), nullptr);
  EXPECT_EQ(rig_.item(2), nullptr);
  EXPECT_NE(rig_.item(3), nullptr);
  rig_.commit();
  rig_.run();
  EXPECT_EQ(rig_.scheduler.stats().cached_tokens, 2000u);
}

TEST_F(PrefixSharing, ItWaitsNoLongerThanTheOtherOneComputes) {
  submit(1, prompt_of(1, 1000, 20), 4);
  submit(2, prompt_of(2, 1000, 20), 4);
  ASSERT_TRUE(rig_.plan({64, 16, 0}));
  rig_.commit();
  EXPECT_EQ(rig_.state(2), SequenceState::kWaiting);
  ASSERT_TRUE(rig_.scheduler.cancel(SequenceId(1)));
  ASSERT_TRUE(rig_.plan());
  ASSERT_NE(rig_.item(2), nullptr);
  EXPECT_EQ(rig_.item(2)->position_first, 64u) << "what the cancelled one computed is there";
  rig_.commit();
  rig_.run();
}

TEST_F(PrefixSharing, APausedOneIsNotWaitedFor) {
  submit(1, prompt_of(1, 1000, 20), 4);
  submit(2, prompt_of(2, 1000, 20), 4);
  ASSERT_TRUE(rig_.plan({64, 16, 0}));
  rig_.commit();
  ASSERT_TRUE(rig_.scheduler.pause(SequenceId(1)));
  ASSERT_TRUE(rig_.plan());
  EXPECT_NE(rig_.item(2), nullptr);
  rig_.commit();
  ASSERT_TRUE(rig_.scheduler.resume(SequenceId(1)));
  rig_.run();
  EXPECT_EQ(rig_.scheduler.stats().finished, 2u);
}

TEST_F(PrefixSharing, TheLastTokenIsAlwaysComputed) {
  const std::vector<TokenId> prompt = prompt_of(1, 64, 0);
  submit(1, prompt, 1);
  rig_.run();
  submit(2, prompt, 1);
  ASSERT_TRUE(rig_.plan());
  ASSERT_NE(rig_.item(2), nullptr);
  EXPECT_EQ(rig_.item(2)->position_first, 63u);
  EXPECT_EQ(rig_.item(2)->tokens.size(), 1u);
  EXPECT_EQ(rig_.item(2)->logits_count, 1u);
  EXPECT_EQ(rig_.batch.copies.size(), 1u) << "the page that it writes is its own";
  rig_.commit();
  EXPECT_EQ(rig_.scheduler.stats().cached_tokens, 63u);
}

TEST_F(PrefixSharing, AnAnswerIsFoundAgainByTheNextTurnOfTheConversation) {
  std::vector<TokenId> conversation = prompt_of(1, 100, 0);
  submit(1, conversation, 61);
  rig_.run();
  const std::vector<TokenId>& answer = rig_.generated[SequenceId(1)];
  conversation.insert(conversation.end(), answer.begin(), answer.end());
  conversation.push_back(77);
  submit(2, conversation, 1);
  ASSERT_TRUE(rig_.plan());
  // 161 tokens, of which 160 were computed: the last one generated was not.
  EXPECT_EQ(rig_.item(2)->position_first, 160u);
  rig_.commit();
}

TEST_F(PrefixSharing, OtherDomainsAndNoneComputeForThemselves) {
  submit(1, prompt_of(1, 500, 20), 1);
  rig_.run();
  submit(2, prompt_of(2, 500, 20), 1, CacheDomain(2));
  submit(3, prompt_of(3, 500, 20), 1, CacheDomain());
  rig_.run();
  EXPECT_EQ(rig_.scheduler.stats().cached_tokens, 0u);
  EXPECT_EQ(rig_.scheduler.stats().computed_tokens, 3u * 520);
}

}  // namespace
}  // namespace inferd::scheduler
