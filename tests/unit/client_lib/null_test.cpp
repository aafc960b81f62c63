// A NULL handle is refused with a sentence by every function of the C interface that takes one.
// (tests/unit/python/package_test.py goes through the header for those that are missing here.)
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "client_lib/include/inferd/inferd.h"
#include "fake_server.h"
#include "library_fixture.h"

namespace inferd::test {
namespace {

using Call = std::function<inferd_status(inferd_error**)>;

// Each is refused, with a sentence that has `words` in it; without an error to fill, too.
void expect_refused(const char* words, const std::vector<Call>& calls) {
  for (size_t i = 0; i < calls.size(); ++i) {
    inferd_error* error = nullptr;
    EXPECT_EQ(calls[i](&error), INFERD_INVALID_ARGUMENT) << words << ", call " << i;
    EXPECT_NE(std::string(inferd_error_message(error)).find(words), std::string::npos)
        << inferd_error_message(error) << ", call " << i;
    inferd_error_free(error);
    EXPECT_EQ(calls[i](nullptr), INFERD_INVALID_ARGUMENT) << words << ", call " << i;
  }
}

// What calls with a NULL handle are given besides, so that nothing else is wrong with them.
class Null : public testing::Test {
 protected:
  Null() {
    inferd_prompt_init(&prompt_);
    prompt_.text = "x";
    prompt_.text_bytes = 1;
    inferd_event_init(&event_);
    usage_.struct_bytes = sizeof(usage_);
    model_.struct_bytes = sizeof(model_);
  }

  inferd_prompt prompt_;
  inferd_event event_;
  inferd_usage usage_ = {};
  inferd_model_info model_ = {};
  inferd_connection* connection_ = nullptr;
  inferd_sequence* sequence_ = nullptr;
  int32_t id_ = 1;
  int32_t* ids_ = nullptr;
  size_t count_ = 0;
  char* text_ = nullptr;
  uint32_t tokens_ = 0;
};

TEST_F(Null, ConnectionsAreRefused) {
  const std::vector<Call> calls = {
      [&](auto* e) { return inferd_reconnect(nullptr, 0, &connection_, e); },
      [&](auto* e) { return inferd_get_model_info(nullptr, &model_, e); },
      [&](auto* e) { return inferd_get_model_at(nullptr, 0, &model_, e); },
      [&](auto* e) { return inferd_tokenize(nullptr, "x", 1, 0, &ids_, &count_, e); },
      [&](auto* e) { return inferd_detokenize(nullptr, &id_, 1, 0, &text_, nullptr, e); },
      [&](auto* e) { return inferd_render_chat(nullptr, "[]", 2, &ids_, &count_, e); },
      [&](auto* e) { return inferd_open(nullptr, &prompt_, nullptr, &sequence_, e); },
      [&](auto* e) { return inferd_open_samples(nullptr, &prompt_, nullptr, 1, &sequence_, e); },
      [&](auto* e) {
        return inferd_score(nullptr, &prompt_, &prompt_, nullptr, &sequence_, e);
      },
      [&](auto* e) { return inferd_pin(nullptr, &prompt_, &tokens_, e); },
      [&](auto* e) { return inferd_unpin(nullptr, &tokens_, e); },
  };
  expect_refused("the connection is NULL; give one that inferd_connect() opened", calls);
  EXPECT_EQ(inferd_connection_fd(nullptr), -1);
  inferd_connection_clear(nullptr);
  inferd_disconnect(nullptr);
  EXPECT_EQ(sequence_, nullptr);
}

TEST_F(Null, SequencesAreRefused) {
  FakeServer server(Script{.hold = true});
  Client client(server);
  const std::vector<Call> calls = {
      [&](auto* e) { return inferd_sequence_fork(nullptr, nullptr, nullptr, &sequence_, e); },
      [&](auto* e) { return inferd_resume(client.get(), nullptr, &sequence_, e); },
      [&](auto* e) { return inferd_renice(nullptr, INFERD_PRIORITY_IDLE, 0, e); },
      [&](auto* e) { return inferd_next(nullptr, 0, &event_, e); },
      [&](auto* e) { return inferd_get_usage(nullptr, &usage_, e); },
  };
  expect_refused("the sequence is NULL; give one that inferd_open() opened", calls);
  inferd_cancel(nullptr);
  inferd_close(nullptr);
  EXPECT_EQ(sequence_, nullptr);
  // One that there is, on a connection that is none.
  auto held = client.ask({1});
  expect_refused("the connection is NULL",
                 {[&](auto* e) { return inferd_resume(nullptr, held.get(), &sequence_, e); }});
}

TEST_F(Null, WhatIsToBeFilledIsAskedFor) {
  FakeServer server(Script{.hold = true});
  Client client(server);
  inferd_connection* c = client.get();
  auto held = client.ask({1});
  const std::vector<Call> calls = {
      [&](auto* e) { return inferd_connect(nullptr, nullptr, e); },
      [&](auto* e) { return inferd_reconnect(c, 0, nullptr, e); },
      [&](auto* e) { return inferd_get_model_info(c, nullptr, e); },
      [&](auto* e) { return inferd_get_model_at(c, 0, nullptr, e); },
      [&](auto* e) { return inferd_tokenize(c, "x", 1, 0, nullptr, &count_, e); },
      [&](auto* e) { return inferd_tokenize(c, "x", 1, 0, &ids_, nullptr, e); },
      [&](auto* e) { return inferd_tokenize(c, nullptr, 1, 0, &ids_, &count_, e); },
      [&](auto* e) { return inferd_detokenize(c, &id_, 1, 0, nullptr, &count_, e); },
      [&](auto* e) { return inferd_detokenize(c, nullptr, 1, 0, &text_, &count_, e); },
      [&](auto* e) { return inferd_render_chat(c, "[]", 2, nullptr, &count_, e); },
      [&](auto* e) { return inferd_render_chat(c, nullptr, 2, &ids_, &count_, e); },
      [&](auto* e) { return inferd_open(c, &prompt_, nullptr, nullptr, e); },
      [&](auto* e) { return inferd_open(c, nullptr, nullptr, &sequence_, e); },
      [&](auto* e) { return inferd_open_samples(c, &prompt_, nullptr, 1, nullptr, e); },
      [&](auto* e) { return inferd_open_samples(c, nullptr, nullptr, 1, &sequence_, e); },
      [&](auto* e) { return inferd_score(c, &prompt_, &prompt_, nullptr, nullptr, e); },
      [&](auto* e) { return inferd_score(c, &prompt_, nullptr, nullptr, &sequence_, e); },
      [&](auto* e) { return inferd_pin(c, nullptr, &tokens_, e); },
      [&](auto* e) { return inferd_sequence_fork(held.get(), nullptr, nullptr, nullptr, e); },
      [&](auto* e) { return inferd_next(held.get(), 0, nullptr, e); },
      [&](auto* e) { return inferd_get_usage(held.get(), nullptr, e); },
  };
  expect_refused("NULL", calls);
}

}  // namespace
}  // namespace inferd::test
