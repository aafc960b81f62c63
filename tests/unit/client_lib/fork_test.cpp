// Forks through the C interface, and what an older daemon or an older program makes of what came
// later.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "client_lib/include/inferd/inferd.h"
#include "fake_server.h"
#include "library_fixture.h"

namespace inferd::test {
namespace {

// Opens, and returns what came of it.
SequencePtr fork_of(const inferd_sequence* parent, const inferd_prompt* more,
                    const inferd_sampling* sampling, inferd_status expected = INFERD_OK) {
  inferd_sequence* child = nullptr;
  inferd_error* error = nullptr;
  EXPECT_EQ(inferd_sequence_fork(parent, more, sampling, &child, &error), expected)
      << inferd_error_message(error);
  inferd_error_free(error);
  return SequencePtr(child);
}

TEST(Fork, GoesOnFromThePromptAndWhatWasDelivered) {
  FakeServer server([](const ipc::Submission& s) {
    Script script;
    script.ids = {kHello, kWorld};
    script.hold = s.fields.parent_cookie == 0;
    return script;
  });
  Client client(server);
  auto parent = client.ask({1, 2, 3});
  std::vector<int32_t> delivered;
  while (delivered.size() < 2) {
    inferd_event event;
    inferd_event_init(&event);
    ASSERT_EQ(inferd_next(parent.get(), 10'000, &event, nullptr), INFERD_OK);
    delivered.insert(delivered.end(), event.ids, event.ids + event.ids_count);
  }
  inferd_sampling sampling;
  inferd_sampling_init(&sampling);
  sampling.branch = 4;
  sampling.priority = INFERD_PRIORITY_BATCH;
  sampling.nice = 3;
  sampling.deadline_ms = 900;
  sampling.no_store = 1;
  auto child = fork_of(parent.get(), nullptr, &sampling);
  EXPECT_EQ(read_all(child.get()).text, "Hello world");
  EXPECT_EQ(server.last_prompt(), (std::vector<TokenId>{1, 2, 3, kHello, kWorld}));
  ipc::SubmitRecord fields = server.last_fields();
  EXPECT_EQ(fields.parent_cookie, 1u);
  EXPECT_EQ(fields.branch, 4u);
  EXPECT_EQ(fields.priority, 1u);
  EXPECT_EQ(fields.nice, 3);
  EXPECT_EQ(fields.deadline_ms, 900u);
  EXPECT_EQ(fields.header.flags, ipc::kSubmitNoStore);

  // A fork of the fork, of an ended one, with tokens of its own.
  inferd_prompt more;
  inferd_prompt_init(&more);
  more.text = "ab";
  more.text_bytes = 2;
  auto grandchild = fork_of(child.get(), &more, nullptr);
  EXPECT_EQ(read_all(grandchild.get()).finish, INFERD_FINISH_STOP);
  EXPECT_EQ(server.last_prompt(),
            (std::vector<TokenId>{1, 2, 3, kHello, kWorld, kHello, kWorld, 'a', 'b'}));
  EXPECT_EQ(server.last_fields().parent_cookie, 2u);
  EXPECT_EQ(server.running(), 1u) << "the parent goes on";
}

TEST(Fork, InTheMiddleOfACharacterCompletesIt) {
  FakeServer server([](const ipc::Submission& s) {
    Script script;
    script.ids = s.fields.parent_cookie == 0 ? std::vector<TokenId>{kHello, 0xC3}
                                             : std::vector<TokenId>{0xA9, 'x'};
    script.hold = s.fields.parent_cookie == 0;
    return script;
  });
  Client client(server);
  auto parent = client.ask({1});
  std::string text;
  size_t ids = 0;
  while (ids < 2) {
    inferd_event event;
    inferd_event_init(&event);
    ASSERT_EQ(inferd_next(parent.get(), 10'000, &event, nullptr), INFERD_OK);
    text.append(event.text, event.text_bytes);
    ids += event.ids_count;
  }
  EXPECT_EQ(text, "Hello");
  EXPECT_EQ(read_all(fork_of(parent.get(), nullptr, nullptr).get()).text, "éx");
}

TEST(Fork, BeforeAnythingWasDeliveredIsAnotherSampleOfThePrompt) {
  FakeServer server([](const ipc::Submission&) {
    Script script;
    script.ids = {kWorld};
    return script;
  });
  Client client(server);
  auto parent = client.ask({5, 6});
  auto child = fork_of(parent.get(), nullptr, nullptr);
  EXPECT_EQ(read_all(child.get()).text, " world");
  EXPECT_EQ(server.last_prompt(), (std::vector<TokenId>{5, 6}));
  EXPECT_EQ(read_all(parent.get()).text, " world");
}

TEST(Fork, ArgumentsAreChecked) {
  FakeServer server([](const ipc::Submission&) { return Script(); });
  Client client(server);
  auto parent = client.ask({5, 6});
  EXPECT_EQ(fork_of(nullptr, nullptr, nullptr, INFERD_INVALID_ARGUMENT), nullptr);
  inferd_prompt more;
  inferd_prompt_init(&more);
  EXPECT_EQ(fork_of(parent.get(), &more, nullptr, INFERD_INVALID_ARGUMENT), nullptr);
  more.chat_json = "[]";
  more.chat_json_bytes = 2;
  EXPECT_EQ(fork_of(parent.get(), &more, nullptr, INFERD_INVALID_ARGUMENT), nullptr);
  inferd_sampling sampling;
  inferd_sampling_init(&sampling);
  sampling.priority = 3;
  EXPECT_EQ(fork_of(parent.get(), nullptr, &sampling, INFERD_INVALID_ARGUMENT), nullptr);
  sampling.priority = 0;
  for (const int32_t nice : {-21, 20, 1000}) {
    sampling.nice = nice;
    EXPECT_EQ(fork_of(parent.get(), nullptr, &sampling, INFERD_INVALID_ARGUMENT), nullptr);
  }
}

// ---- older peers ----

TEST(OlderPeers, ADaemonWithoutTheFeaturesTakesWhatNeedsNoneAndForksWithoutSharing) {
  FakeServer::Options options;
  options.features = ipc::kFeatureTextTables | ipc::kFeatureDelivered;
  FakeServer server([](const ipc::Submission&) { return Script(); }, options);
  Client client(server);
  auto parent = client.ask({5, 6});
  EXPECT_EQ(read_all(fork_of(parent.get(), nullptr, nullptr).get()).finish, INFERD_FINISH_STOP);
  EXPECT_EQ(server.last_fields().parent_cookie, 0u);
  inferd_sampling sampling;
  inferd_sampling_init(&sampling);
  sampling.no_store = 1;
  EXPECT_EQ(fork_of(parent.get(), nullptr, &sampling, INFERD_UNSUPPORTED), nullptr);
  sampling.no_store = 0;
  sampling.priority = INFERD_PRIORITY_IDLE;
  EXPECT_EQ(fork_of(parent.get(), nullptr, &sampling, INFERD_UNSUPPORTED), nullptr);
  inferd_connect_options connect;
  inferd_connect_options_init(&connect);
  connect.socket_path = server.path().c_str();
  connect.cache_domain = "team";
  inferd_connection* connection = nullptr;
  EXPECT_EQ(inferd_connect(&connect, &connection, nullptr), INFERD_UNSUPPORTED);
}

TEST(OlderPeers, AProgramThatWasCompiledBeforeAFieldCameGetsItsDefault) {
  FakeServer server([](const ipc::Submission&) { return Script(); });
  Client client(server);
  inferd_sampling sampling;
  std::memset(&sampling, 0xEE, sizeof(sampling));
  const size_t first_bytes = offsetof(inferd_sampling, priority);
  inferd_sampling_init_sized(&sampling, first_bytes);
  EXPECT_EQ(sampling.priority, 0xEEEEEEEE) << "what is not the caller's was not written";
  sampling.seed = 9;
  auto sequence = client.ask({1, 2}, &sampling);
  EXPECT_EQ(read_all(sequence.get()).finish, INFERD_FINISH_STOP);
  EXPECT_EQ(server.last_fields().seed, 9u);
  EXPECT_EQ(server.last_fields().priority, 0u);
  EXPECT_EQ(server.last_fields().header.flags, 0u);
}

TEST(Library, TheCacheDomainOfTheOptionsIsAskedFor) {
  FakeServer server([](const ipc::Submission&) { return Script(); });
  inferd_connect_options options;
  inferd_connect_options_init(&options);
  options.socket_path = server.path().c_str();
  options.cache_domain = "team";
  inferd_connection* connection = nullptr;
  ASSERT_EQ(inferd_connect(&options, &connection, nullptr), INFERD_OK);
  EXPECT_EQ(server.last_cache_domain(), "team");
  inferd_disconnect(connection);
  const std::string endless(300, 'x');
  options.cache_domain = endless.c_str();
  EXPECT_EQ(inferd_connect(&options, &connection, nullptr), INFERD_NOT_FOUND);
}

}  // namespace
}  // namespace inferd::test
