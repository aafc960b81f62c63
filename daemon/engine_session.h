// What the engine thread keeps of one client: its rings, its sequences, and whether it keeps up.
// Owner: StepLoop. Engine thread only. Must not know models, memory or how steps are made.
//
// The completion ring never overflows, and ending a sequence never waits, by this invariant:
//   free slots >= kEndSlots * (live sequences)      (the last word's slots come on top)
//  1. A submission is drained only while there is room for its answer and its end (drain_quota).
//  2. The session's sequences compute only in steps before which there is room for a token of each
//     that can run, beside the ends of all (room_for_step). Otherwise they pause. One that is scored
//     may take all the rows of a step, which are as many as can run.
//  3. Free slots only grow by the client's reading. One that moves its index back to pretend less
//     room makes a publish fail, which ends its session; nobody else notices.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "daemon/accounts.h"
#include "daemon/engine_snapshot.h"
#include "engine/sampling/sampling_params.h"
#include "ipc/server_session.h"

namespace inferd::daemon {

// Slots that the end of a sequence may take: a finish takes one, an error's sentence up to all three.
inline constexpr uint32_t kEndSlots = 3;
// Longest answer to a submission: an error with the longest sentence.
inline constexpr uint32_t kAnswerSlots =
    ipc::slots_for_bytes(sizeof(ipc::ErrorRecord) + ipc::kSentenceBytesMax);
// One token with all the alternatives that can be asked for.
inline constexpr uint32_t kTokenSlotsMax = ipc::slots_for_tokens(1, true, ipc::kTopLogprobsMax);
// Submissions taken from one client in one turn of the loop.
inline constexpr uint32_t kDrainRecordsMax = 16;

// Rings that hold the invariant above for so many sequences, of which so many run at once.
ipc::Geometry session_geometry(uint32_t sequences_max, uint32_t running_max,
                               uint32_t context_tokens);

// A sequence from its submission to its end.
struct LiveSequence {
  SequenceId id;
  uint64_t cookie = 0;  // the client's name for it
  SessionId session;
  engine::SamplingParams sampling;
  std::vector<engine::LogitBias> biases;
  // Of a request to score: the given tokens, as many as its prompt's last positions have logits for.
  std::vector<TokenId> scored;
  uint32_t token_slots = 1;  // of a record with one of its tokens
  uint32_t published = 0;    // tokens
  int64_t last_token_ns = 0;
  scheduler::PriorityClass priority = scheduler::PriorityClass::kInteractive;
};

class EngineSession {
 public:
  // `sequences_max`: as session_geometry() was told when the rings were made.
  EngineSession(std::unique_ptr<ipc::ServerSession> rings, SessionFacts facts,
                uint32_t sequences_max);

  ipc::ServerSession& rings() { return *rings_; }
  const SessionFacts& facts() const { return facts_; }

  // The session's sequences, in no particular order but the same in every run.
  const std::vector<LiveSequence*>& sequences() const { return sequences_; }
  LiveSequence* find_cookie(uint64_t cookie) const;
  void add_sequence(LiveSequence& sequence);
  void remove_sequence(LiveSequence& sequence);

  // How many sequences its completion ring was made for.
  uint32_t sequences_max() const { return sequences_max_; }

  // Submissions that may be drained now, at most kDrainRecordsMax; 0 if the ring is too full.
  uint32_t drain_quota();
  // Whether a step may produce a token for each of its sequences that run, at most `running_max`, or so
  // many tokens for one that is scored.
  bool room_for_step(uint32_t running_max);

  // ---- flags of the step loop ----
  bool awake = true;          // its submission ring is polled; else its doorbell rings
  uint32_t empty_polls = 0;   // in a row
  bool starved = false;       // not drained, for want of room for the answers
  bool paused = false;        // its sequences, for want of room
  int64_t stalled_since_ns = 0;  // while paused
  int64_t resumed_ns = 0;        // when it was paused no longer
  SessionAccount* account = nullptr;  // of the step loop's accounts
  bool bell_watched = false;  // its doorbell is in the epoll set
  bool touched = false;       // has records to flush
  bool flow_noted = false;    // its room is looked at before the next step
  bool ended = false;         // nothing more is published or drained; waits to be removed

 private:
  std::unique_ptr<ipc::ServerSession> rings_;
  SessionFacts facts_;
  std::vector<LiveSequence*> sequences_;  // borrowed from the step loop
  std::unordered_map<uint64_t, LiveSequence*> by_cookie_;  // looked up only, never walked
  uint32_t sequences_max_;
  uint32_t widest_token_slots_ = 1;
  uint32_t scored_ = 0;  // how many of sequences_ are
};

}  // namespace inferd::daemon
