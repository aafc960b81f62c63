// A sequence as the library keeps it: what has arrived for it, and what its reader makes of that.
// Owner: Connection. The part under "arrivals" is guarded by the connection's lock; the part under
// "reader" belongs to the one thread that is in next(). Must not know rings or sockets.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "client_lib/include/inferd/inferd.h"
#include "client_lib/text_stream.h"
#include "ipc/wire.h"

namespace inferd::client_lib {

class Connection;

// Tokens with their log probabilities: [n] ids, then [n] or none, then [n, top_count] or none.
struct TokenBatch {
  std::vector<int32_t> ids;
  std::vector<inferd_logprob> logprobs;
  std::vector<inferd_logprob> top;

  size_t size() const { return ids.size(); }
  bool empty() const { return ids.empty(); }
  void clear() {
    ids.clear();
    logprobs.clear();
    top.clear();
  }
  // Appends token `index` of `other`; both have `top_count` alternatives per token.
  void append(const TokenBatch& other, size_t index, size_t top_count);
  void drop_front(size_t count, size_t top_count);
};

// What is known of a sequence besides its tokens.
struct Progress {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t arrived_tokens = 0;
  int64_t submitted_ns = 0;  // CLOCK_MONOTONIC
  int64_t first_ns = 0;      // arrival of the first token; 0 before
  int64_t last_ns = 0;       // arrival of the latest token
  // The daemon's own figures; 0 before the end, and where the daemon does not tell them.
  uint64_t queue_ns = 0;
  uint32_t computed_tokens = 0;
  uint32_t preemptions = 0;
};

// What was asked for, to ask for the rest of it again.
struct Request {
  ipc::SubmitRecord fields = {};  // without header and offsets
  uint32_t flags = 0;             // ipc::kSubmit...
  std::vector<ipc::LogitBiasEntry> bias;
  std::vector<std::string> stop;
  std::vector<TokenId> scored;  // the continuation that is scored

  bool scores() const { return (flags & ipc::kSubmitScore) != 0; }
  // Of its lineage, those that were not answered.
  uint32_t prompt_tokens() const { return scores() ? fields.score_first : fields.prompt_count; }
};

// What a fork goes on from.
struct Lineage {
  std::vector<TokenId> tokens;  // the prompt, then what was delivered of the answer
  size_t answered = 0;          // of those, the last ones, in whose text the next token is
  bool continues_text = false;  // a leading space of the answer belongs to it
};

class Sequence {
 public:
  Sequence(Connection& connection, uint64_t cookie, TextStream stream, bool logprobs,
           uint32_t top_logprobs, Request request, Lineage lineage)
      : connection_(connection),
        cookie_(cookie),
        top_count_(logprobs ? top_logprobs : 0),
        logprobs_(logprobs),
        request_(std::move(request)),
        stream_(std::move(stream)),
        lineage_(std::move(lineage)) {}

  // As inferd_next(). At most one thread at a time. kTimedOut and kNotFound as Status, not as
  // errors.
  enum class Status { kEvent, kTimedOut, kOver };
  Result<Status> next(int timeout_ms, inferd_event& event);

  Connection& connection() const { return connection_; }
  uint64_t cookie() const { return cookie_; }
  // Any thread.
  Lineage lineage() const {
    const std::lock_guard lock(lineage_mutex_);
    return lineage_;
  }
  // Tokens handed to the caller. Any thread.
  uint32_t delivered_tokens() const { return delivered_.load(std::memory_order_relaxed); }

 private:
  friend class Connection;

  bool absorb();
  bool fill_event(inferd_event& event, inferd_finish finish);

  Connection& connection_;
  const uint64_t cookie_;
  const uint32_t top_count_;
  const bool logprobs_;

  // ---- arrivals: under the connection's lock ----
  Request request_;
  TokenBatch pending_;
  Progress progress_;
  bool routed_ = true;  // records of the daemon still reach it
  bool ended_ = false;  // no more tokens come; error_ or reason_ says why
  bool lost_ = false;   // ended with the connection, before its own end came
  inferd_finish reason_ = INFERD_FINISH_NONE;
  std::optional<Error> error_;
  std::condition_variable arrived_;  // where its reader waits, if another thread watches the ring
  bool waiting_ = false;
  uint64_t polled_round_ = UINT64_MAX;  // of the event loop, in which it was found empty

  // ---- reader ----
  TextStream stream_;
  TokenBatch incoming_;  // just taken from pending_
  TokenBatch work_;      // pushed into stream_: the first handed_ are in the current event
  size_t handed_ = 0;
  uint32_t released_ = 0;  // of stream_'s released tokens, those handed out
  bool over_ = false;      // the last event was given
  std::atomic<uint32_t> delivered_{0};

  mutable std::mutex lineage_mutex_;
  Lineage lineage_;  // under lineage_mutex_: written by the reader, read by who forks
};

}  // namespace inferd::client_lib
