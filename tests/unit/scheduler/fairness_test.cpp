// Fair shares: between users by weight, between the sessions of one user, whatever came before.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/unit/scheduler/scheduler_test_util.h"

namespace inferd::scheduler {
namespace {

constexpr uint32_t kStepTokens = 32;
constexpr uint32_t kPromptMax = 40;

SchedulerConfig config_of() {
  SchedulerConfig config;
  config.step_tokens = kStepTokens;
  config.step_logits = 32;
  config.context_tokens = 512;
  config.queue_max = 4096;
  return config;
}

// Users with work that never ends. What each is served is counted from the plans, not asked for.
class Fairness : public testing::Test {
 protected:
  Fairness() : rig_({PageCount(4096), 32, 512}, config_of()) {}

  // Sessions are users here (session s is of user 1000 + s), unless `user` says otherwise.
  void submit(uint64_t session, uint32_t prompt_tokens, uint32_t max_tokens, uint32_t weight = 100,
              uint32_t user = 0) {
    std::vector<TokenId> prompt(prompt_tokens);
    for (uint32_t i = 0; i < prompt_tokens; ++i) prompt[i] = static_cast<TokenId>(next_ * 97 + i);
    Request request;
    request.sequence = SequenceId(next_++);
    request.session = SessionId(session);
    request.user = UserId(user != 0 ? user : 1000 + static_cast<uint32_t>(session));
    request.prompt = prompt;
    request.max_tokens = max_tokens;
    request.weight = weight;
    ASSERT_EQ(verdict(rig_.scheduler.submit(request)), "");
  }
  // Keeps so many requests of the session waiting.
  void keep_busy(uint64_t session, uint32_t prompt_tokens, uint32_t max_tokens,
                 uint32_t weight = 100, uint32_t user = 0) {
    uint32_t waiting = 0;
    std::vector<SequenceInfo> infos;
    rig_.scheduler.list(infos);
    for (const SequenceInfo& info : infos) {
      waiting += info.session == SessionId(session) && info.state == SequenceState::kWaiting ? 1 : 0;
    }
    for (; waiting < 3; ++waiting) submit(session, prompt_tokens, max_tokens, weight, user);
  }
  // One step; adds what each session was served to served_.
  void step() {
    ASSERT_TRUE(rig_.plan());
    for (const BatchItem& item : rig_.batch.items) {
      const bool decodes = item.tokens.size() == 1 && item.logits_count == 1;
      served_[rig_.scheduler.info(item.sequence)->session.value] +=
          static_cast<double>(item.tokens.size()) * (decodes ? 2 : 1);
    }
    rig_.commit();
  }

