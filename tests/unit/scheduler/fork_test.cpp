// Forked requests: they share what their parent computed, cost pages only where they differ, and change
// nothing for it.
#include <gtest/gtest.h>

#include "base/prng.h"
#include "tests/unit/scheduler/scheduler_test_util.h"

namespace inferd::scheduler {
namespace {

constexpr memory::MemoryConfig kMemory{
    .pages = PageCount(1024), .sequences_max = 32, .sequence_tokens_max = 4096};
constexpr CacheDomain kNoDomain;
constexpr CacheDomain kOwnDomain(1);

SchedulerConfig config_of() {
  SchedulerConfig config;
  config.step_tokens = 512;
  config.step_logits = 32;
  config.context_tokens = 4096;
  config.queue_max = 64;
  return config;
}

class Fork : public testing::Test {
 protected:
  Request request(uint64_t id, const std::vector<TokenId>& prompt, uint32_t max_tokens) {
    Request request;
    request.sequence = SequenceId(id);
    request.session = SessionId(1);
    request.user = UserId(1000);
    request.prompt = prompt;
    request.max_tokens = max_tokens;
    return request;
  }
  // A parent with a prompt of its own, stepped until it has generated so many tokens.
  void start_parent(uint64_t id, uint32_t prompt_tokens, uint32_t generated, CacheDomain domain) {
    std::vector<TokenId> prompt;
    for (uint32_t i = 0; i < prompt_tokens; ++i) prompt.push_back(static_cast<TokenId>(i));
    Request parent = request(id, prompt, 90);
    parent.domain = domain;
    ASSERT_TRUE(rig_.scheduler.submit(parent).ok());
    while (rig_.scheduler.info(SequenceId(id))->stats.generated_tokens < generated) step();
  }
  // A child with all tokens that its parent has now, and some of its own.
  void fork(uint64_t parent, uint64_t id, CacheDomain domain, std::vector<TokenId> own = {},
            uint32_t max_tokens = 20, UserId user = UserId(1000)) {
    const std::span<const TokenId> tokens = rig_.scheduler.tokens(SequenceId(parent));
    std::vector<TokenId> prompt(tokens.begin(), tokens.end());
    prompt.insert(prompt.end(), own.begin(), own.end());
    Request child = request(id, prompt, max_tokens);
    child.domain = domain;
    child.parent = SequenceId(parent);
    child.user = user;
    ASSERT_EQ(verdict(rig_.scheduler.submit(child)), "");
  }
  void step() {
    ASSERT_TRUE(rig_.plan());
    rig_.commit();
  }
  uint32_t live() const { return rig_.memory.pool().counts().live().value; }
  uint32_t cached_tokens(uint64_t id) const {
    return rig_.scheduler.info(SequenceId(id))->stats.cached_tokens;
  }

