// What the scheduler is asked for, and what it tells about it: requests, finish reasons, figures.
// Owner: scheduler. Value types, any thread. Must not know sampling, text, rings or clients.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

#include "base/ids.h"

namespace inferd::scheduler {

inline constexpr uint32_t kUnlimitedTokens = std::numeric_limits<uint32_t>::max();
inline constexpr uint32_t kStopTokensMax = 96;  // of a request: 64 of the client, the model's own
inline constexpr uint32_t kWeightDefault = 100;
inline constexpr int32_t kNiceMin = -20;
inline constexpr int32_t kNiceMax = 19;

// How urgent a request is. The numbers are those of the wire and of the public C interface. A class is
// served before the next one, but for the share that is kept for each (SchedulerConfig).
enum class PriorityClass : uint8_t {
  kInteractive = 0,  // somebody waits for each token
  kBatch = 1,        // somebody waits for the end
  kIdle = 2,         // with what nobody else wants
};
inline constexpr uint8_t kPriorityClasses = 3;
// "interactive", "batch", "idle": a static string.
std::string_view priority_class_name(PriorityClass priority) noexcept;
std::optional<PriorityClass> parse_priority_class(std::string_view name) noexcept;

// One sequence to compute and continue. submit() copies what the spans refer to.
struct Request {
  SequenceId sequence;  // unique during the daemon's life, never 0
  SessionId session;
  UserId user;
  std::span<const TokenId> prompt;         // at least one token
  uint32_t max_tokens = kUnlimitedTokens;  // to generate; unlimited: up to the context's end
  std::span<const TokenId> stop_tokens;  // generating one of these ends it; at most kStopTokensMax
  // Logits for every position of the prompt, not only the last (perplexity). A position is asked
  // for once, also if the sequence is preempted in between.
  bool score = false;
  // The first position that is scored; what comes before it may be taken from the cache.
  uint32_t score_first = 0;
  // Whose cached prefixes it may use, and who may use its own; 0: neither.
  CacheDomain domain;
  uint32_t chunk_tokens_max = 0;  // longest prefill chunk; 0: as the step allows
  uint32_t weight = kWeightDefault;  // of its user among users, at least 1; the latest one counts
  PriorityClass priority = PriorityClass::kInteractive;
  // Within the class, as with processes, kNiceMin to kNiceMax: each step makes its tokens a quarter dearer
  // than the one before, and where it is lower a request goes before others of its session.
  int32_t nice = 0;
  // When it must have been admitted, by the injected clock; 0: whenever. See Scheduler::overdue().
  int64_t deadline_ns = 0;
  // The sequence that it was forked from; 0: none. While that one runs, the pages that it computed
  // for tokens which both begin with are shared, whatever the prefix index has. Sharing needs the
  // same user, and the parent's cache domain or none.
  SequenceId parent;
};

// Why a sequence ended. The numbers are those of the public C interface (inferd_finish).
enum class FinishReason : uint8_t {
  kNone = 0,       // still running
  kStop = 1,       // generated one of its stop tokens
  kLength = 2,     // max_tokens reached
  kContext = 3,    // the longest sequence that model or pool allow is reached
  kCancelled = 4,  // by cancel()
  kError = 5,      // set by the daemon, never by the scheduler
};
std::string_view finish_reason_name(FinishReason reason) noexcept;

enum class SequenceState : uint8_t {
  kWaiting = 0,     // in the queue, without pages
  kPrefilling = 1,  // holds pages; more than one token to compute before the next can be sampled
  kDecoding = 2,    // holds pages; one token to compute
};
std::string_view sequence_state_name(SequenceState state) noexcept;

// Figures of one sequence. Times are of the injected clock.
struct SequenceStats {
  uint32_t prompt_tokens = 0;
  uint32_t generated_tokens = 0;
  // Prompt tokens found in the prefix index when it was first admitted, those loaded from the next tier
  // included.
  uint32_t cached_tokens = 0;
  uint64_t computed_tokens =
      0;  // positions computed, those computed again after a preemption included
  uint64_t recomputed_tokens = 0;  // of those, the ones that it had before it was preempted
  uint32_t loaded_tokens = 0;  // positions that came back from the next tier, all admissions together
  uint32_t preemptions = 0;
  int64_t submitted_ns = 0;
  int64_t admitted_ns = 0;     // first admission; 0 before
  int64_t first_token_ns = 0;  // 0 before
  int64_t queue_wait_ns = 0;   // time without pages, all waits together, the present one excluded
};

// One line of `inferctl ps`.
struct SequenceInfo {
  SequenceId sequence;
  SessionId session;
  UserId user;
  SequenceState state = SequenceState::kWaiting;
  bool paused = false;
  PriorityClass priority = PriorityClass::kInteractive;
  int32_t nice = 0;
  SequenceId parent;      // 0: none
  uint32_t tokens = 0;    // prompt and generated
  uint32_t computed = 0;  // of those, positions in pages
  uint32_t limit = 0;     // tokens at which it ends
  PageCount pages;        // in its page table
  int64_t waiting_ns = 0; // how long it has been without pages; 0 while it has some
  SequenceStats stats;
};

// Sums since the scheduler was made, and how things stand. For `inferctl status` and metrics.
struct SchedulerStats {
  uint32_t waiting = 0;
  uint32_t running = 0;  // hold pages: prefilling and decoding, paused ones included
  uint32_t paused = 0;   // waiting or running
  uint64_t submitted = 0;
  uint64_t refused = 0;
  uint64_t finished = 0;  // with a reason other than cancelled
  uint64_t cancelled = 0;
  uint64_t preemptions = 0;
  uint64_t steps = 0;
  uint64_t prompt_tokens = 0;  // of accepted requests
  uint64_t computed_tokens = 0;
  uint64_t recomputed_tokens = 0;  // of those, the ones that preempted sequences had before
  uint64_t cached_tokens = 0;
  uint64_t loaded_tokens = 0;
  uint64_t generated_tokens = 0;
};

// Who could have computed in the step that was planned last, and who did. Paused sequences count nowhere.
// A sequence that runs out of pages loses what it had, so computing that again is waiting for pages too.
struct StepWaits {
  uint32_t computing = 0;    // come further in the step
  uint32_t recomputing = 0;  // have in it only what they had before they were preempted
  // Run, but have no page for the next token, or what they had in pages is on its way back from the next tier;
  // or wait, for one did not fit.
  uint32_t for_pages = 0;
  uint32_t for_prefix = 0;   // wait for what another one is computing
  uint32_t for_turn = 0;     // the step's tokens, time and places went to others
};

}  // namespace inferd::scheduler
