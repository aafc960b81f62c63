// What goes wrong with requests through the C interface, against a server in miniature.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "client_lib/include/inferd/inferd.h"
#include "fake_server.h"
#include "library_fixture.h"

namespace inferd::test {
namespace {

TEST(Failures, ErrorOfASequenceIsReturnedOnceAfterItsTokens) {
  const std::string sentence(900, 's');
  FakeServer server(
      Script{.ids = {kHello, kEn}, .error = Error(ErrorCode::kResourceExhausted, sentence)});
  Client client(server);
  const inferd_sampling sampling = until_end();
  auto answer = client.ask({1}, &sampling);
  const Answer got = read_all(answer.get());
  EXPECT_EQ(got.text, "HelloEN");
  EXPECT_EQ(got.status, INFERD_RESOURCE_EXHAUSTED);
  EXPECT_EQ(got.finish, INFERD_FINISH_ERROR);
  EXPECT_EQ(got.error, sentence);
  inferd_event event;
  inferd_event_init(&event);
  EXPECT_EQ(inferd_next(answer.get(), -1, &event, nullptr), INFERD_NOT_FOUND);
}

TEST(Failures, ArgumentsAreChecked) {
  FakeServer server(Script{});
  Client client(server);
  const auto refusal = [&](auto&& change) {
    inferd_prompt prompt;
    inferd_prompt_init(&prompt);
    const int32_t id = 1;
    prompt.ids = &id;
    prompt.ids_count = 1;
    inferd_sampling sampling;
    inferd_sampling_init(&sampling);
    change(prompt, sampling);
    inferd_sequence* sequence = nullptr;
    inferd_error* error = nullptr;
    const inferd_status status = inferd_open(client.get(), &prompt, &sampling, &sequence, &error);
    const std::string text = inferd_error_message(error);
    EXPECT_EQ(sequence, nullptr);
    EXPECT_EQ(status, inferd_error_status(error));
    inferd_error_free(error);
    return text;
  };
  EXPECT_NE(refusal([](auto& p, auto&) { p.text = "x"; }).find("exactly one"), std::string::npos);
  EXPECT_NE(refusal([](auto& p, auto&) { p.ids_count = 0; }).find("no tokens"), std::string::npos);
  EXPECT_NE(refusal([](auto&, auto& s) { s.temperature = -1; }).find("temperature"),
            std::string::npos);
  EXPECT_NE(refusal([](auto&, auto& s) { s.top_logprobs = 3; }).find("logprobs"),
            std::string::npos);
  EXPECT_NE(refusal([](auto&, auto& s) { s.struct_bytes = 0; }).find("inferd_sampling_init"),
            std::string::npos);
  static const int32_t outside = kVocabulary;
  EXPECT_NE(refusal([](auto& p, auto&) { p.ids = &outside; }).find("vocabulary of 264"),
            std::string::npos);
  static const std::vector<int32_t> huge(8193, 1);
  EXPECT_NE(refusal([](auto& p, auto&) {
              p.ids = huge.data();
              p.ids_count = huge.size();
            }).find("8193"),
            std::string::npos);
  static const char* empty_stop[] = {""};
  EXPECT_NE(refusal([](auto&, auto& s) {
              s.stop = empty_stop;
              s.stop_count = 1;
            }).find("stop string is empty"),
            std::string::npos);
  inferd_event event = {};
  auto answer = client.ask({1});
  EXPECT_EQ(inferd_next(answer.get(), 0, &event, nullptr), INFERD_INVALID_ARGUMENT);
}

TEST(Failures, PromptsReuseTheArenaAndWaitForRoom) {
  FakeServer server(Script{.ids = {kHello}});
  Client client(server);
  const std::vector<int32_t> prompt(3000, 7);  // 12,000 of 16,384 bytes: one at a time
  for (int round = 0; round < 50; ++round) {
    EXPECT_EQ(read_all(client.ask(prompt).get()).text, "Hello");
  }
  std::vector<SequencePtr> answers;
  for (int i = 0; i < 50; ++i) answers.push_back(client.ask(prompt));
  for (auto& answer : answers) EXPECT_EQ(read_all(answer.get()).text, "Hello");
}

TEST(Failures, DaemonThatDoesNotDrainIsNoHang) {
  FakeServer::Options options;
  options.drain = false;
  FakeServer server(Script{}, options);
  Client client(server);
  const std::vector<int32_t> prompt(4096, 7);
  auto first = client.ask(prompt);
  ASSERT_TRUE(first);
  std::string text;
  EXPECT_EQ(client.try_ask(prompt, &text), INFERD_RESOURCE_EXHAUSTED);
  EXPECT_NE(text.find("16384"), std::string::npos) << text;
}

TEST(Failures, DaemonsDeathEndsWhatRunsAndRefusesWhatComes) {
  FakeServer server(Script{.ids = {kHello, kWorld}, .hold = true});
  Client client(server);
  auto answer = client.ask({1});
  ASSERT_TRUE(eventually([&] { return server.running() == 1; }));
  std::string text;
  inferd_event event;
  inferd_event_init(&event);
  while (text.size() < 11) {
    ASSERT_EQ(inferd_next(answer.get(), 5000, &event, nullptr), INFERD_OK);
    text += event.text;
  }
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    server.kill();
  });
  const Answer got = read_all(answer.get());
  killer.join();
  EXPECT_EQ(got.status, INFERD_UNAVAILABLE);
  EXPECT_NE(got.error.find("connect again"), std::string::npos) << got.error;
  EXPECT_EQ(client.try_ask({1}, &text), INFERD_UNAVAILABLE);
  inferd_cancel(answer.get());
}

