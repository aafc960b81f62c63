// A client's end of a session without the library: maps what a welcome would carry, and can write
// any nonsense into it. Owner: tests/unit/ipc.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ipc/doorbell_batch.h"
#include "ipc/server_session.h"

namespace inferd::ipc {

// For flush(), one a thread.
inline DoorbellBatch& test_bells() {
  thread_local const std::unique_ptr<DoorbellBatch> bells = DoorbellBatch::create().value();
  return *bells;
}

struct RawClient {
  SharedRegion client_region;
  SharedRegion token_region;
  UniqueFd submission_bell;
  UniqueFd completion_bell;
  ClientControl* control = nullptr;
  TokenControl* tokens = nullptr;
  RingProducer submissions;
  RingConsumer completions;
  Sleeper sleeper;
  Waker waker;
  std::byte* arena = nullptr;

  explicit RawClient(const ServerSession& session)
      : RawClient(session.geometry(), session.client_fds(-1)) {}
  // Of what a welcome brought. The descriptors stay the caller's.
  RawClient(const Geometry& geometry, const std::vector<UniqueFd>& fds)
      : RawClient(geometry, numbers_of(fds)) {}
  RawClient(const Geometry& g, const std::vector<int>& fds) {
    client_region = std::move(SharedRegion::map(UniqueFd(dup(fds[kFdClientRegion])),
                                                g.client_region_bytes(), Access::kReadWrite))
                        .value();
    token_region = std::move(SharedRegion::map(UniqueFd(dup(fds[kFdTokenRegion])),
                                               g.token_region_bytes(), Access::kReadOnly))
                       .value();
    submission_bell = UniqueFd(dup(fds[kFdSubmissionBell]));
    completion_bell = UniqueFd(dup(fds[kFdCompletionBell]));
    control = reinterpret_cast<ClientControl*>(client_region.data());
    tokens = reinterpret_cast<TokenControl*>(token_region.data());
    submissions =
        RingProducer(reinterpret_cast<Slot*>(client_region.data() + kControlBytes),
                     g.submission_slots, &control->submission_tail, &tokens->submission_head);
    completions =
        RingConsumer(reinterpret_cast<Slot*>(token_region.data() + kControlBytes),
                     g.completion_slots, &control->completion_head, &tokens->completion_tail);
    sleeper = Sleeper(&control->completion_wake);
    waker = Waker(&tokens->submission_wake);
    arena = client_region.data() + g.arena_offset();
  }
  static std::vector<int> numbers_of(const std::vector<UniqueFd>& fds) {
    std::vector<int> numbers;
    for (const UniqueFd& fd : fds) numbers.push_back(fd.get());
    return numbers;
  }

  void put(const void* record, uint32_t bytes) {
    const uint32_t slots = slots_for_bytes(bytes);
    ASSERT_GE(submissions.free_slots(slots), slots);
    submissions.begin(slots);
    submissions.append(record, bytes);
    submissions.finish();
    submissions.publish();
  }

  // The next completion record, all its slots; empty if there is none.
  std::vector<std::byte> take() {
    if (completions.available() == 0) return {};
    std::vector<std::byte> record(kSlotBytes);
    completions.copy_slot(0, record.data());
    RecordHeader header;
    std::memcpy(&header, record.data(), sizeof(header));
    EXPECT_GE(completions.available(header.slots), header.slots);
    record.resize(size_t{header.slots} * kSlotBytes);
    for (uint32_t i = 1; i < header.slots; ++i) {
      completions.copy_slot(i, record.data() + size_t{i} * kSlotBytes);
    }
    completions.skip(header.slots);
    completions.publish();
    return record;
  }
};

template <typename T>
T as(const std::vector<std::byte>& record) {
  T value;
  EXPECT_GE(record.size(), sizeof(T));
  std::memcpy(&value, record.data(), sizeof(T));
  return value;
}

// A submission that is right, of a prompt of `prompt` ids at the arena's start.
inline SubmitRecord good_submission(uint64_t cookie, uint32_t prompt_count) {
  SubmitRecord record = {};
  record.header = {kSubmit, slots_for_bytes(sizeof(SubmitRecord)), 0, 0, cookie};
  record.prompt_count = prompt_count;
  record.max_tokens = kUnlimitedTokens;
  record.top_p = 1;
  record.repetition_penalty = 1;
  return record;
}

// Notes what drain() hands over.
struct RecordingVisitor final : SubmissionVisitor {
  std::vector<uint64_t> submitted;
  std::vector<TokenId> last_prompt;
  std::vector<TokenId> last_stop;
  std::vector<LogitBiasEntry> last_bias;
  std::vector<uint64_t> refused;
  std::string last_refusal;
  ErrorCode last_refusal_code = ErrorCode::kOk;
  std::vector<uint64_t> cancelled;
  std::vector<std::pair<uint32_t, bool>> delivered;
  std::vector<std::pair<Renice, bool>> reniced;
  struct HeardPin {
    uint64_t cookie = 0;
    std::vector<TokenId> prompt;
    std::string refusal;
  };
  std::vector<HeardPin> pinned;

  void on_submit(const Submission& s) override {
    submitted.push_back(s.cookie);
    last_prompt.assign(s.prompt.begin(), s.prompt.end());
    last_stop.assign(s.stop_tokens.begin(), s.stop_tokens.end());
    last_bias.assign(s.logit_bias.begin(), s.logit_bias.end());
  }
  void on_refused(uint64_t cookie, const Error& error) override {
    refused.push_back(cookie);
    last_refusal = error.message();
    last_refusal_code = error.code();
  }
  void on_cancel(uint64_t cookie) override { cancelled.push_back(cookie); }
  void on_delivered(uint64_t, uint32_t tokens, bool truncate) override {
    delivered.emplace_back(tokens, truncate);
  }
  void on_renice(const Renice& renice, const Result<void>& checked) override {
    reniced.emplace_back(renice, checked.ok());
  }
  void on_pin(const Pin& pin, const Result<void>& checked) override {
    pinned.push_back({pin.cookie, {pin.prompt.begin(), pin.prompt.end()},
                      checked ? std::string() : checked.error().message()});
  }
};

}  // namespace inferd::ipc
