// Requests to score a given text: the fake engine's next token has a known log probability, every other one
// another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/daemon/loop_fixture.h"

namespace inferd::daemon {
namespace {

using testing::HasSubstr;

float likely() { return static_cast<float>(5 - std::log(std::exp(5.0) + kFakeVocabulary - 1)); }
float unlikely() { return static_cast<float>(-std::log(std::exp(5.0) + kFakeVocabulary - 1)); }

std::vector<TokenId> joined(std::vector<TokenId> head, const std::vector<TokenId>& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

uint64_t score(FakeClient& client, uint64_t cookie, const std::vector<TokenId>& prompt,
               const std::vector<TokenId>& continuation, uint32_t top = 0, uint32_t flags = 0) {
  ipc::SubmitRecord record = ipc::good_submission(cookie, 1);
  record.header.flags = ipc::kSubmitScore | ipc::kSubmitLogprobs | flags;
  record.score_first = static_cast<uint32_t>(prompt.size());
  record.max_tokens = static_cast<uint32_t>(continuation.size());
  record.top_logprobs = top;
  return client.submit(record, joined(prompt, continuation));
}

// An answer with every third token exchanged for another, and what each one's log probability is.
struct Text {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
};
Text partly_right(std::vector<TokenId> before, uint32_t count) {
  Text text;
  for (uint32_t i = 0; i < count; ++i) {
    const TokenId next = fake_next(before);
    const bool wrong = i % 3 == 2;
    text.tokens.push_back(wrong ? (next + 1) % 48 : next);
    text.logprobs.push_back(wrong ? unlikely() : likely());
    before.push_back(text.tokens.back());
  }
  return text;
}

void expect_scores(const Heard& heard, const Text& text) {
  EXPECT_TRUE(heard.finished) << heard.sentence;
  EXPECT_EQ(heard.reason, ipc::FinishReason::kLength);
  EXPECT_EQ(heard.ids, text.tokens);
  EXPECT_EQ(heard.completion_tokens, text.tokens.size());
  ASSERT_EQ(heard.logprobs.size(), text.logprobs.size());
  for (size_t i = 0; i < text.logprobs.size(); ++i) {
    EXPECT_NEAR(heard.logprobs[i], text.logprobs[i], 1e-5) << i;
  }
}

TEST(Score, TellsEachTokenOfTheContinuationWithItsLogProbability) {
  LoopFixture fixture;
  FakeClient client = fixture.connect();
  const std::vector<TokenId> prompt = prompt_of(150);
  const Text text = partly_right(prompt, 70);  // more than a step's rows, and than a record holds
  score(client, 1, prompt, text.tokens);
  fixture.run_until_idle({&client});
  expect_scores(client[1], text);
  EXPECT_EQ(client[1].cached_tokens, 0u);
  EXPECT_EQ(fixture.loop->counters().tokens_published, 70u);
}

TEST(Score, OfOneTokenAfterOneToken) {
  LoopFixture fixture;
  FakeClient client = fixture.connect();
  const Text text = partly_right({7}, 1);
  score(client, 1, {7}, text.tokens);
  fixture.run_until_idle({&client});
  expect_scores(client[1], text);
}

TEST(Score, GivesTheSameBitsCachedAloneInChunksAndBesideOthers) {
  LoopFixture fixture({.step_tokens = 16});
  FakeClient client = fixture.connect();
  const std::vector<TokenId> prompt = prompt_of(100);
  const Text text = partly_right(prompt, 40);
  score(client, 1, prompt, text.tokens, 3);
  fixture.run_until_idle({&client});
  expect_scores(client[1], text);
  score(client, 2, prompt, text.tokens, 3);
  ipc::SubmitRecord answer = ipc::good_submission(4, 1);
  answer.max_tokens = 60;
  client.submit(answer, prompt_of(90, 5));
  score(client, 3, prompt, text.tokens, 3, ipc::kSubmitNoStore);
  fixture.run_until_idle({&client});
  EXPECT_EQ(client[2].cached_tokens, 99u) << "what comes before the continuation's own logits";
  EXPECT_EQ(client[3].cached_tokens, 0u);
  EXPECT_EQ(client[2].ids, text.tokens);
  EXPECT_EQ(client[2].logprobs, client[1].logprobs);
  EXPECT_EQ(client[3].logprobs, client[1].logprobs);
}

TEST(Score, AfterAPreemptionGoesOnWhereItWas) {
  // Two of them do not fit at once.
  LoopFixture fixture({.pages = 20, .sequences_max = 4, .context_tokens = 320});
  FakeClient client = fixture.connect();
  const std::vector<TokenId> prompt = prompt_of(100);
  const Text text = partly_right(prompt, 120);
  score(client, 1, prompt, text.tokens);
  ipc::SubmitRecord record = ipc::good_submission(2, 1);
  record.max_tokens = 100;
  for (int i = 0; i < 4; ++i) fixture.loop->turn(false);
  client.submit(record, prompt_of(100, 9));
  score(client, 3, prompt_of(80, 3), partly_right(prompt_of(80, 3), 30).tokens);
  fixture.run_until_idle({&client});
  expect_scores(client[1], text);
  expect_scores(client[3], partly_right(prompt_of(80, 3), 30));
  EXPECT_EQ(client[2].ids.size(), 100u);
}

TEST(Score, OfManyAtOnceWithAllAlternativesNeverOverflowsTheRing) {
  LoopFixture fixture({.sequences_max = 8, .sequences_per_session = 2});
  FakeClient client = fixture.connect();
  const std::vector<TokenId> prompt = prompt_of(10);
  const Text text = partly_right(prompt, 100), other = partly_right(prompt_of(11), 90);
  score(client, 1, prompt, text.tokens, ipc::kTopLogprobsMax);
  score(client, 2, prompt_of(11), other.tokens, ipc::kTopLogprobsMax);
  // The reader is slow: a record now and then.
  for (int turn = 0; turn < 3000 && !client[2].finished; ++turn) {
    fixture.clock.advance_ns(1'000'000);
    fixture.loop->turn(false);
    if (turn % 3 == 0) client.read(1);
  }
  fixture.run_until_idle({&client});
  EXPECT_FALSE(client.session_ended);
  expect_scores(client[1], text);
  expect_scores(client[2], other);
}

TEST(Score, CanBeCancelled) {
  LoopFixture fixture({.step_tokens = 16});
  FakeClient client = fixture.connect();
  score(client, 1, prompt_of(200), partly_right(prompt_of(200), 300).tokens);
  for (int i = 0; i < 20; ++i) fixture.loop->turn(false);
  client.cancel(1);
  fixture.run_until_idle({&client});
  EXPECT_TRUE(client[1].finished);
  EXPECT_EQ(client[1].reason, ipc::FinishReason::kCancelled);
  EXPECT_EQ(client[1].completion_tokens, client[1].ids.size());
  EXPECT_EQ(fixture.pages_free(), PageCount(256));
}

TEST(Score, LongerThanTheContextIsRefused) {
  LoopFixture fixture({.context_tokens = 64});
  FakeClient client = fixture.connect();
  score(client, 1, prompt_of(50), prompt_of(30));
  fixture.run_until_idle({&client});
  EXPECT_EQ(client[1].error, ErrorCode::kResourceExhausted);
  EXPECT_THAT(client[1].sentence, HasSubstr("64"));
}

}  // namespace
}  // namespace inferd::daemon