TEST(Failures, TokensPublishedBeforeTheDaemonsDeathAreDelivered) {
  FakeServer server(Script{.ids = {kHello, kWorld}, .hold = true});
  Client client(server);
  auto answer = client.ask({1});
  ASSERT_TRUE(eventually([&] { return server.running() == 1; }));
  // The server has made its two steps once it sleeps again.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  server.kill();
  const Answer got = read_all(answer.get());
  EXPECT_EQ(got.text, "Hello world");
  EXPECT_EQ(got.status, INFERD_UNAVAILABLE);
}

TEST(Failures, LastWordOfASessionReachesEverySequence) {
  FakeServer server(Script{.hold = true});
  Client client(server);
  auto one = client.ask({1});
  auto two = client.ask({2});
  ASSERT_TRUE(eventually([&] { return server.running() == 2; }));
  server.end_sessions(Error(ErrorCode::kTimedOut, "you did not read for 30 s"));
  for (inferd_sequence* sequence : {one.get(), two.get()}) {
    const Answer got = read_all(sequence);
    EXPECT_EQ(got.status, INFERD_TIMED_OUT);
    EXPECT_EQ(got.error, "you did not read for 30 s");
    EXPECT_EQ(got.finish, INFERD_FINISH_ERROR);
  }
}

TEST(Failures, AClientWhoseRingIsFullOnlyPausesItself) {
  FakeServer server([](const ipc::Submission& s) {
    Script script;
    script.ids.assign(s.prompt[0] == 1 ? 3000 : 50, 'x');
    return script;
  });
  Client slow(server), quick(server);
  auto unread = slow.ask({1});
  ASSERT_TRUE(eventually([&] { return server.running() == 1; }));
  EXPECT_EQ(read_all(quick.ask({2}).get()).ids.size(), 50u);
  EXPECT_TRUE(eventually([&] { return server.running() == 1; }));
  EXPECT_EQ(read_all(unread.get()).ids.size(), 3000u);
}

TEST(Failures, AReniceThatIsNotAnsweredEndsWithTheConnection) {
  FakeServer::Options options;
  options.mute_renice = true;
  FakeServer server(Script{.hold = true}, options);
  Client client(server);
  auto sequence = client.ask({1});
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    server.kill();
  });
  EXPECT_EQ(inferd_renice(sequence.get(), INFERD_PRIORITY_IDLE, 5, nullptr), INFERD_UNAVAILABLE);
  killer.join();
}

}  // namespace
}  // namespace inferd::test