  SchedulerRig rig_{kMemory, config_of()};
};

TEST_F(Fork, SixteenForksOfFourThousandTokensCostAtMostSixteenPages) {
  for (const CacheDomain domain : {kNoDomain, kOwnDomain}) {
    const uint64_t parent = 100 * (domain.value + 1);
    // Decoding, with 4,004 tokens: the last page is part-filled.
    start_parent(parent, 4000, 4, domain);
    const uint32_t before = live();
    for (uint64_t i = 1; i <= 16; ++i) fork(parent, parent + i, domain);
    step();
    EXPECT_LE(live(), before + 16) << "domain " << domain.value;
    for (uint64_t i = 1; i <= 16; ++i) {
      EXPECT_EQ(cached_tokens(parent + i), 4003u) << "the last token is always computed";
    }
    // They diverge, each within its own last page, for as long as that has room.
    for (int i = 0; i < 8; ++i) step();
    EXPECT_LE(live(), before + 16) << "domain " << domain.value;
    rig_.run();
    EXPECT_EQ(rig_.scheduler.stats().preemptions, 0u);
    EXPECT_EQ(rig_.memory.pool().counts().live().value, 0u);
  }
}

TEST_F(Fork, OnlyTheTokensOfItsOwnAreComputed) {
  start_parent(1, 100, 7, kNoDomain);
  fork(1, 2, kNoDomain, {501, 502, 503});
  ASSERT_TRUE(rig_.plan());
  ASSERT_NE(rig_.item(2), nullptr);
  EXPECT_EQ(rig_.item(2)->position_first, 106u);
  EXPECT_EQ(rig_.item(2)->tokens.size(), 4u);
  // Both write into the page that they shared: one goes on with it, the other one's is a copy.
  EXPECT_EQ(rig_.batch.copies.size(), 1u);
  EXPECT_NE(rig_.item(1)->pages.back(), rig_.item(2)->pages.back());
  rig_.commit();
  rig_.run();
}

TEST_F(Fork, AParentThatIsServedInTheSameStepHasThePageForItsCopy) {
  // A pool with exactly what both need: the copy must have been counted.
  SchedulerConfig config = config_of();
  for (uint32_t pages = 4; pages <= 16; ++pages) {
    SchedulerRig rig({.pages = PageCount(pages), .sequences_max = 4, .sequence_tokens_max = 256},
                     config);
    ASSERT_TRUE(rig.submit(1, 20, 20).ok());
    ASSERT_TRUE(rig.plan());
    rig.commit();
    for (uint64_t id = 2; id <= 4; ++id) {
      const std::span<const TokenId> tokens = rig.scheduler.tokens(SequenceId(1));
      const std::vector<TokenId> prompt(tokens.begin(), tokens.end());
      Request child;
      child.sequence = SequenceId(id);
      child.session = SessionId(1);
      child.user = UserId(1001);
      child.prompt = prompt;
      child.max_tokens = 12;
      child.parent = SequenceId(1);
      ASSERT_TRUE(rig.scheduler.submit(child).ok());
    }
    rig.run();
    EXPECT_EQ(rig.scheduler.stats().finished, 4u) << pages << " pages";
    EXPECT_EQ(rig.free_pages(), pages);
  }
}

TEST_F(Fork, TheParentMayEndAtOnce) {
  start_parent(1, 200, 5, kNoDomain);
  fork(1, 2, kNoDomain);
  step();
  EXPECT_EQ(cached_tokens(2), 204u);
  EXPECT_TRUE(rig_.scheduler.cancel(SequenceId(1)));
  fork(2, 3, kNoDomain);
  EXPECT_TRUE(rig_.scheduler.cancel(SequenceId(2)));  // before its child was admitted
  rig_.run();
  EXPECT_EQ(rig_.finish(3), FinishReason::kLength);
  EXPECT_EQ(live(), 0u);
}

TEST_F(Fork, ForksOfForksShareToo) {
  start_parent(1, 200, 5, kOwnDomain);
  fork(1, 2, kOwnDomain, {900});
  step();
  fork(2, 3, kOwnDomain, {901});
  fork(2, 4, kOwnDomain, {902});
  step();
  // 205 of the parent, 900, and the one that followed it; all but that one were computed.
  EXPECT_EQ(cached_tokens(3), 206u);
  EXPECT_EQ(cached_tokens(4), 206u);
  fork(4, 5, kOwnDomain);
  fork(5, 6, kOwnDomain);  // its parent has not begun
  rig_.run();
  EXPECT_EQ(rig_.scheduler.stats().finished, 6u);
  EXPECT_EQ(live(), 0u);
}

TEST_F(Fork, AChildSharesNoMoreThanWhatBothBeginWith) {
  start_parent(1, 100, 10, kNoDomain);
  const std::span<const TokenId> tokens = rig_.scheduler.tokens(SequenceId(1));
  std::vector<TokenId> prompt(tokens.begin(), tokens.begin() + 70);
  prompt.insert(prompt.end(), {800, 801, 802});
  Request child = request(2, prompt, 5);
  child.parent = SequenceId(1);
  ASSERT_TRUE(rig_.scheduler.submit(child).ok());
  ASSERT_TRUE(rig_.plan());
  EXPECT_EQ(rig_.item(2)->position_first, 70u);
  EXPECT_EQ(rig_.batch.copies.size(), 1u) << "the page in which they part";
  EXPECT_EQ(rig_.item(1)->pages[4], rig_.batch.copies[0].from);
  rig_.commit();
  rig_.run();
}

TEST_F(Fork, ParallelSamplesOfOnePromptComputeItOnce) {
  for (const CacheDomain domain : {kNoDomain, kOwnDomain}) {
    const uint64_t first = 10 * (domain.value + 1);
    const uint64_t before = rig_.scheduler.stats().computed_tokens;
    std::vector<TokenId> prompt;
    for (uint32_t i = 0; i < 1000; ++i) prompt.push_back(static_cast<TokenId>(first + i));
    for (uint64_t i = 0; i < 4; ++i) {
      Request sample = request(first + i, prompt, 5);
      sample.domain = domain;
      if (i > 0) sample.parent = SequenceId(first);
      ASSERT_TRUE(rig_.scheduler.submit(sample).ok());
    }
    rig_.run();
    // The prompt, its last token again for three of them, and four tokens each that were generated.
    EXPECT_EQ(rig_.scheduler.stats().computed_tokens - before, 1000u + 3 + 4 * 4);
  }
}

TEST_F(Fork, NothingIsSharedAcrossUsersOrIntoAnotherDomain) {
  start_parent(1, 100, 5, kNoDomain);
  fork(1, 2, kNoDomain, {}, 20, UserId(2000));
  fork(1, 3, kOwnDomain);
  step();
  EXPECT_EQ(cached_tokens(2), 0u);
  EXPECT_EQ(cached_tokens(3), 0u) << "what no domain was to keep would be kept";
  // One of no domain takes from its parent's, but enters nothing.
  fork(3, 4, kNoDomain);
  step();
  EXPECT_EQ(cached_tokens(4), 105u);
  const uint32_t nodes = rig_.memory.prefixes().nodes();
  ASSERT_TRUE(rig_.scheduler.cancel(SequenceId(1)));
  ASSERT_TRUE(rig_.scheduler.cancel(SequenceId(2)));
  ASSERT_TRUE(rig_.scheduler.cancel(SequenceId(3)));
  rig_.run();
  EXPECT_EQ(rig_.memory.prefixes().nodes(), nodes);
}

TEST_F(Fork, APausedParentMakesWayForItsChildAsForOthers) {
  SchedulerRig rig({.pages = PageCount(12), .sequences_max = 4, .sequence_tokens_max = 256},
                   config_of());
  ASSERT_TRUE(rig.submit(1, 100, 60).ok());
  ASSERT_TRUE(rig.plan());
  rig.commit();
  ASSERT_TRUE(rig.scheduler.pause(SequenceId(1)));
  std::vector<TokenId> prompt(rig.scheduler.tokens(SequenceId(1)).begin(),
                              rig.scheduler.tokens(SequenceId(1)).end());
  for (TokenId i = 0; i < 80; ++i) prompt.push_back(700 + i);
  Request child;
  child.sequence = SequenceId(2);
  child.session = SessionId(1);
  child.user = UserId(1001);
  child.prompt = prompt;
  child.max_tokens = 4;
  child.parent = SequenceId(1);
  ASSERT_TRUE(rig.scheduler.submit(child).ok());
  rig.run();
  EXPECT_EQ(rig.finish(2), FinishReason::kLength);
  ASSERT_TRUE(rig.scheduler.resume(SequenceId(1)));
  rig.run();
  EXPECT_EQ(rig.finish(1), FinishReason::kLength);
}

// What the pages of a pool hold, if a step does what its plan says.
class PageContents {
 public:
  explicit PageContents(uint32_t pages) : tokens_(pages * kPageTokens, kNoToken) {}

