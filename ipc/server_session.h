// The daemon's end of one session: its regions, its two rings, its doorbells.
// Owner: ipc. One thread at a time (the control thread creates it, then the engine thread has it).
// Nothing here blocks, and nothing allocates once DrainScratch is warm. Must not know models,
// requests or users: it turns a client's bytes into checked values, and values into records.
//
// The client may write anything into its region at any moment. Each entry is copied once and the
// copy is validated. What breaks the framing (an impossible index, record type, length) ends the
// session; what only makes no sense (an unknown flag, a range outside the arena, a temperature that
// is no number) refuses that one submission, through SubmissionVisitor::on_refused.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "ipc/doorbell.h"
#include "ipc/doorbell_batch.h"
#include "ipc/handshake.h"
#include "ipc/region.h"
#include "ipc/ring.h"
#include "ipc/submission_check.h"
#include "ipc/wire.h"

namespace inferd::ipc {

// A submission, copied and checked as far as that needs no model: finite numbers in their ranges,
// counts within limits. Token ids may still lie outside the vocabulary. The spans lie in the
// DrainScratch and are valid during on_submit only.
struct Submission {
  uint64_t cookie = 0;
  SubmitRecord fields = {};                    // sampling parameters, max_tokens, flags (kSubmit*)
  std::span<const TokenId> prompt;             // [1, arena_bytes / 4]
  std::span<const TokenId> stop_tokens;        // [0, kStopTokensMax]
  std::span<const LogitBiasEntry> logit_bias;  // [0, kLogitBiasesMax]

  bool want_logprobs() const { return (fields.header.flags & kSubmitLogprobs) != 0; }
  bool no_store() const { return (fields.header.flags & kSubmitNoStore) != 0; }
  bool scores() const { return (fields.header.flags & kSubmitScore) != 0; }
  bool ignore_eos() const { return (fields.header.flags & kSubmitIgnoreEos) != 0; }
};

// A change of how urgent a sequence is.
struct Renice {
  uint64_t cookie = 0;
  uint32_t tag = 0;
  Priority priority = Priority::kInteractive;
  int32_t nice = 0;
};

// A prompt to be pinned, copied; its token ids may lie outside the vocabulary. The span lies in the
// DrainScratch and is valid during on_pin only.
struct Pin {
  uint64_t cookie = 0;
  std::span<const TokenId> prompt;  // [1, arena_bytes / 4]; empty: all pins are to end
};

// Receives what drain() read. Cookies are the client's: they may be unknown or used twice.
class SubmissionVisitor {
 public:
  virtual ~SubmissionVisitor() = default;
  // Answer with publish_accepted() or publish_error(), now or later.
  virtual void on_submit(const Submission& submission) = 0;
  // A submission that cannot be: answer with publish_error(cookie, error).
  virtual void on_refused(uint64_t cookie, const Error& error) = 0;
  virtual void on_cancel(uint64_t cookie) = 0;
  // The client's reader has had `tokens` completion tokens. truncate: the sequence ends there, with
  // FinishReason::kStop.
  virtual void on_delivered(uint64_t cookie, uint32_t tokens, bool truncate) = 0;
  // `checked` says whether the urgency is one. Answer with publish_reniced(), now or later.
  virtual void on_renice(const Renice& renice, const Result<void>& checked) = 0;
  // `checked` says whether the prompt could be copied. Answer with publish_pinned(), now or later.
  virtual void on_pin(const Pin& pin, const Result<void>& checked) = 0;
};

// A drain stops after so many prompt ids, so that one client's prompts cannot hold the loop up.
inline constexpr uint32_t kDrainPromptTokensMax = 1u << 16;

// Where drain() puts copies out of the arena; one per draining thread, shared by all its sessions.
struct DrainScratch {
  std::vector<TokenId> prompt;
  std::vector<TokenId> stop_tokens;
  std::vector<LogitBiasEntry> logit_bias;
};

struct DrainOutcome {
  uint32_t records = 0;  // handled, refused ones included
  bool more = false;     // stopped at a limit with some left
  std::optional<Error>
      broken;  // the client broke the protocol: publish_last_word(), flush(), close
};

// One finished sequence.
struct FinishedEvent {
  FinishReason reason = FinishReason::kStop;
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t completion_tokens = 0;
  uint64_t queue_ns = 0;
  uint64_t prefill_ns = 0;
  uint64_t decode_ns = 0;
  uint32_t computed_tokens = 0;
  uint32_t preemptions = 0;
};

// Tokens of one sequence. logprobs is empty, or has ids.size() elements; top has ids.size() *
// top_count.
struct TokensEvent {
  uint32_t first_index = 0;  // of ids[0] among the sequence's completion tokens
  uint32_t cached_tokens = 0;
  std::span<const TokenId> ids;  // 1 to kTokensPerRecordMax
  std::span<const float> logprobs;
  std::span<const LogprobEntry> top;  // [ids.size(), top_count], likeliest first
  uint32_t top_count = 0;
};

class ServerSession {
 public:
  // Creates regions, rings and doorbells. Errors: kIo (descriptors or memory ran out);
  // kInvalidArgument (geometry).
  static Result<std::unique_ptr<ServerSession>> create(const Geometry& geometry, SessionId id,
                                                       uint64_t features);
  ServerSession(const ServerSession&) = delete;
  ServerSession& operator=(const ServerSession&) = delete;