  SchedulerRig rig_;
  uint64_t next_ = 1;
  std::map<uint64_t, double> served_;
};

TEST_F(Fairness, BusyUsersAreServedAlikeHoweverDifferentTheirRequests) {
  const double bound = 2 * std::max<double>(kPromptMax, 2 * kStepTokens);
  // In every interval: the largest and smallest difference so far lie no further apart than the bound.
  double low = 0;
  double high = 0;
  for (int i = 0; i < 2000; ++i) {
    keep_busy(1, kPromptMax, 1);   // all prefill
    keep_busy(2, 1, 60);           // all decode
    keep_busy(3, 20, 10);
    ASSERT_NO_FATAL_FAILURE(step());
    const double difference = served_[1] - served_[2];
    low = std::min(low, difference);
    high = std::max(high, difference);
    ASSERT_LE(high - low, bound) << "after step " << i;
    ASSERT_LE(std::abs(served_[1] - served_[3]), bound) << "after step " << i;
  }
  EXPECT_GT(served_[1], 10'000);
}

TEST_F(Fairness, AUserOfThreeTimesTheWeightIsServedThreeTimesAsMuch) {
  for (int i = 0; i < 1500; ++i) {
    keep_busy(1, 30, 5, 300);
    keep_busy(2, 30, 5, 100);
    ASSERT_NO_FATAL_FAILURE(step());
    ASSERT_LE(std::abs(served_[1] / 3 - served_[2]), 2 * 2 * kStepTokens) << "after step " << i;
  }
}

TEST_F(Fairness, WhoWasIdleHasSavedNothingUpAndWhoWasAloneOwesNothing) {
  for (int i = 0; i < 500; ++i) {
    keep_busy(1, 30, 5);
    ASSERT_NO_FATAL_FAILURE(step());
  }
  served_.clear();
  for (int i = 0; i < 500; ++i) {
    keep_busy(1, 30, 5);
    keep_busy(2, 30, 5);
    ASSERT_NO_FATAL_FAILURE(step());
    ASSERT_LE(std::abs(served_[1] - served_[2]), 3 * 2 * kStepTokens) << "after step " << i;
  }
}

// One that asked for little in an uncontended time, too, neither gains nor loses by it.
TEST_F(Fairness, AskingForLittleIsNoCredit) {
  submit(2, 4, 400);
  for (int i = 0; i < 300; ++i) {
    keep_busy(1, 30, 5);
    ASSERT_NO_FATAL_FAILURE(step());
  }
  served_.clear();
  for (int i = 0; i < 300; ++i) {
    keep_busy(1, 30, 5);
    keep_busy(2, 30, 5);
    ASSERT_NO_FATAL_FAILURE(step());
    ASSERT_LE(std::abs(served_[1] - served_[2]), 3 * 2 * kStepTokens) << "after step " << i;
  }
}

TEST_F(Fairness, ManySessionsMakeNoUserLarger) {
  for (int i = 0; i < 1000; ++i) {
    for (uint64_t session = 1; session <= 8; ++session) keep_busy(session, 20, 5, 100, 5000);
    keep_busy(9, 20, 5, 100, 6000);
    ASSERT_NO_FATAL_FAILURE(step());
  }
  double many = 0;
  double least = 1e9;
  double most = 0;
  for (uint64_t session = 1; session <= 8; ++session) {
    many += served_[session];
    least = std::min(least, served_[session]);
    most = std::max(most, served_[session]);
  }
  EXPECT_NEAR(many / served_[9], 1, 0.05);
  EXPECT_LE(most - least, 4 * 2 * kStepTokens) << "the sessions among themselves";
}

// Reconnecting under a new number is no way to the front, nor is leaving for a moment.
TEST_F(Fairness, LeavingAndComingBackGainsNothing) {
  uint64_t session = 100;
  double first = 0;
  for (int i = 0; i < 1000; ++i) {
    if (i % 10 == 9) {
      rig_.scheduler.cancel_session(SessionId(session));
      first += served_[session];
      ++session;
    }
    keep_busy(session, 30, 5, 100, 5000);
    keep_busy(1, 30, 5, 100, 6000);
    ASSERT_NO_FATAL_FAILURE(step());
  }
  EXPECT_LE(first + served_[session], served_[1] * 1.05);
}

TEST_F(Fairness, AStreamBesideABatchHasItsTokenInEveryStep) {
  for (uint32_t i = 0; i < 40; ++i) submit(1, 4, 400);
  for (int i = 0; i < 20; ++i) ASSERT_NO_FATAL_FAILURE(step());
  submit(2, 4, 100);
  int silent = 0;
  bool begun = false;
  while (rig_.finish(next_ - 1) == FinishReason::kNone) {
    ASSERT_NO_FATAL_FAILURE(step());
    const bool served = rig_.item(next_ - 1) != nullptr;
    begun = begun || served;
    silent = served ? 0 : silent + 1;
    if (begun) {
      ASSERT_EQ(silent, 0);
    }
  }
}

// All pages are with one user's long answers; another's request does not wait until those end.
TEST_F(Fairness, PagesGoOverFromAUserFarAhead) {
  SchedulerRig rig({PageCount(40), 8, 512}, config_of());
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(rig.submit(id, 100, 400, 1).ok());
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(rig.plan());
    rig.commit();
  }
  ASSERT_TRUE(rig.submit(9, 200, 4, 2).ok());
  uint32_t steps = 0;
  while (rig.finish(9) == FinishReason::kNone) {
    ASSERT_TRUE(rig.plan());
    rig.commit();
    ASSERT_LT(++steps, 200u);
  }
  EXPECT_EQ(rig.scheduler.info(SequenceId(1))->stats.preemptions, 0u) << "the oldest one stays";
  rig.run();
  EXPECT_EQ(rig.finished.size(), 5u);
  EXPECT_LE(rig.scheduler.stats().preemptions, 24u);
}

}  // namespace
}  // namespace inferd::scheduler
