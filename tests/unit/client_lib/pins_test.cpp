// Pinning prompts by the C interface and the C++ wrapper.
#include <gtest/gtest.h>

#include <atomic>
#include <inferd/inferd.hpp>
#include <string>
#include <thread>
#include <vector>

#include "fake_server.h"
#include "library_fixture.h"

namespace inferd::test {
namespace {

class Pins : public testing::Test {
 protected:
  explicit Pins(FakeServer::Options options = {}) : server_(Script{.hold = true}, options) {}

  // Pins the ids; the sentence of a refusal is in sentence_.
  inferd_status pin(const std::vector<int32_t>& ids, uint32_t* tokens = nullptr) {
    inferd_prompt prompt;
    inferd_prompt_init(&prompt);
    prompt.ids = ids.data();
    prompt.ids_count = ids.size();
    return heard([&](inferd_error** e) { return inferd_pin(client_.get(), &prompt, tokens, e); });
  }
  inferd_status unpin(uint32_t* tokens = nullptr) {
    return heard([&](inferd_error** e) { return inferd_unpin(client_.get(), tokens, e); });
  }
  template <typename Call>
  inferd_status heard(Call&& call) {
    inferd_error* error = nullptr;
    const inferd_status status = call(&error);
    sentence_ = inferd_error_message(error);
    inferd_error_free(error);
    return status;
  }

  FakeServer server_;
  Client client_{server_};
  std::string sentence_;
};

TEST_F(Pins, AreTheWholePagesOfAPromptAndEndTogether) {
  uint32_t tokens = 7;
  EXPECT_EQ(pin(std::vector<int32_t>(40, 5), &tokens), INFERD_OK);
  EXPECT_EQ(tokens, 32u);
  EXPECT_EQ(pin(std::vector<int32_t>(16, 6)), INFERD_OK);
  EXPECT_EQ(server_.pinned_tokens(), 48u);
  EXPECT_EQ(unpin(&tokens), INFERD_OK);
  EXPECT_EQ(tokens, 48u);
  EXPECT_EQ(unpin(), INFERD_OK);
}

TEST_F(Pins, ARefusalSaysWhy) {
  uint32_t tokens = 7;
  EXPECT_EQ(pin({0, 2, 3}, &tokens), INFERD_NOT_FOUND);
  EXPECT_EQ(tokens, 0u);
  EXPECT_EQ(sentence_, "run it first");
  EXPECT_EQ(pin({1, 2, 3}), INFERD_RESOURCE_EXHAUSTED);
  EXPECT_EQ(sentence_, std::string(ipc::kPinSentenceBytesMax, 'p'));
  EXPECT_EQ(pin({}), INFERD_INVALID_ARGUMENT);
  EXPECT_EQ(pin({kVocabulary}), INFERD_INVALID_ARGUMENT);
  EXPECT_NE(sentence_.find("vocabulary"), std::string::npos);
  EXPECT_EQ(pin(std::vector<int32_t>(9000, 5)), INFERD_RESOURCE_EXHAUSTED);
  EXPECT_NE(sentence_.find("9000 tokens"), std::string::npos);
}

TEST_F(Pins, GiveTheirPartOfTheArenaBack) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(pin(std::vector<int32_t>(3000, 5)), INFERD_OK) << sentence_;  // 12,000 of 16,384 bytes
    ASSERT_EQ(pin(std::vector<int32_t>(3000, 0)), INFERD_NOT_FOUND);
  }
}

TEST_F(Pins, AreAskedForBySeveralThreadsWhileOthersWait) {
  auto sequence = client_.ask({1});
  std::thread reader([&] { EXPECT_EQ(read_all(sequence.get()).finish, INFERD_FINISH_CANCELLED); });
  std::atomic<uint32_t> right{0};
  std::vector<std::thread> threads;
  for (int32_t id = 2; id < 6; ++id) {
    threads.emplace_back([&, id] {
      inferd_prompt prompt;
      inferd_prompt_init(&prompt);
      const std::vector<int32_t> ids(16 * static_cast<size_t>(id), id);
      prompt.ids = ids.data();
      prompt.ids_count = ids.size();
      for (int i = 0; i < 50; ++i) {
        uint32_t tokens = 0;
        const inferd_status status = inferd_pin(client_.get(), &prompt, &tokens, nullptr);
        right += status == INFERD_OK && tokens == ids.size() ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 200u);
  inferd_cancel(sequence.get());
  reader.join();
}

TEST_F(Pins, WorkByTheWrapper) {
  client::ConnectOptions options;
  options.socket_path = server_.path();
  client::Connection connection(options);
  EXPECT_EQ(connection.pin(client::Prompt::text(std::string(20, 'x'), 0)), 16u);
  EXPECT_EQ(connection.try_pin(client::Prompt::ids({0, 1})).error().status(), INFERD_NOT_FOUND);
  EXPECT_THROW(connection.pin(client::Prompt::ids({0, 1})), client::Error);
  EXPECT_EQ(connection.unpin(), 16u);
  EXPECT_EQ(connection.try_unpin().value(), 0u);
}

struct MutePins : Pins {
  MutePins() : Pins(options()) {}
  static FakeServer::Options options() {
    FakeServer::Options options;
    options.mute_pins = true;
    return options;
  }
};

TEST_F(MutePins, OneThatIsNotAnsweredEndsWithTheConnection) {
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    server_.kill();
  });
  EXPECT_EQ(pin({5, 6, 7}), INFERD_UNAVAILABLE);
  killer.join();
  EXPECT_EQ(pin({5, 6, 7}), INFERD_UNAVAILABLE);
  EXPECT_EQ(unpin(), INFERD_UNAVAILABLE);
}

struct OlderDaemon : Pins {
  OlderDaemon() : Pins(options()) {}
  static FakeServer::Options options() {
    FakeServer::Options options;
    options.features = ipc::kFeatures & ~ipc::kFeaturePin;
    return options;
  }
};

TEST_F(OlderDaemon, CannotPin) {
  EXPECT_EQ(pin({5, 6, 7}), INFERD_UNSUPPORTED);
  EXPECT_NE(sentence_.find("inferctl cache pin"), std::string::npos) << sentence_;
  EXPECT_EQ(unpin(), INFERD_UNSUPPORTED);
}

}  // namespace
}  // namespace inferd::test
