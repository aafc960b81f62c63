// Limits and refusals: the sentence names the figure that is exceeded, and what to do.
#include "scheduler/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace inferd::scheduler {
namespace {

using testing::HasSubstr;

SchedulerConfig config_with_context(uint32_t context_tokens) {
  SchedulerConfig config;
  config.context_tokens = context_tokens;
  return config;
}

TEST(Admission, CountsHaveThousandsSeparators) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(4113), "4,113");
  EXPECT_EQ(format_count(1234567), "1,234,567");
}

TEST(Admission, TheLongestSequenceIsTheLesserOfContextAndPool) {
  const memory::PagedMemory memory({PageCount(128), 4, 8192});
  const SequenceLimit by_pool = sequence_limit(config_with_context(8192), memory);
  EXPECT_EQ(by_pool.tokens, 2048u);
  EXPECT_TRUE(by_pool.by_pool);
  const SequenceLimit by_context = sequence_limit(config_with_context(1000), memory);
  EXPECT_EQ(by_context.tokens, 1000u);
  EXPECT_FALSE(by_context.by_pool);
}

TEST(Admission, ARefusalNamesBothFiguresAndTheRemedy) {
  const std::vector<TokenId> prompt(4000, 1);
  Request request;
  request.prompt = prompt;
  request.max_tokens = 113;
  const Result<void> by_pool = check_request(request, {2048, true});
  ASSERT_FALSE(by_pool.ok());
  EXPECT_EQ(by_pool.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(by_pool.error().message(),
            "this request needs 4,113 tokens (4,000 prompt + 113 to generate) and the longest "
            "sequence here is 2,048 tokens: shorten it, or raise [memory] pool");
  const Result<void> by_context = check_request(request, {2048, false});
  EXPECT_THAT(by_context.error().message(), HasSubstr("a model with a longer context"));
}

TEST(Admission, TheLimitItselfFitsAndOneMoreDoesNot) {
  const std::vector<TokenId> prompt(100, 1);
  Request request;
  request.prompt = prompt;
  request.max_tokens = 28;
  EXPECT_TRUE(check_request(request, {128, false}).ok());
  request.max_tokens = 29;
  EXPECT_FALSE(check_request(request, {128, false}).ok());
  request.max_tokens = kUnlimitedTokens;
  EXPECT_TRUE(check_request(request, {101, false}).ok());
  EXPECT_FALSE(check_request(request, {100, false}).ok()) << "no room for an answer";
  request.max_tokens = 0;
  EXPECT_TRUE(check_request(request, {100, false}).ok()) << "none is wanted";
}

TEST(Admission, NonsenseIsRefusedAsSuch) {
  Request request;
  EXPECT_EQ(check_request(request, {128, false}).error().code(), ErrorCode::kInvalidArgument);
  const std::vector<TokenId> prompt(1, 1);
  const std::vector<TokenId> stops(kStopTokensMax + 1, 2);
  request.prompt = prompt;
  request.stop_tokens = stops;
  EXPECT_EQ(check_request(request, {128, false}).error().code(), ErrorCode::kInvalidArgument);
}

TEST(Admission, AConfigurationThatCannotServeEverySequenceIsRefused) {
  const memory::PagedMemory memory({PageCount(128), 32, 2048});
  SchedulerConfig config = config_with_context(2048);
  EXPECT_TRUE(check_config(config, memory).ok());
  config.step_tokens = 31;
  EXPECT_THAT(check_config(config, memory).error().message(),
              HasSubstr("raise step_tokens to at least 32"));
  config.step_tokens = 32;
  config.step_logits = 16;
  EXPECT_THAT(check_config(config, memory).error().message(), HasSubstr("max_sequences"));
  config.step_logits = 32;
  config.queue_max = 0;
  EXPECT_THAT(check_config(config, memory).error().message(), HasSubstr("queue"));
  config.queue_max = 1;
  config.context_tokens = 1;
  EXPECT_THAT(check_config(config, memory).error().message(), HasSubstr("less than two tokens"));
}

}  // namespace
}  // namespace inferd::scheduler
