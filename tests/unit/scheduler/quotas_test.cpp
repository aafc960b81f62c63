// What a user, or a client, may have: who is over it is refused with the limit's name, and nobody
// else.
#include "scheduler/quotas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/scheduler/scheduler_test_util.h"

namespace inferd::scheduler {
namespace {

using testing::HasSubstr;

constexpr memory::MemoryConfig kMemory{
    .pages = PageCount(64), .sequences_max = 2, .sequence_tokens_max = 512};
constexpr int64_t kSecondNs = 1'000'000'000;

// Sessions 1, 2 and 3 are of users 1001, 1002 and 1003.
class Quotas : public testing::Test {
 protected:
  static SchedulerConfig config() {
    SchedulerConfig config;
    config.step_tokens = 256;
    config.step_logits = 8;
    config.context_tokens = 512;
    config.queue_max = 32;
    return config;
  }
  void expect_refusal(const Result<void>& result, ErrorCode code, const std::string& part) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code(), code);
    EXPECT_THAT(result.error().message(), HasSubstr(part));
  }

  SchedulerRig rig_{kMemory, config()};
};

TEST_F(Quotas, SequencesOfAUserAreLimitedAndOthersAreNot) {
  rig_.scheduler.set_quotas({.sequences = 3}, {});
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(rig_.submit(id, 10, 5, 1).ok());
  expect_refusal(rig_.submit(4, 10, 5, 1), ErrorCode::kUnavailable,
                 "[limits] user_sequences allows 3");
  EXPECT_TRUE(rig_.submit(5, 10, 5, 2).ok());
  rig_.run();
  EXPECT_TRUE(rig_.submit(6, 10, 5, 1).ok());
  rig_.run();
}

TEST_F(Quotas, WhoRunsDoesNotCountAgainstTheQueue) {
  rig_.scheduler.set_quotas({.queue = 2}, {.queue = 1});
  ASSERT_TRUE(rig_.submit(1, 10, 50, 1).ok());
  expect_refusal(rig_.submit(2, 10, 50, 1), ErrorCode::kUnavailable,
                 "[limits] client_queue allows 1");
  ASSERT_TRUE(rig_.plan());
  rig_.commit();
  EXPECT_TRUE(rig_.submit(3, 10, 50, 1).ok());
  rig_.scheduler.set_quotas({.queue = 1}, {});
  expect_refusal(rig_.submit(4, 10, 50, 1), ErrorCode::kUnavailable,
                 "[limits] user_queue allows 1");
  rig_.run();
}

TEST_F(Quotas, PagesAreThoseThatRequestsMayComeTo) {
  rig_.scheduler.set_quotas({.pages = 10}, {});
  // 161 tokens are 11 pages: never.
  expect_refusal(rig_.submit(1, 100, 61, 1), ErrorCode::kResourceExhausted,
                 "[limits] user_pages allows 10");
  ASSERT_TRUE(rig_.submit(2, 40, 40, 1).ok());  // 5 pages
  expect_refusal(rig_.submit(3, 40, 41, 1), ErrorCode::kUnavailable,
                 "up to 5 pages and asks for 6 more");
  EXPECT_TRUE(rig_.submit(4, 40, 40, 1).ok());
  EXPECT_TRUE(rig_.submit(5, 100, 60, 2).ok()) << "another user's";
  rig_.run();
  // Without a limit of its own, a request ends where the quota does.
  ASSERT_TRUE(rig_.submit(6, 40, kUnlimitedTokens, 1).ok());
  expect_refusal(rig_.submit(7, 1, 1, 1), ErrorCode::kUnavailable, "user_pages");
  rig_.run();
  EXPECT_EQ(rig_.finish(6), FinishReason::kContext);
  EXPECT_EQ(rig_.generated[SequenceId(6)].size(), 120u);
  expect_refusal(rig_.submit(8, 160, kUnlimitedTokens, 1), ErrorCode::kResourceExhausted,
                 "user_pages");
}

TEST_F(Quotas, WhoHadMoreThanTheirRateWaitsUntilTheBucketHasRunDry) {
  rig_.scheduler.set_quotas({.tokens_per_s = 10}, {});
  // 250 tokens of the prompt and 49 of the answer are computed; 100 may come at once.
  ASSERT_TRUE(rig_.submit(1, 250, 50, 1).ok());
  rig_.run();
  expect_refusal(rig_.submit(2, 10, 1, 1), ErrorCode::kUnavailable,
                 "[limits] user_tokens_per_s allows 10: try again in 20 s");
  EXPECT_TRUE(rig_.submit(3, 10, 1, 2).ok()) << "another user";
  rig_.clock.advance_ns(19 * kSecondNs);
  expect_refusal(rig_.submit(4, 10, 1, 1), ErrorCode::kUnavailable, "try again in 1 s");
  rig_.clock.advance_ns(kSecondNs);
  EXPECT_TRUE(rig_.submit(5, 10, 1, 1).ok());
  rig_.run();
}

TEST_F(Quotas, TheRateOfAClientIsItsOwn) {
  rig_.scheduler.set_quotas({}, {.tokens_per_s = 1});
  ASSERT_TRUE(rig_.submit(1, 100, 10, 1).ok());
  rig_.run();
  expect_refusal(rig_.submit(2, 10, 1, 1), ErrorCode::kUnavailable, "this connection had");
  EXPECT_TRUE(rig_.submit(3, 10, 1, 2).ok());
  rig_.run();
  rig_.scheduler.set_quotas({}, {});
  EXPECT_TRUE(rig_.submit(4, 10, 1, 1).ok()) << "a limit that is gone holds nobody";
  rig_.run();
}

TEST(TokenRates, FarMoreUsersThanItKeepsDoNotMakeItGrow) {
  TokenRates rates;
  int64_t now_ns = 0;
  for (uint64_t who = 1; who <= 100'000; ++who) {
    now_ns += 10 * kSecondNs;
    rates.open(who, now_ns);
    rates.charge(who, 1000, 10, now_ns);
    EXPECT_EQ(rates.wait_ns(who, 10, now_ns), 90 * kSecondNs + 1);
  }
  EXPECT_LE(rates.size(), 2048u);
}

// What a user had computed stays cached only as far as the quota of pages goes; others' is not touched.
TEST(PageQuota, CachedPagesMakeRoomForTheSameUsers) {
  SchedulerConfig config;
  config.step_tokens = 64;
  config.step_logits = 8;
  config.context_tokens = 512;
  config.queue_max = 16;
  SchedulerRig rig({PageCount(64), 4, 512}, config);
  const auto run = [&rig](uint64_t id, uint64_t session) {
    Request request;
    request.domain = CacheDomain(session);
    ASSERT_TRUE(rig.submit(request, id, 160, 4, session).ok());
    rig.run();
  };
  run(1, 2);
  run(2, 1);
  run(3, 1);
  const UserId user{1001}, other{1002};
  EXPECT_EQ(rig.memory.pool().charged_pages(user), PageCount(20));
  Quota quota;
  quota.pages = 12;
  rig.scheduler.set_quotas(quota, {});
  run(4, 1);
  EXPECT_LE(rig.memory.pool().charged_pages(user).value, 12u);
  EXPECT_GE(rig.memory.pool().charged_pages(user).value, 10u);
  EXPECT_EQ(rig.memory.pool().charged_pages(other), PageCount(10));
}

}  // namespace
}  // namespace inferd::scheduler
