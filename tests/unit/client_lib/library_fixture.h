// What the library's tests share: a connected client, answers read to the end, waiting for a state.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client_lib/include/inferd/inferd.h"
#include "fake_server.h"

namespace inferd::test {

struct CloseSequence {
  void operator()(inferd_sequence* sequence) const { inferd_close(sequence); }
};
using SequencePtr = std::unique_ptr<inferd_sequence, CloseSequence>;

class Client {
 public:
  explicit Client(const FakeServer& server, uint32_t spin_us = 0) {
    inferd_connect_options options;
    inferd_connect_options_init(&options);
    options.socket_path = server.path().c_str();
    options.spin_us = spin_us;
    inferd_error* error = nullptr;
    const inferd_status status = inferd_connect(&options, &connection_, &error);
    EXPECT_EQ(status, INFERD_OK) << inferd_error_message(error);
    inferd_error_free(error);
  }
  ~Client() { inferd_disconnect(connection_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  inferd_connection* get() const { return connection_; }

  SequencePtr ask(const std::vector<int32_t>& ids, const inferd_sampling* sampling = nullptr) {
    SequencePtr sequence;
    std::string text;
    EXPECT_EQ(open(ids, sampling, &sequence, &text), INFERD_OK) << text;
    return sequence;
  }
  inferd_status try_ask(const std::vector<int32_t>& ids, std::string* text) {
    SequencePtr sequence;
    return open(ids, nullptr, &sequence, text);
  }
  std::vector<int32_t> tokenize(const std::string& text, uint32_t flags) {
    int32_t* ids = nullptr;
    size_t count = 0;
    EXPECT_EQ(inferd_tokenize(connection_, text.data(), text.size(), flags, &ids, &count, nullptr),
              INFERD_OK);
    std::vector<int32_t> found(ids, ids + count);
    inferd_free(ids);
    return found;
  }
  // Connects and expects not to succeed.
  static inferd_status try_connect(const std::string& path, uint32_t timeout_ms,
                                   std::string* text) {
    inferd_connect_options options;
    inferd_connect_options_init(&options);
    options.socket_path = path.c_str();
    options.timeout_ms = timeout_ms;
    inferd_connection* connection = nullptr;
    inferd_error* error = nullptr;
    const inferd_status status = inferd_connect(&options, &connection, &error);
    EXPECT_EQ(connection, nullptr);
    *text = inferd_error_message(error);
    inferd_error_free(error);
    return status;
  }

 private:
  inferd_status open(const std::vector<int32_t>& ids, const inferd_sampling* sampling,
                     SequencePtr* sequence, std::string* text) {
    inferd_prompt prompt;
    inferd_prompt_init(&prompt);
    prompt.ids = ids.data();
    prompt.ids_count = ids.size();
    inferd_sequence* opened = nullptr;
    inferd_error* error = nullptr;
    const inferd_status status = inferd_open(connection_, &prompt, sampling, &opened, &error);
    sequence->reset(opened);
    *text = inferd_error_message(error);
    inferd_error_free(error);
    return status;
  }

  inferd_connection* connection_ = nullptr;
};

// Sampling that stops at the text "END".
inline inferd_sampling until_end() {
  static const char* const stops[] = {"END"};
  inferd_sampling sampling;
  inferd_sampling_init(&sampling);
  sampling.stop = stops;
  sampling.stop_count = 1;
  return sampling;
}

struct Answer {
  std::string text;
  std::vector<int32_t> ids;
  std::vector<inferd_logprob> logprobs;
  std::vector<inferd_logprob> top;
  inferd_finish finish = INFERD_FINISH_NONE;
  inferd_status status = INFERD_OK;
  std::string error;

  void take(const inferd_event& event) {
    EXPECT_EQ(event.text[event.text_bytes], '\0');
    text.append(event.text, event.text_bytes);
    ids.insert(ids.end(), event.ids, event.ids + event.ids_count);
    if (event.logprobs != nullptr) {
      logprobs.insert(logprobs.end(), event.logprobs, event.logprobs + event.ids_count);
    }
    if (event.top_logprobs != nullptr) {
      top.insert(top.end(), event.top_logprobs,
                 event.top_logprobs + event.ids_count * event.top_logprobs_count);
    }
    finish = event.finish;
  }
};

// Reads until the sequence is over. A wait that takes its whole ten seconds is a lost wake-up, also
// if it finds something in the end.
inline Answer read_all(inferd_sequence* sequence) {
  Answer answer;
  if (sequence == nullptr) return answer;
  for (;;) {
    inferd_event event;
    inferd_event_init(&event);
    inferd_error* error = nullptr;
    const auto start = std::chrono::steady_clock::now();
    const inferd_status status = inferd_next(sequence, 10'000, &event, &error);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10))
        << "a wake-up was lost";
    if (status == INFERD_OK) {
      answer.take(event);
      if (event.finish != INFERD_FINISH_NONE) return answer;
      continue;
    }
    answer.status = status;
    answer.finish = event.finish;
    answer.error = inferd_error_message(error);
    inferd_error_free(error);
    return answer;
  }
}

// Whether `condition` becomes true; gives up after ten seconds.
template <typename Condition>
bool eventually(Condition&& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

}  // namespace inferd::test