  const Geometry& geometry() const { return geometry_; }
  SessionId id() const { return id_; }

  // The descriptors to send with the welcome, in the order of WelcomeDescriptor, the text tables'
  // among them (a descriptor of the caller's). Valid until close_client_fds(), which is to be
  // called once they are sent: from then on only the client and its kernel keep those that the
  // daemon has no use for.
  std::vector<int> client_fds(int text_tables_fd) const;
  void close_client_fds();

  // ---- submissions ----
  // Reads at most `max_records` records, and none after kDrainPromptTokensMax prompt ids. After
  // `broken` it reads no more.
  DrainOutcome drain(uint32_t max_records, DrainScratch& scratch, SubmissionVisitor& visitor);

  // Before the daemon sleeps: asks the client to ring. Returns false, and stays awake, if there is
  // something to drain already. Then watch submission_bell_fd(), edge-triggered.
  bool prepare_sleep();
  // After waking, or when this session is polled again anyway: tells the client that it need not ring.
  void wake();
  int submission_bell_fd() const { return submission_bell_.get(); }

  // ---- completions ----
  // Whether a record of `slots` slots, or several that come to as many, can be published now. False
  // also when the client's index is impossible: then broken() says so. The slots of the last word
  // stay free.
  bool has_room(uint32_t slots = kRecordSlotsMax);
  // Set once the client broke the protocol; the session is to be ended with this reason.
  const std::optional<Error>& broken() const { return broken_; }

  // Each writes one record, to be seen by the client at the next flush(). False: no room, nothing
  // was written, try again after the client has read.
  bool publish_accepted(uint64_t cookie, SequenceId sequence, uint32_t prompt_tokens,
                        uint32_t completion_tokens_max);
  bool publish_tokens(uint64_t cookie, const TokensEvent& tokens);
  bool publish_finished(uint64_t cookie, const FinishedEvent& finished);
  bool publish_error(uint64_t cookie, ErrorCode code, std::string_view sentence);
  bool publish_error(uint64_t cookie, const Error& error) {
    return publish_error(cookie, error.code(), error.message());
  }
  // What a renice came to: the urgency that the sequence has now, or why that stays as it was.
  bool publish_reniced(const Renice& renice, const Result<void>& outcome);
  // What a pin came to: of how many tokens, or why nothing was done.
  bool publish_pinned(uint64_t cookie, const Result<uint32_t>& tokens);
  // The session's end: all its sequences end with this error. Uses the reserved slots, so it has
  // room unless the client broke its index. Nothing can be published after it. Cut to
  // kLastWordBytesMax.
  bool publish_last_word(ErrorCode code, std::string_view sentence);

  // Shows the client everything published since the last flush, and rings once if it sleeps.
  // Returns whether it rang. Cheap if nothing was published.
  bool flush(DoorbellBatch& bells);
  // The same for all of `sessions`, cheaper than one by one. `bells` is empty before and after.
  // Returns how many it rang for.
  static uint32_t flush_all(std::span<ServerSession* const> sessions, DoorbellBatch& bells);

 private:
  ServerSession() = default;

  // The next record, copied into record_, or its slots: 0 if there is none or it is broken.
  uint32_t take_record();
  // Hands record_ on; returns how many prompt ids were copied.
  uint32_t handle_record(DrainScratch& scratch, SubmissionVisitor& visitor);
  void handle_submit(const SubmitRecord& fields, DrainScratch& scratch, SubmissionVisitor& visitor);
  Result<void> copy_arena(const SubmitRecord& fields, DrainScratch& scratch) const;
  void handle_renice(const ReniceRecord& fields, SubmissionVisitor& visitor);
  void handle_pin(const PinRecord& fields, DrainScratch& scratch, SubmissionVisitor& visitor);
  Result<void> copy_prompt(uint32_t offset, uint32_t count, DrainScratch& scratch) const;
  void break_session(std::string_view reason);
  bool reserve(uint32_t slots, bool last_word);
  // The parts of a flush. In between: RingProducer::order_shown().
  void show();
  void look_for_sleeper();
  bool publish_sentence(uint16_t type, uint64_t cookie, ErrorCode code, std::string_view sentence,
                        uint32_t bytes_max);

  Geometry geometry_;
  SessionId id_;
  uint64_t features_ = 0;
  SharedRegion client_region_;
  SharedRegion token_region_;
  UniqueFd token_reader_;  // read-only descriptor of the token region, for the client
  UniqueFd submission_bell_;
  UniqueFd completion_bell_;
  RingConsumer submissions_;
  RingProducer completions_;
  Sleeper sleeper_;
  Waker waker_;
  uint64_t flushed_tail_ = 0;
  bool shown_ = false;     // something new, in the flush in hand
  bool bell_due_ = false;  // its client sleeps
  bool ended_ = false;  // the last word was published
  std::optional<Error> broken_;
  alignas(8) std::byte record_[sizeof(SubmitRecord)] = {};  // the copy that is validated
};

}  // namespace inferd::ipc
