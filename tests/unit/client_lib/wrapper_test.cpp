// The C++ wrapper.
#include <gtest/gtest.h>
#include <unistd.h>

#include <inferd/inferd.hpp>
#include <memory>
#include <thread>

#include "fake_server.h"

namespace inferd::test {
namespace {

Script hello(const ipc::Submission& s) {
  Script script;
  script.ids = {kHello, kWorld};
  script.hold = s.prompt[0] == 'h';
  if (s.prompt[0] == 'e') script.error = Error(ErrorCode::kResourceExhausted, "too long");
  return script;
}

TEST(Wrapper, RangeOverEventsTextIdsAndUsage) {
  FakeServer server(hello);
  client::ConnectOptions options;
  options.socket_path = server.path();
  options.client_name = "wrapper";
  client::Connection connection(options);
  EXPECT_EQ(server.last_client_name(), "wrapper");
  EXPECT_STREQ(connection.model().name, "tiny");
  client::Sampling sampling;
  sampling.logprobs = true;
  sampling.top_logprobs = 2;
  auto answer = connection.open(client::Prompt::text("abc", 0), sampling);
  std::string text;
  size_t ids = 0;
  for (const client::Event& event : answer) {
    text += event.text;
    ids += event.ids.size();
    ASSERT_EQ(event.logprobs.size(), event.ids.size());
    for (size_t i = 0; i < event.ids.size(); ++i) EXPECT_EQ(event.alternatives(i).size(), 2u);
  }
  EXPECT_EQ(text, "Hello world");
  EXPECT_EQ(ids, 2u);
  EXPECT_EQ(answer.finish(), INFERD_FINISH_STOP);
  EXPECT_EQ(answer.usage().completion_tokens, 2u);
  EXPECT_EQ(server.last_prompt(), bytes_as_ids("abc"));
}

TEST(Wrapper, ChatAndTextFunctions) {
  FakeServer server(hello);
  client::ConnectOptions options;
  options.socket_path = server.path();
  client::Connection connection(options);
  const std::string chat = R"([{"role":"user","content":"q"}])";
  EXPECT_EQ(connection.render_chat(chat), (std::vector<int32_t>{kUser, 'q', kModel}));
  EXPECT_EQ(connection.open(client::Prompt::chat(chat)).read_all(), "Hello world");
  EXPECT_EQ(server.last_prompt(), (std::vector<TokenId>{kUser, 'q', kModel}));
  EXPECT_EQ(connection.detokenize(std::vector<int32_t>{kHello, kEos}), "Hello");
  EXPECT_EQ(connection.tokenize("é"), (std::vector<int32_t>{0xC3, 0xA9}));
}

TEST(Wrapper, ForksCarryTheirParentsTokensAndTheirOwnSampling) {
  FakeServer server(hello);
  client::ConnectOptions options;
  options.socket_path = server.path();
  options.cache_domain = "team";
  client::Connection connection(options);
  EXPECT_EQ(server.last_cache_domain(), "team");
  auto parent = connection.open(client::Prompt::ids({1, 2}));
  EXPECT_EQ(parent.read_all(), "Hello world");
  client::Sampling sampling;
  sampling.branch = 3;
  sampling.priority = INFERD_PRIORITY_IDLE;
  sampling.nice = 19;
  sampling.deadline = std::chrono::seconds(2);
  sampling.no_store = true;
  EXPECT_EQ(parent.fork(sampling, client::Prompt::text("ab", 0)).read_all(), "Hello world");
  EXPECT_EQ(server.last_prompt(), (std::vector<TokenId>{1, 2, kHello, kWorld, 'a', 'b'}));
  EXPECT_EQ(server.last_fields().branch, 3u);
  EXPECT_EQ(server.last_fields().priority, 2u);
  EXPECT_EQ(server.last_fields().nice, 19);
  EXPECT_EQ(server.last_fields().deadline_ms, 2000u);
  EXPECT_EQ(server.last_fields().header.flags, ipc::kSubmitNoStore);
  EXPECT_EQ(parent.fork().read_all(), "Hello world");
  EXPECT_EQ(server.last_prompt(), (std::vector<TokenId>{1, 2, kHello, kWorld}));
  EXPECT_FALSE(parent.try_fork({}, client::Prompt::chat("[]")));
}

TEST(Wrapper, ErrorsAreThrownOrReturnedByChoice) {
  client::ConnectOptions nowhere;
  nowhere.socket_path = "/nonexistent.sock";
  EXPECT_THROW(client::Connection{nowhere}, client::Error);
  auto connection_result = client::Connection::try_connect(nowhere);
  ASSERT_FALSE(connection_result);
  EXPECT_EQ(connection_result.error().status(), INFERD_UNAVAILABLE);
  FakeServer server(hello);
  client::ConnectOptions options;
  options.socket_path = server.path();
  client::Connection connection(options);
  EXPECT_FALSE(connection.try_open(client::Prompt::ids({})));
  auto answer = connection.open(client::Prompt::ids({'e'}));
  try {
    answer.read_all();
    FAIL() << "no exception";
  } catch (const client::Error& error) {
    EXPECT_EQ(error.status(), INFERD_RESOURCE_EXHAUSTED);
    EXPECT_STREQ(error.what(), "too long");
  }
  EXPECT_EQ(answer.finish(), INFERD_FINISH_ERROR);
}

TEST(Wrapper, StopTokenCancels) {
  FakeServer server(hello);
  client::ConnectOptions options;
  options.socket_path = server.path();
  client::Connection connection(options);
  auto answer = connection.open(client::Prompt::ids({'h'}));
  std::stop_source stop;
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    stop.request_stop();
  });
  std::string text;
  for (const client::Event& event : answer.until(stop.get_token())) text += event.text;
  stopper.join();
  EXPECT_EQ(text, "Hello world");
  EXPECT_EQ(answer.finish(), INFERD_FINISH_CANCELLED);
}