  // The step's copies and writes; then all that an item reads must be its own tokens.
  void step(const BatchPlan& plan, const Scheduler& scheduler) {
    for (const PageCopy& copy : plan.copies) {
      for (uint32_t i = 0; i < kPageTokens; ++i) at(copy.to, i) = at(copy.from, i);
    }
    for (const BatchItem& item : plan.items) {
      for (uint32_t i = 0; i < item.tokens.size(); ++i) {
        const uint32_t position = item.position_first + i;
        at(item.pages[position / kPageTokens], position % kPageTokens) = item.tokens[i];
      }
    }
    for (const BatchItem& item : plan.items) {  // after all writes: nobody wrote into another's page
      const std::span<const TokenId> tokens = scheduler.tokens(item.sequence);
      for (uint32_t i = 0; i < item.position_first + item.tokens.size(); ++i) {
        ASSERT_EQ(at(item.pages[i / kPageTokens], i % kPageTokens), tokens[i])
            << "sequence " << item.sequence.value << ", position " << i;
      }
    }
  }

 private:
  TokenId& at(PageId page, uint32_t i) { return tokens_[page.value * kPageTokens + i]; }

  std::vector<TokenId> tokens_;
};

// Random forks in a pool that is too small for them: everyone reads its own tokens and gets as many as
// it would get alone, and after every step every page is accounted for (the rig verifies).
TEST_F(Fork, InATightPoolEveryoneGetsWhatItGetsAlone) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng prng(seed);
    SchedulerRig rig({.pages = PageCount(24), .sequences_max = 6, .sequence_tokens_max = 200},
                     config_of());
    PageContents contents(24);
    std::map<uint64_t, uint32_t> wanted;
    uint64_t next = 1;
    for (int turn = 0; turn < 300; ++turn) {
      const uint32_t what = static_cast<uint32_t>(prng.below(8));
      if (what == 0 && rig.scheduler.stats().waiting < 8) {
        const uint32_t tokens = 1 + static_cast<uint32_t>(prng.below(100));
        wanted[next] = 1 + static_cast<uint32_t>(prng.below(40));
        ASSERT_TRUE(rig.submit(next, tokens, wanted[next]).ok());
        ++next;
      } else if (what <= 2 && next > 1 && rig.scheduler.stats().waiting < 8) {
        const uint64_t parent = 1 + prng.below(next - 1);
        const std::span<const TokenId> tokens = rig.scheduler.tokens(SequenceId(parent));
        if (tokens.empty() || tokens.size() > 150) continue;
        std::vector<TokenId> prompt(tokens.begin(), tokens.begin() + 1 + prng.below(tokens.size()));
        Request child;
        child.sequence = SequenceId(next);
        child.session = SessionId(1);
        child.user = UserId(1001);
        child.prompt = prompt;
        child.domain = CacheDomain(prng.below(2));
        child.parent = SequenceId(parent);
        wanted[next] = child.max_tokens = 1 + static_cast<uint32_t>(prng.below(40));
        ASSERT_TRUE(rig.scheduler.submit(child).ok());
        ++next;
      } else if (what == 3 && next > 1 && prng.below(4) == 0) {
        const uint64_t id = 1 + prng.below(next - 1);
        if (rig.scheduler.cancel(SequenceId(id))) wanted.erase(id);
      } else if (what == 4 && next > 1) {
        rig.scheduler.pause(SequenceId(1 + prng.below(next - 1)));
      } else if (what == 5) {
        for (uint64_t id = 1; id < next; ++id) rig.scheduler.resume(SequenceId(id));
      } else if (rig.plan({1 + static_cast<uint32_t>(prng.below(512)), 32, 0})) {
        ASSERT_NO_FATAL_FAILURE(contents.step(rig.batch, rig.scheduler));
        rig.commit();
      }
    }
    for (uint64_t id = 1; id < next; ++id) rig.scheduler.resume(SequenceId(id));
    while (rig.plan()) {
      ASSERT_NO_FATAL_FAILURE(contents.step(rig.batch, rig.scheduler));
      rig.commit();
    }
    for (const auto& [id, tokens] : wanted) {
      EXPECT_EQ(rig.generated[SequenceId(id)].size(), tokens) << "sequence " << id;
    }
    EXPECT_EQ(rig.memory.pool().counts().live().value, 0u);
  }
}

