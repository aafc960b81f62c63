// A step loop over real scheduler, memory and rings, with a fake engine and clients that the test plays.
// Owner: tests/unit/daemon.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/step_loop.h"
#include "tests/unit/daemon/fake_engine.h"
#include "tests/unit/ipc/raw_client.h"

namespace inferd::daemon {

// Everything that a client was told about one of its requests.
struct Heard {
  bool accepted = false;
  uint64_t sequence_id = 0;
  std::vector<TokenId> ids;
  std::vector<float> logprobs;
  bool finished = false;
  ipc::FinishReason reason{};
  uint32_t completion_tokens = 0;
  uint32_t cached_tokens = 0;
  std::optional<uint32_t> pinned_tokens;  // of a pin, or of the end of all pins
  ErrorCode error = ErrorCode::kOk;
  std::string sentence;
};

class FakeClient {
 public:
  FakeClient(const ipc::ServerSession& session) : raw(std::make_unique<ipc::RawClient>(session)) {}

  uint64_t submit(const std::vector<TokenId>& prompt, uint32_t max_tokens, uint32_t flags = 0) {
    ipc::SubmitRecord record = ipc::good_submission(++cookies_, static_cast<uint32_t>(prompt.size()));
    record.max_tokens = max_tokens;
    record.header.flags = flags;
    return submit(record, prompt);
  }
  uint64_t submit(ipc::SubmitRecord record, const std::vector<TokenId>& prompt) {
    record.prompt_offset = arena_used_;
    record.prompt_count = static_cast<uint32_t>(prompt.size());
    std::memcpy(raw->arena + arena_used_, prompt.data(), prompt.size() * sizeof(TokenId));
    arena_used_ += record.prompt_count * 4;
    put(record);
    return record.header.cookie;
  }
  void renice(uint64_t cookie, uint32_t tag, ipc::Priority priority, int8_t nice) {
    put(ipc::ReniceRecord{
        {ipc::kRenice, 1, 0, 0, cookie}, tag, static_cast<uint8_t>(priority), nice, 0, {}});
  }
  // The cookie of the pin, which names its answer.
  uint64_t pin(const std::vector<TokenId>& prompt) {
    if (!prompt.empty()) {
      std::memcpy(raw->arena + arena_used_, prompt.data(), prompt.size() * sizeof(TokenId));
    }
    put(ipc::PinRecord{{ipc::kPin, 1, 0, 0, ++cookies_},
                       arena_used_,
                       static_cast<uint32_t>(prompt.size()),
                       {}});
    arena_used_ += static_cast<uint32_t>(prompt.size() * sizeof(TokenId));
    return cookies_;
  }
  uint64_t unpin() {
    put(ipc::PinRecord{{ipc::kUnpin, 1, 0, 0, ++cookies_}, 0, 0, {}});
    return cookies_;
  }
  void cancel(uint64_t cookie) {
    put(ipc::CancelRecord{{ipc::kCancel, 1, 0, 0, cookie}, {}});
  }
  void truncate(uint64_t cookie, uint32_t tokens) {
    put(ipc::DeliveredRecord{
        {ipc::kDelivered, 1, 0, ipc::kDeliveredTruncate, cookie}, tokens, 0, {}});
  }
  template <typename Record>
  void put(const Record& record) {
    raw->put(&record, sizeof(record));
    if (raw->waker.should_ring()) ipc::ring_doorbell(raw->submission_bell.get());
  }

  // Reads up to `records_max` completion records.
  void read(size_t records_max = SIZE_MAX) {
    for (size_t i = 0; i < records_max; ++i) {
      const std::vector<std::byte> record = raw->take();
      if (record.empty()) return;
      hear(record);
    }
  }
  // What was submitted so far has been copied: the arena is used from its beginning again.
  void rewind_arena() { arena_used_ = 0; }
  Heard& operator[](uint64_t cookie) { return heard_[cookie]; }