TEST(Wrapper, SamplesScoresAndUrgency) {
  FakeServer server([](const ipc::Submission& s) {
    Script script;
    script.ids = {kHello};
    if (s.scores()) {
      script.ids.assign(s.prompt.begin() + s.fields.score_first, s.prompt.end());
    }
    script.hold = s.prompt[0] == 'h';
    return script;
  });
  client::ConnectOptions options;
  options.socket_path = server.path();
  client::Connection connection(options);
  auto samples = connection.open_samples(client::Prompt::text("abc", 0), {}, 3);
  ASSERT_EQ(samples.size(), 3u);
  for (auto& sample : samples) EXPECT_EQ(sample.read_all(), "Hello");
  EXPECT_EQ(server.last_fields().branch, 2u);
  EXPECT_FALSE(connection.try_open_samples(client::Prompt::ids({}), {}, 2));

  auto scored = connection.score(client::Prompt::text("ab", 0), client::Prompt::ids({kWorld, 'c'}));
  size_t logprobs = 0;
  std::string text;
  for (const client::Event& event : scored) {
    text += event.text;
    logprobs += event.logprobs.size();
  }
  EXPECT_EQ(text, " worldc");
  EXPECT_EQ(logprobs, 2u);
  EXPECT_EQ(
      connection.try_score(client::Prompt::ids({}), client::Prompt::ids({1})).error().status(),
      INFERD_INVALID_ARGUMENT);

  auto held = connection.open(client::Prompt::ids({'h'}));
  held.renice(INFERD_PRIORITY_BATCH, 3);
  EXPECT_EQ(held.try_renice(INFERD_PRIORITY_BATCH, -3).error().status(), INFERD_PERMISSION_DENIED);
  EXPECT_THROW(held.renice(INFERD_PRIORITY_BATCH, 30), client::Error);
}

TEST(Wrapper, ReconnectsAndResumes) {
  FakeServer::Options server_options;
  server_options.path = "/tmp/inferd-wrapper-test-" + std::to_string(getpid()) + ".sock";
  const auto continues = [](bool hold) {
    return [hold](const ipc::Submission& s) {
      const bool begun = s.prompt.back() == kHello;
      return Script{.ids = {begun ? kWorld : kHello}, .hold = hold};
    };
  };
  auto server = std::make_unique<FakeServer>(continues(true), server_options);
  client::ConnectOptions options;
  options.socket_path = server->path();
  client::Connection connection(options);
  auto lost = connection.open(client::Prompt::ids({1, 2}));
  std::string text(lost.next()->text);
  EXPECT_EQ(connection.try_resume(lost).error().status(), INFERD_INVALID_ARGUMENT);
  server.reset();
  EXPECT_THROW(lost.read_all(), client::Error);
  EXPECT_EQ(connection.try_reconnect(std::chrono::milliseconds(0)).error().status(),
            INFERD_UNAVAILABLE);
  server = std::make_unique<FakeServer>(continues(false), server_options);
  auto again = connection.reconnect(std::chrono::seconds(10));
  text += again.resume(lost).read_all();
  EXPECT_EQ(text, "Hello world");
}

TEST(Wrapper, TimedWaitReturnsWithoutAnEvent) {
  FakeServer server(hello);
  client::ConnectOptions options;
  options.socket_path = server.path();
  client::Connection connection(options);
  auto answer = connection.open(client::Prompt::ids({'h'}));
  std::string text;
  while (text.size() < 11) text += answer.next()->text;
  EXPECT_EQ(answer.try_next(std::chrono::milliseconds(1))->state,
            client::Sequence::State::kTimedOut);
  EXPECT_EQ(answer.try_next(std::chrono::milliseconds(0))->state,
            client::Sequence::State::kTimedOut);
}

}  // namespace
}  // namespace inferd::test