TEST(Deadlines, WhoWasNotAdmittedInTimeIsNamedOnce) {
  SchedulerConfig config = config_of();
  SchedulerRig rig({.pages = PageCount(8), .sequences_max = 2, .sequence_tokens_max = 128}, config);
  ASSERT_TRUE(rig.submit(1, 100, 20).ok());
  for (uint64_t id = 2; id <= 4; ++id) {
    Request request;
    request.deadline_ns = id == 4 ? 0 : static_cast<int64_t>(id) * 1000;
    ASSERT_TRUE(rig.submit(request, id, 100, 20).ok());
  }
  ASSERT_TRUE(rig.plan());
  rig.commit();
  EXPECT_EQ(rig.scheduler.overdue(), std::nullopt);
  EXPECT_EQ(rig.scheduler.deadline_next_ns(), 2000);
  rig.clock.advance_ns(2000 - rig.clock.now_ns());
  EXPECT_EQ(rig.scheduler.overdue(), SequenceId(2));
  ASSERT_TRUE(rig.scheduler.cancel(SequenceId(2)));
  EXPECT_EQ(rig.scheduler.overdue(), std::nullopt);
  rig.run();  // 3 is admitted in time
  rig.clock.advance_ns(1'000'000);
  EXPECT_EQ(rig.scheduler.overdue(), std::nullopt);
  EXPECT_EQ(rig.finish(3), FinishReason::kLength);
}

TEST(Renice, IsSeenWhileTheSequenceIsHere) {
  SchedulerRig rig({.pages = PageCount(8), .sequences_max = 2, .sequence_tokens_max = 128},
                   config_of());
  ASSERT_TRUE(rig.submit(1, 10, 5).ok());
  EXPECT_TRUE(rig.scheduler.renice(SequenceId(1), PriorityClass::kBatch, 7));
  EXPECT_EQ(rig.scheduler.info(SequenceId(1))->priority, PriorityClass::kBatch);
  EXPECT_EQ(rig.scheduler.info(SequenceId(1))->nice, 7);
  EXPECT_FALSE(rig.scheduler.renice(SequenceId(9), PriorityClass::kBatch, 0));
  Request request;
  request.nice = 20;
  EXPECT_FALSE(rig.submit(request, 2, 10, 5).ok());
  rig.run();
}

}  // namespace
}  // namespace inferd::scheduler