  std::unique_ptr<ipc::RawClient> raw;
  SessionId id;
  std::map<uint32_t, std::pair<ErrorCode, std::string>> reniced;  // answers, by tag
  bool session_ended = false;
  ErrorCode session_error = ErrorCode::kOk;

 private:
  void hear(const std::vector<std::byte>& record) {
    const auto header = ipc::as<ipc::RecordHeader>(record);
    Heard& heard = heard_[header.cookie];
    switch (header.type) {
      case ipc::kAccepted:
        heard.accepted = true;
        heard.sequence_id = ipc::as<ipc::AcceptedRecord>(record).sequence_id;
        return;
      case ipc::kTokens: {
        const auto tokens = ipc::as<ipc::TokensRecord>(record);
        EXPECT_EQ(tokens.first_index, heard.ids.size());
        for (uint32_t i = 0; i < tokens.count; ++i) {
          TokenId id;
          std::memcpy(&id, record.data() + sizeof(tokens) + i * 4, 4);
          heard.ids.push_back(id);
          if ((header.flags & ipc::kTokensLogprobs) == 0) continue;
          float logprob;
          std::memcpy(&logprob, record.data() + sizeof(tokens) + (tokens.count + i) * 4, 4);
          heard.logprobs.push_back(logprob);
        }
        return;
      }
      case ipc::kFinished:
        heard.finished = true;
        heard.reason = static_cast<ipc::FinishReason>(ipc::as<ipc::FinishedRecord>(record).reason);
        heard.completion_tokens = ipc::as<ipc::FinishedRecord>(record).completion_tokens;
        heard.cached_tokens = ipc::as<ipc::FinishedRecord>(record).cached_tokens;
        return;
      case ipc::kReniced: {
        const auto answer = ipc::as<ipc::RenicedRecord>(record);
        const auto* sentence = reinterpret_cast<const char*>(record.data()) + sizeof(answer);
        reniced[answer.tag] = {static_cast<ErrorCode>(answer.code),
                               std::string(sentence, answer.sentence_bytes)};
        return;
      }
      case ipc::kPinned: {
        const auto answer = ipc::as<ipc::PinnedRecord>(record);
        const auto* sentence = reinterpret_cast<const char*>(record.data()) + sizeof(answer);
        heard.pinned_tokens = answer.tokens;
        heard.error = static_cast<ErrorCode>(answer.code);
        heard.sentence = std::string(sentence, answer.sentence_bytes);
        return;
      }
      default: {
        const auto error = ipc::as<ipc::ErrorRecord>(record);
        const std::string sentence(
            reinterpret_cast<const char*>(record.data()) + sizeof(error), error.sentence_bytes);
        if (header.type == ipc::kSessionEnd) {
          session_ended = true;
          session_error = static_cast<ErrorCode>(error.code);
          return;
        }
        heard.error = static_cast<ErrorCode>(error.code);
        heard.sentence = sentence;
      }
    }
  }

  uint64_t cookies_ = 0;
  uint32_t arena_used_ = 0;
  std::map<uint64_t, Heard> heard_;
};

struct LoopOptions {
  uint32_t pages = 256;
  uint32_t sequences_max = 8;
  uint32_t context_tokens = 1024;
  uint32_t step_tokens = 64;
  uint32_t queue = 64;
  uint32_t sequences_per_session = 8;
  uint32_t tier_slots = 0;
  uint32_t user_pinned_pages = 256;
  bool prefix_cache = true;
};

class LoopFixture : public StepLoopObserver {
 public:
  explicit LoopFixture(LoopOptions options = {})
      : options_(options), mailbox(std::move(EngineMailbox::create()).value()),
        memory({.pages = PageCount(options.pages),
                .sequences_max = options.sequences_max,
                .sequence_tokens_max = options.context_tokens,
                .tier_slots = options.tier_slots}),
        scheduler(config(options), memory, clock),
        engine(PageCount(options.pages), options.step_tokens, options.sequences_max) {
    make_loop(nullptr);
    clock.advance_ns(1);
  }

