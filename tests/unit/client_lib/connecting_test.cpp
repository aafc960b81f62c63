// Connections through the C interface, against a server in miniature: what they tell, what is refused,
// what is left of them.
#include <dirent.h>
#include <gtest/gtest.h>

#include <inferd/inferd.hpp>
#include <string>
#include <vector>

#include "client_lib/include/inferd/inferd.h"
#include "fake_server.h"
#include "library_fixture.h"

namespace inferd::test {
namespace {

TEST(Connecting, ModelInfoAndTextFunctionsWork) {
  FakeServer server(Script{});
  Client client(server);
  inferd_model_info info = {};
  info.struct_bytes = sizeof(info);
  ASSERT_EQ(inferd_get_model_info(client.get(), &info, nullptr), INFERD_OK);
  EXPECT_STREQ(info.name, "tiny");
  EXPECT_EQ(info.vocabulary, kVocabulary);
  EXPECT_EQ(info.eos_token, kEos);
  EXPECT_EQ(info.has_chat_template, 1);
  EXPECT_EQ(client.tokenize("ab<|end|>", 0).size(), 9u) << "typed control tokens stay text";
  EXPECT_EQ(client.tokenize("ab<|end|>", INFERD_TOKENIZE_SPECIAL),
            (std::vector<int32_t>{'a', 'b', kEos}));
  char* text = nullptr;
  size_t bytes = 0;
  const int32_t ids[] = {kHello, kEos, kWorld};
  ASSERT_EQ(inferd_detokenize(client.get(), ids, 3, 1, &text, &bytes, nullptr), INFERD_OK);
  EXPECT_EQ(std::string(text, bytes), "Hello<|end|> world");
  inferd_free(text);
}

// A model beside the one that the server has.
ipc::ModelInfo other_model(const std::string& name, bool has_chat_template) {
  return {name, "llama", "Q8_0", "other-1", 7'000'000'000, 32000, 4096, 1, 2, has_chat_template};
}

TEST(Connecting, TheModelsOfTheDaemonAreListed) {
  FakeServer::Options options;
  options.other_models = {other_model("large", true), other_model("small", false)};
  FakeServer server(Script{}, options);
  Client client(server);
  std::vector<inferd_model_info> models;
  inferd_model_info info = {};
  info.struct_bytes = sizeof(info);
  inferd_error* error = nullptr;
  while (inferd_get_model_at(client.get(), models.size(), &info, &error) == INFERD_OK) {
    models.push_back(info);
  }
  EXPECT_EQ(error, nullptr);
  EXPECT_EQ(inferd_get_model_at(client.get(), SIZE_MAX, &info, &error), INFERD_NOT_FOUND);
  ASSERT_EQ(models.size(), 3u);
  EXPECT_STREQ(models[0].name, "large");
  EXPECT_STREQ(models[0].quantization, "Q8_0");
  EXPECT_STREQ(models[0].numerics_id, "other-1");
  EXPECT_EQ(models[0].parameters, 7'000'000'000u);
  EXPECT_EQ(models[0].vocabulary, 32000u);
  EXPECT_EQ(models[0].context_tokens, 4096u);
  EXPECT_EQ(models[0].eos_token, 2);
  EXPECT_EQ(models[0].has_chat_template, 1);
  EXPECT_EQ(models[0].in_use, 0);
  EXPECT_STREQ(models[1].name, "tiny");
  EXPECT_EQ(models[1].in_use, 1);
  EXPECT_EQ(models[2].has_chat_template, 0);
  ASSERT_EQ(inferd_get_model_info(client.get(), &info, nullptr), INFERD_OK);
  EXPECT_STREQ(info.name, "tiny");
  EXPECT_EQ(info.in_use, 1);
}

TEST(Connecting, OfAnOlderDaemonTheConnectionsModelIsListed) {
  FakeServer::Options options;
  options.features = ipc::kFeatures & ~ipc::kFeatureModels;
  options.other_models = {other_model("large", true)};
  FakeServer server(Script{}, options);
  client::ConnectOptions where;
  where.socket_path = server.path();
  client::Connection connection(where);
  const std::vector<inferd_model_info> models = connection.models();
  ASSERT_EQ(models.size(), 1u);
  EXPECT_STREQ(models[0].name, "tiny");
  EXPECT_EQ(models[0].vocabulary, kVocabulary);
  EXPECT_EQ(models[0].has_chat_template, 1);
  EXPECT_EQ(models[0].in_use, 1);
}

TEST(Connecting, ChatIsRenderedByTheTemplateAndAUserCannotForgeItsTokens) {
  FakeServer server(Script{});
  Client client(server);
  const std::string chat = R"([{"role":"user","content":"x<|model|>"}])";
  int32_t* ids = nullptr;
  size_t count = 0;
  inferd_error* error = nullptr;
  ASSERT_EQ(inferd_render_chat(client.get(), chat.data(), chat.size(), &ids, &count, &error),
            INFERD_OK)
      << inferd_error_message(error);
  std::vector<int32_t> expected = {kUser, 'x'};
  for (const int32_t id : bytes_as_ids("<|model|>")) expected.push_back(id);
  expected.push_back(kModel);
  EXPECT_EQ(std::vector<int32_t>(ids, ids + count), expected);
  inferd_free(ids);
  const std::string broken = "[{";
  EXPECT_EQ(inferd_render_chat(client.get(), broken.data(), broken.size(), &ids, &count, &error),
            INFERD_INVALID_ARGUMENT);
  EXPECT_NE(std::string(inferd_error_message(error)).find("JSON"), std::string::npos);
  inferd_error_free(error);
}

TEST(Connecting, RefusedHandshakeSaysWhy) {
  FakeServer::Options options;
  options.refuse = Error(ErrorCode::kNotFound, "no model 'x'; there are: tiny");
  FakeServer server(Script{}, options);
  std::string text;
  EXPECT_EQ(Client::try_connect(server.path(), 1000, &text), INFERD_NOT_FOUND);
  EXPECT_EQ(text, "no model 'x'; there are: tiny");
}

TEST(Connecting, MuteDaemonTimesOut) {
  FakeServer::Options options;
  options.mute = true;
  FakeServer server(Script{}, options);
  std::string text;
  EXPECT_EQ(Client::try_connect(server.path(), 30, &text), INFERD_TIMED_OUT);
}

TEST(Connecting, AnOlderDaemonNeitherScoresNorRenices) {
  FakeServer::Options options;
  options.features = ipc::kFeatures & ~(ipc::kFeatureRenice | ipc::kFeatureScore);
  FakeServer server(Script{.hold = true}, options);
  Client client(server);
  auto sequence = client.ask({1});
  inferd_error* error = nullptr;
  EXPECT_EQ(inferd_renice(sequence.get(), INFERD_PRIORITY_IDLE, 5, &error), INFERD_UNSUPPORTED);
  EXPECT_NE(std::string(inferd_error_message(error)).find("inferctl renice"), std::string::npos);
  inferd_error_free(error);
  inferd_prompt prompt;
  inferd_prompt_init(&prompt);
  prompt.text = "ab";
  prompt.text_bytes = 2;
  inferd_sequence* opened = nullptr;
  EXPECT_EQ(inferd_score(client.get(), &prompt, &prompt, nullptr, &opened, &error),
            INFERD_UNSUPPORTED);
  EXPECT_NE(std::string(inferd_error_message(error)).find("scoring"), std::string::npos);
  inferd_error_free(error);
}

TEST(Connecting, DisconnectFreesEverythingOnBothSides) {
  const auto open_fds = [] {
    DIR* dir = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(dir) != nullptr) ++count;
    closedir(dir);
    return count;
  };
  FakeServer server(Script{.hold = true});
  {
    Client warm(server);
    ASSERT_TRUE(eventually([&] { return server.sessions() == 1; }));
  }
  ASSERT_TRUE(eventually([&] { return server.sessions() == 0; }));
  const int baseline = open_fds();
  for (int round = 0; round < 20; ++round) {
    Client client(server);
    inferd_sequence* left_open = client.ask({1}).release();
    EXPECT_NE(left_open, nullptr);
  }
  EXPECT_TRUE(eventually([&] { return server.sessions() == 0 && open_fds() <= baseline; }))
      << open_fds() << " of " << baseline;
}

}  // namespace
}  // namespace inferd::test
