// Going on after the daemon went away, through the C interface: what is asked for again, and that
// both parts are the whole.
#include <gtest/gtest.h>

#include <algorithm>

#include "client_lib/include/inferd/inferd.h"
#include "fake_server.h"
#include "library_fixture.h"

namespace inferd::test {
namespace {

// "Hello world, the EN" and so on: a text whose tokens end within characters and stop strings. Goes
// on from wherever the prompt is in it.
const std::vector<TokenId> kStory = {kHello, kWorld, 0xC3, 0xA9, ' ', kEn,
                                     'x',    'b',    kEn,  kD,   '!', '?'};

// Answers with the story from where the prompt (1, 2, then a part of it) ends, until the server is
// to hold.
FakeServer::Handler story(size_t hold_after) {
  return [hold_after](const ipc::Submission& s) {
    Script script;
    const size_t told = s.prompt.size() - 2;
    const size_t end = std::min({kStory.size(), told + s.fields.max_tokens, hold_after});
    for (size_t i = told; i < end; ++i) script.ids.push_back(kStory[i]);
    script.hold = end == hold_after;
    const bool all = end == kStory.size();
    script.reason = all ? ipc::FinishReason::kStop : ipc::FinishReason::kLength;
    return script;
  };
}

void add(Answer& answer, const Answer& more) {
  answer.text += more.text;
  answer.ids.insert(answer.ids.end(), more.ids.begin(), more.ids.end());
  answer.finish = more.finish;
}

Answer uninterrupted(const inferd_sampling& sampling) {
  FakeServer server(story(SIZE_MAX));
  Client client(server);
  return read_all(client.ask({1, 2}, &sampling).get());
}

// The answer with the daemon gone after so many tokens.
Answer interrupted(const inferd_sampling& sampling, size_t after) {
  auto server = std::make_unique<FakeServer>(story(after));
  Client client(*server);
  auto sequence = client.ask({1, 2}, &sampling);
  Answer answer;
  std::thread killer([&] {
    const bool begun = eventually([&] { return server->running() == 1; });
    EXPECT_TRUE(begun);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    server->kill();
  });
  answer = read_all(sequence.get());
  killer.join();
  EXPECT_EQ(answer.status, INFERD_UNAVAILABLE);
  EXPECT_NE(answer.error.find("resume"), std::string::npos);

  FakeServer next(story(SIZE_MAX));
  Client again(next);
  inferd_sequence* rest = nullptr;
  inferd_error* error = nullptr;
  EXPECT_EQ(inferd_resume(again.get(), sequence.get(), &rest, &error), INFERD_OK)
      << inferd_error_message(error);
  add(answer, read_all(rest));
  const ipc::SubmitRecord fields = next.last_fields();
  if (fields.header.cookie != 0) {
    EXPECT_EQ(fields.seed, sampling.seed);
    EXPECT_EQ(fields.branch, sampling.branch);
    EXPECT_EQ(fields.temperature, sampling.temperature);
    EXPECT_EQ(fields.parent_cookie, 0u);
    EXPECT_EQ(fields.nice, sampling.nice);
    EXPECT_EQ(fields.bias_count, sampling.logit_bias_count);
  }
  inferd_close(rest);
  return answer;
}

TEST(Resume, BothPartsAreTheWholeWhereverItBroke) {
  inferd_sampling plain, stopped;
  inferd_sampling_init(&plain);
  plain.seed = 99;
  plain.branch = 4;
  plain.temperature = 0.5f;
  plain.nice = 3;
  const inferd_logit_bias bias = {5, 1.5f};
  plain.logit_bias = &bias;
  plain.logit_bias_count = 1;
  stopped = plain;
  const char* stops[] = {"END"};
  stopped.stop = stops;
  stopped.stop_count = 1;
  inferd_sampling shorter = plain;
  shorter.max_tokens = 7;
  for (const inferd_sampling& sampling : {plain, stopped, shorter}) {
    const Answer whole = uninterrupted(sampling);
    for (size_t after = 1; after <= std::min<size_t>(whole.ids.size(), kStory.size() - 1);
         ++after) {
      const Answer joined = interrupted(sampling, after);
      EXPECT_EQ(joined.text, whole.text) << after;
      EXPECT_EQ(joined.ids, whole.ids) << after;
      EXPECT_EQ(joined.finish, whole.finish) << after;
    }
  }
}

TEST(Resume, WhatWasNotLostIsRefused) {
  FakeServer server(
      [](const ipc::Submission& s) { return Script{.ids = {kHello}, .hold = s.prompt[0] == 9}; });
  Client client(server);
  auto ended = client.ask({1}), running = client.ask({9});
  EXPECT_EQ(read_all(ended.get()).text, "Hello");
  const auto refused = [](Client& onto, inferd_sequence* lost, const char* why) {
    inferd_sequence* rest = nullptr;
    inferd_error* error = nullptr;
    EXPECT_EQ(inferd_resume(onto.get(), lost, &rest, &error), INFERD_INVALID_ARGUMENT);
    EXPECT_NE(std::string(inferd_error_message(error)).find(why), std::string::npos)
        << inferd_error_message(error);
    inferd_error_free(error);
    EXPECT_EQ(rest, nullptr);
  };
  refused(client, running.get(), "read on");
  server.kill();
  EXPECT_EQ(read_all(running.get()).status, INFERD_UNAVAILABLE);
  FakeServer next(Script{});
  Client again(next);
  refused(again, ended.get(), "ended before");
}

TEST(Resume, AnotherModelIsRefused) {
  FakeServer server(Script{.hold = true});
  Client client(server);
  auto sequence = client.ask({1});
  server.kill();
  EXPECT_EQ(read_all(sequence.get()).status, INFERD_UNAVAILABLE);
  for (const bool numerics : {false, true}) {
    FakeServer::Options options;
    (numerics ? options.numerics_id : options.model_name) = "other";
    FakeServer next(Script{}, options);
    Client again(next);
    inferd_sequence* rest = nullptr;
    inferd_error* error = nullptr;
    EXPECT_EQ(inferd_resume(again.get(), sequence.get(), &rest, &error), INFERD_VERSION_MISMATCH);
    EXPECT_NE(std::string(inferd_error_message(error)).find("other"), std::string::npos);
    inferd_error_free(error);
  }
}

TEST(Resume, AScoredContinuationGoesOn) {
  const auto scores = [](size_t count) {
    return [count](const ipc::Submission& s) {
      Script script;
      script.ids.assign(s.prompt.begin() + s.fields.score_first, s.prompt.end());
      script.hold = script.ids.size() > count;
      if (script.hold) script.ids.resize(count);
      script.reason = ipc::FinishReason::kLength;
      return script;
    };
  };
  FakeServer server(scores(2));
  Client client(server);
  inferd_prompt prompt, continuation;
  inferd_prompt_init(&prompt);
  inferd_prompt_init(&continuation);
  const int32_t before[] = {1, 2}, scored[] = {kHello, kWorld, 'a', 'b', 'c'};
  prompt.ids = before;
  prompt.ids_count = 2;
  continuation.ids = scored;
  continuation.ids_count = 5;
  inferd_sequence* opened = nullptr;
  ASSERT_EQ(inferd_score(client.get(), &prompt, &continuation, nullptr, &opened, nullptr),
            INFERD_OK);
  SequencePtr sequence(opened);
  ASSERT_TRUE(eventually([&] { return server.running() == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  server.kill();
  Answer answer = read_all(sequence.get());
  EXPECT_EQ(answer.ids, (std::vector<int32_t>{kHello, kWorld}));
  FakeServer next(scores(9));
  Client again(next);
  inferd_sequence* rest = nullptr;
  ASSERT_EQ(inferd_resume(again.get(), sequence.get(), &rest, nullptr), INFERD_OK);
  const Answer more = read_all(rest);
  EXPECT_EQ(more.ids, (std::vector<int32_t>{'a', 'b', 'c'}));
  EXPECT_EQ(more.logprobs.size(), 3u);
  EXPECT_EQ(next.last_fields().score_first, 4u);
  inferd_close(rest);
}

TEST(Reconnect, TriesUntilTheDaemonIsBackAndGivesUpInTime) {
  FakeServer::Options options;
  options.path = "/tmp/inferd-reconnect-test-" + std::to_string(getpid()) + ".sock";
  auto server = std::make_unique<FakeServer>(Script{.hold = true}, options);
  Client client(*server);
  server.reset();
  inferd_connection* again = nullptr;
  inferd_error* error = nullptr;
  EXPECT_EQ(inferd_reconnect(client.get(), 30, &again, &error), INFERD_UNAVAILABLE);
  EXPECT_EQ(again, nullptr);
  inferd_error_free(error);
  std::unique_ptr<FakeServer> next;
  std::thread starter([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    next = std::make_unique<FakeServer>(Script{.hold = true}, options);
  });
  EXPECT_EQ(inferd_reconnect(client.get(), 10'000, &again, &error), INFERD_OK)
      << inferd_error_message(error);
  starter.join();
  inferd_disconnect(again);
  options.refuse = Error(ErrorCode::kPermissionDenied, "not you");
  next.reset();
  next = std::make_unique<FakeServer>(Script{}, options);
  EXPECT_EQ(inferd_reconnect(client.get(), 600'000, &again, nullptr), INFERD_PERMISSION_DENIED)
      << "what waiting does not change is told at once";
}

}  // namespace
}  // namespace inferd::test