  // Before any client connects.
  void attach_tier(DiskTier& tier) {
    memory.set_tier(&tier);
    make_loop(&tier);
  }

  FakeClient connect(uint32_t uid = 1000, ipc::Geometry* geometry = nullptr,
                     bool privileged = false, CacheDomain domain = {}) {
    const ipc::Geometry rings =
        geometry != nullptr ? *geometry
                            : session_geometry(options_.sequences_per_session,
                                               options_.sequences_max, options_.context_tokens);
    auto session =
        std::move(ipc::ServerSession::create(rings, SessionId(++sessions_), ipc::kFeatures)).value();
    FakeClient client(*session);
    client.id = SessionId(sessions_);
    session->close_client_fds();
    loop->add_session(
        std::move(session),
        {SessionId(sessions_), UserId(uid), 77, "test", clock.now_ns(), domain, privileged,
         scheduler::kWeightDefault},
        options_.sequences_per_session);
    return client;
  }
  // The session that was connected last.
  // What the listener posts when the connection is closed, however that came.
  void die(const FakeClient& client) const { loop->remove_session(client.id); }
  SessionId last_session() const { return SessionId(sessions_); }

  // Turns until nothing happens any more, reading for `clients` after each turn.
  void run_until_idle(std::vector<FakeClient*> clients, uint32_t turns_max = 20'000) {
    uint32_t quiet = 0;
    for (uint32_t turn = 0; turn < turns_max && quiet < 3; ++turn) {
      clock.advance_ns(1'000'000);
      quiet = loop->turn(false) ? 0 : quiet + 1;
      for (FakeClient* client : clients) client->read();
    }
    EXPECT_GE(quiet, 3u) << "still busy";
    const auto verified = loop->verify();
    EXPECT_TRUE(verified.ok()) << verified.error().message();
  }
  // Free ones, and cached ones that would go when somebody needs them.
  PageCount pages_free() const { return memory.available(); }

  void on_session_ended(SessionId session, const Error& reason) override {
    ended.emplace_back(session, reason);
  }
  void on_tier_trouble(const Error& error) override { troubles.push_back(error); }

 private:
  void make_loop(DiskTier* tier) {
    StepLoopLimits limits;
    limits.sequences_per_session = options_.sequences_per_session;
    limits.running_max = options_.sequences_max;
    limits.user_pinned_pages = options_.user_pinned_pages;
    limits.prefix_cache = options_.prefix_cache;
    loop.reset();
    loop = std::move(StepLoop::create({engine, scheduler, memory, mailbox, clock, *this, {kFakeEnd}, tier},
                                      limits))
               .value();
  }
  static scheduler::SchedulerConfig config(const LoopOptions& options) {
    scheduler::SchedulerConfig config;
    config.step_tokens = options.step_tokens;
    config.step_logits = options.sequences_max;
    config.context_tokens = options.context_tokens;
    config.queue_max = options.queue;
    return config;
  }

  LoopOptions options_;
  uint64_t sessions_ = 0;

 public:
  ManualClock clock;
  EngineMailbox mailbox;
  memory::PagedMemory memory;
  scheduler::Scheduler scheduler;
  FakeEngine engine;
  std::vector<std::pair<SessionId, Error>> ended;
  std::vector<Error> troubles;
  std::unique_ptr<StepLoop> loop;
};

inline std::vector<TokenId> prompt_of(uint32_t length, TokenId seed = 1) {
  std::vector<TokenId> prompt;
  for (uint32_t i = 0; i < length; ++i) {
    prompt.push_back(static_cast<TokenId>((static_cast<uint32_t>(seed) * 7 + i * 13) % 48));
  }
  return prompt;
}

}  // namespace inferd::daemon
