// Requests through the C interface, against a server in miniature.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/include/inferd/inferd.h"
#include "fake_server.h"
#include "library_fixture.h"

namespace inferd::test {
namespace {

TEST(Requests, AnswerArrivesWholeWithUsage) {
  FakeServer server(Script{.ids = {kHello, kWorld, 0xC3, 0xA9, kEos}, .cached_tokens = 2});
  Client client(server);
  auto answer = client.ask({1, 2, 3});
  const Answer got = read_all(answer.get());
  EXPECT_EQ(got.text, "Hello worldé");
  EXPECT_EQ(got.ids, (std::vector<int32_t>{kHello, kWorld, 0xC3, 0xA9, kEos}));
  EXPECT_EQ(got.finish, INFERD_FINISH_STOP);
  EXPECT_EQ(server.last_prompt(), (std::vector<TokenId>{1, 2, 3}));
  inferd_usage usage = {};
  usage.struct_bytes = sizeof(usage);
  ASSERT_EQ(inferd_get_usage(answer.get(), &usage, nullptr), INFERD_OK);
  EXPECT_EQ(usage.prompt_tokens, 3u);
  EXPECT_EQ(usage.cached_tokens, 2u);
  EXPECT_EQ(usage.completion_tokens, 5u);
  EXPECT_GT(usage.ttft_ms, 0);
  EXPECT_GE(usage.itl_ms, 0);
  inferd_event event;
  inferd_event_init(&event);
  EXPECT_EQ(inferd_next(answer.get(), -1, &event, nullptr), INFERD_NOT_FOUND);
}

TEST(Requests, UsageHasTheDaemonsFiguresWhereBothSidesKnowThem) {
  const Script script{
      .ids = {kHello, kEos}, .computed_tokens = 41, .preemptions = 2, .queue_ns = 1'500'000};
  for (const uint64_t features : {ipc::kFeatures, ipc::kFeatures & ~ipc::kFeatureUsage}) {
    FakeServer::Options options;
    options.features = features;
    FakeServer server(script, options);
    Client client(server);
    auto answer = client.ask({1, 2, 3});
    inferd_usage usage = {};
    usage.struct_bytes = sizeof(usage);
    ASSERT_EQ(inferd_get_usage(answer.get(), &usage, nullptr), INFERD_OK);
    EXPECT_EQ(usage.computed_tokens, 0u) << "not before the end";
    read_all(answer.get());
    ASSERT_EQ(inferd_get_usage(answer.get(), &usage, nullptr), INFERD_OK);
    const bool known = features == ipc::kFeatures;
    EXPECT_EQ(usage.computed_tokens, known ? 41u : 0u);
    EXPECT_EQ(usage.preemptions, known ? 2u : 0u);
    EXPECT_EQ(usage.queue_ms, 1.5);
  }
}

TEST(Requests, AProgramBuiltForTheFirstUsageGetsWhatItKnows) {
  FakeServer server(Script{.ids = {kHello, kEos}, .cached_tokens = 2, .queue_ns = 1'000'000});
  Client client(server);
  auto answer = client.ask({1, 2, 3});
  read_all(answer.get());
  inferd_usage usage = {};
  usage.struct_bytes = offsetof(inferd_usage, queue_ms);
  usage.queue_ms = -1;
  ASSERT_EQ(inferd_get_usage(answer.get(), &usage, nullptr), INFERD_OK);
  EXPECT_EQ(usage.struct_bytes, offsetof(inferd_usage, queue_ms));
  EXPECT_EQ(usage.cached_tokens, 2u);
  EXPECT_EQ(usage.queue_ms, -1) << "beyond the end of what the caller has";
  usage.struct_bytes = 8;
  EXPECT_EQ(inferd_get_usage(answer.get(), &usage, nullptr), INFERD_INVALID_ARGUMENT);
}

TEST(Requests, SamplingArrivesAsItWasGiven) {
  FakeServer server([](const ipc::Submission& s) {
    EXPECT_EQ(s.logit_bias.size(), 2u);
    EXPECT_EQ(s.logit_bias[1].token, 9);
    EXPECT_TRUE(std::isinf(s.logit_bias[1].bias));
    return Script();
  });
  Client client(server);
  const inferd_logit_bias bias[] = {{8, 1.5f}, {9, -INFINITY}};
  inferd_sampling sampling;
  inferd_sampling_init(&sampling);
  sampling.temperature = 0.5f;
  sampling.top_k = 40;
  sampling.top_p = 0.9f;
  sampling.min_p = 0.1f;
  sampling.repetition_penalty = 1.1f;
  sampling.presence_penalty = 0.2f;
  sampling.frequency_penalty = 0.3f;
  sampling.penalty_last_n = 32;
  sampling.seed = 1234567890123;
  sampling.branch = 3;
  sampling.logit_bias = bias;
  sampling.logit_bias_count = 2;
  sampling.max_tokens = 17;
  sampling.logprobs = 1;
  sampling.top_logprobs = 5;
  sampling.ignore_eos = 1;
  read_all(client.ask({1}, &sampling).get());
  const ipc::SubmitRecord f = server.last_fields();
  EXPECT_EQ(f.temperature, 0.5f);
  EXPECT_EQ(f.top_k, 40u);
  EXPECT_EQ(f.top_p, 0.9f);
  EXPECT_EQ(f.min_p, 0.1f);
  EXPECT_EQ(f.repetition_penalty, 1.1f);
  EXPECT_EQ(f.presence_penalty, 0.2f);
  EXPECT_EQ(f.frequency_penalty, 0.3f);
  EXPECT_EQ(f.penalty_last_n, 32u);
  EXPECT_EQ(f.seed, 1234567890123u);
  EXPECT_EQ(f.branch, 3u);
  EXPECT_EQ(f.max_tokens, 17u);
  EXPECT_EQ(f.top_logprobs, 5u);
  EXPECT_EQ(f.header.flags, ipc::kSubmitLogprobs | ipc::kSubmitIgnoreEos);
}

TEST(Requests, LogprobsAndAlternativesComeWithTheirTokens) {
  constexpr uint32_t kTop = 20;
  // Records of 43 slots in a ring of 256.
  FakeServer server(Script{.ids = bytes_as_ids("a text of forty tokens, more or less...."),
                           .tokens_per_step = 16});
  Client client(server);
  inferd_sampling sampling;
  inferd_sampling_init(&sampling);
  sampling.logprobs = 1;
  sampling.top_logprobs = kTop;
  const Answer got = read_all(client.ask({1}, &sampling).get());
  EXPECT_EQ(got.text, "a text of forty tokens, more or less....");
  ASSERT_EQ(got.logprobs.size(), got.ids.size());
  ASSERT_EQ(got.top.size(), got.ids.size() * kTop);
  for (size_t i = 0; i < got.ids.size(); ++i) {
    EXPECT_EQ(got.logprobs[i].token, got.ids[i]);
    EXPECT_EQ(got.logprobs[i].logprob, -0.5f * static_cast<float>(i));
    for (size_t k = 0; k < kTop; ++k) {
      EXPECT_EQ(got.top[i * kTop + k].token, static_cast<int32_t>(k));
      EXPECT_EQ(got.top[i * kTop + k].logprob,
                -static_cast<float>(i) - 0.25f * static_cast<float>(k));
    }
  }
}

TEST(Requests, StopStringEndsTheAnswerAndTellsTheDaemonWhere) {
  for (const uint32_t burst : {1u, 3u, 16u}) {
    FakeServer server(
        Script{.ids = {kHello, kBen, kD, 'x', 'y', 'z'}, .hold = true, .tokens_per_step = burst});
    Client client(server);
    inferd_sampling sampling = until_end();
    sampling.logprobs = 1;
    auto answer = client.ask({1}, &sampling);
    const Answer got = read_all(answer.get());
    EXPECT_EQ(got.text, "Hellob");
    EXPECT_EQ(got.ids, (std::vector<int32_t>{kHello, kBen}));
    EXPECT_EQ(got.logprobs.size(), 2u);
    EXPECT_EQ(got.finish, INFERD_FINISH_STOP);
    inferd_usage usage = {};
    usage.struct_bytes = sizeof(usage);
    ASSERT_EQ(inferd_get_usage(answer.get(), &usage, nullptr), INFERD_OK);
    EXPECT_EQ(usage.completion_tokens, 2u);
    ASSERT_TRUE(eventually([&] { return server.truncations() == 1; }));
    EXPECT_EQ(server.delivered(), 2u);
    EXPECT_TRUE(eventually([&] { return server.running() == 0; }));
  }
}

TEST(Requests, HeldBackTextComesWithTheEnd) {
  FakeServer server(Script{.ids = {kHello, kEn}, .reason = ipc::FinishReason::kLength});
  Client client(server);
  const inferd_sampling sampling = until_end();
  const Answer got = read_all(client.ask({1}, &sampling).get());
  EXPECT_EQ(got.text, "HelloEN");
  EXPECT_EQ(got.ids, (std::vector<int32_t>{kHello, kEn}));
  EXPECT_EQ(got.finish, INFERD_FINISH_LENGTH);
}

TEST(Requests, CancelEndsTheSequenceOnBothSides) {
  FakeServer server(Script{.ids = {kHello}, .hold = true});
  Client client(server);
  auto answer = client.ask({1});
  inferd_event event;
  inferd_event_init(&event);
  ASSERT_EQ(inferd_next(answer.get(), -1, &event, nullptr), INFERD_OK);
  EXPECT_EQ(inferd_next(answer.get(), 0, &event, nullptr), INFERD_TIMED_OUT);
  EXPECT_EQ(inferd_next(answer.get(), 5, &event, nullptr), INFERD_TIMED_OUT);
  inferd_cancel(answer.get());
  const Answer got = read_all(answer.get());
  EXPECT_EQ(got.finish, INFERD_FINISH_CANCELLED);
  EXPECT_EQ(server.cancels(), 1u);
  inferd_cancel(answer.get());  // after the end: nothing
  answer.reset();
  auto closed_early = client.ask({1});
  ASSERT_TRUE(eventually([&] { return server.running() == 1; }));
  closed_early.reset();
  EXPECT_TRUE(eventually([&] { return server.running() == 0; }));
  EXPECT_EQ(server.cancels(), 2u);
}

TEST(Requests, ARunningSequenceIsReniced) {
  FakeServer server(Script{.ids = {kHello}, .hold = true});
  Client client(server);
  auto sequence = client.ask({1});
  inferd_error* error = nullptr;
  EXPECT_EQ(inferd_renice(sequence.get(), INFERD_PRIORITY_IDLE, 5, &error), INFERD_OK);
  EXPECT_EQ(error, nullptr);
  EXPECT_EQ(inferd_renice(sequence.get(), INFERD_PRIORITY_IDLE, -1, &error),
            INFERD_PERMISSION_DENIED);
  EXPECT_STREQ(inferd_error_message(error),
               (std::string(ipc::kReniceSentenceBytesMax, 'n')).c_str());
  inferd_error_free(error);
  EXPECT_EQ(inferd_renice(sequence.get(), 3, 0, nullptr), INFERD_INVALID_ARGUMENT);
  EXPECT_EQ(inferd_renice(sequence.get(), INFERD_PRIORITY_IDLE, 20, nullptr),
            INFERD_INVALID_ARGUMENT);
  EXPECT_EQ(server.renices(), 2u);
  // While another thread waits for the sequence, and several at once.
  std::thread reader([&] { EXPECT_EQ(read_all(sequence.get()).finish, INFERD_FINISH_CANCELLED); });
  std::vector<std::thread> renicers;
  for (int i = 0; i < 4; ++i) {
    renicers.emplace_back([&, i] {
      for (int round = 0; round < 50; ++round) {
        EXPECT_EQ(
            inferd_renice(sequence.get(), INFERD_PRIORITY_BATCH, i % 2 == 0 ? 1 : -1, nullptr),
            i % 2 == 0 ? INFERD_OK : INFERD_PERMISSION_DENIED);
      }
    });
  }
  for (std::thread& renicer : renicers) renicer.join();
  inferd_cancel(sequence.get());
  reader.join();
  EXPECT_EQ(inferd_renice(sequence.get(), INFERD_PRIORITY_IDLE, 0, &error), INFERD_NOT_FOUND);
  inferd_error_free(error);
  auto lost = client.ask({1});
  server.kill();
  EXPECT_EQ(inferd_renice(lost.get(), INFERD_PRIORITY_IDLE, 0, &error), INFERD_UNAVAILABLE);
  inferd_error_free(error);
}

TEST(Requests, SamplesOfOnePromptAreNumberedAndOpenedTogetherOrNotAtAll) {
  std::mutex mutex;
  std::vector<ipc::SubmitRecord> asked;
  FakeServer server([&](const ipc::Submission& s) {
    const std::lock_guard lock(mutex);
    asked.push_back(s.fields);
    return Script{.ids = {kHello}};
  });
  Client client(server);
  inferd_prompt prompt;
  inferd_prompt_init(&prompt);
  prompt.text = "abc";
  prompt.text_bytes = 3;
  inferd_sampling sampling;
  inferd_sampling_init(&sampling);
  sampling.branch = 7;
  inferd_sequence* samples[3] = {};
  ASSERT_EQ(inferd_open_samples(client.get(), &prompt, &sampling, 3, samples, nullptr), INFERD_OK);
  for (inferd_sequence* sample : samples) EXPECT_EQ(read_all(sample).text, "Hello");
  std::unique_lock lock(mutex);
  ASSERT_EQ(asked.size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(asked[i].branch, 7 + i);
    EXPECT_EQ(asked[i].parent_cookie, i == 0 ? 0 : asked[0].header.cookie);
    EXPECT_EQ(asked[i].prompt_count, 3u);
    inferd_close(samples[i]);
  }
  lock.unlock();
  EXPECT_EQ(inferd_open_samples(client.get(), &prompt, &sampling, 0, samples, nullptr),
            INFERD_INVALID_ARGUMENT);
  sampling.top_p = 2;
  EXPECT_EQ(inferd_open_samples(client.get(), &prompt, &sampling, 3, samples, nullptr),
            INFERD_INVALID_ARGUMENT);
  EXPECT_EQ(samples[0], nullptr);
}

TEST(Requests, AContinuationToScoreIsSubmittedWithItsPrompt) {
  FakeServer server([](const ipc::Submission& s) {
    Script script;
    script.ids.assign(s.prompt.begin() + s.fields.score_first, s.prompt.end());
    script.reason = ipc::FinishReason::kLength;
    return script;
  });
  Client client(server);
  inferd_prompt prompt, continuation;
  inferd_prompt_init(&prompt);
  inferd_prompt_init(&continuation);
  prompt.text = "ab";
  prompt.text_bytes = 2;
  const int32_t ids[] = {kHello, kWorld, 'x'};
  continuation.ids = ids;
  continuation.ids_count = 3;
  inferd_sampling sampling;
  inferd_sampling_init(&sampling);
  const char* stop = "world";
  sampling.stop = &stop;
  sampling.stop_count = 1;
  sampling.top_logprobs = 2;
  inferd_sequence* opened = nullptr;
  ASSERT_EQ(inferd_score(client.get(), &prompt, &continuation, &sampling, &opened, nullptr),
            INFERD_OK);
  SequencePtr sequence(opened);
  const Answer answer = read_all(sequence.get());
  EXPECT_EQ(answer.text, "Hello worldx");
  EXPECT_EQ(answer.ids, (std::vector<int32_t>{kHello, kWorld, 'x'}));
  EXPECT_EQ(answer.logprobs.size(), 3u);
  EXPECT_EQ(answer.top.size(), 6u);
  EXPECT_EQ(answer.finish, INFERD_FINISH_LENGTH);
  EXPECT_EQ(server.last_prompt(), (std::vector<TokenId>{'a', 'b', kHello, kWorld, 'x'}));
  EXPECT_EQ(server.last_fields().score_first, 2u);
  EXPECT_EQ(server.last_fields().max_tokens, 3u);

  const auto refused = [&](const inferd_prompt& before, const inferd_prompt& scored) {
    inferd_error* error = nullptr;
    EXPECT_EQ(inferd_score(client.get(), &before, &scored, nullptr, &opened, &error),
              INFERD_INVALID_ARGUMENT);
    const std::string text = inferd_error_message(error);
    inferd_error_free(error);
    return text;
  };
  inferd_prompt empty = prompt;
  empty.text_bytes = 0;
  EXPECT_NE(refused(prompt, empty).find("no tokens"), std::string::npos);
  EXPECT_NE(refused(empty, continuation).find("follows nothing"), std::string::npos);
  inferd_prompt chat;
  inferd_prompt_init(&chat);
  chat.chat_json = "[]";
  chat.chat_json_bytes = 2;
  EXPECT_NE(refused(prompt, chat).find("text or ids"), std::string::npos);
}

}  // namespace
}  // namespace inferd::test
