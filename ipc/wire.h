// The ring ABI: the byte layout of everything that daemon and client share in memory.
// Owner: ipc. Plain data, any thread. Must not know what a model, a page or a scheduler is.
//
// Two regions a session, both made, sized and sealed by the daemon:
//
//   client region (client: read-write, daemon: read-write; the daemon trusts no byte of it)
//     0      ClientControl   submission tail, completion head, completion wake word
//     4096   Slot[submission_slots]
//     arena  prompt arena: token ids and logit biases that submissions point at by offset
//
//   token region (client: read-only, daemon: read-write)
//     0      TokenControl    identification, completion tail, submission head, submission wake word
//     4096   Slot[completion_slots]
//
// A record is one or more 64-byte slots; the first begins with a RecordHeader, and the later ones
// carry on where the one before ended. A record may wrap from the ring's last slot to its first.
// All numbers are little-endian, all indices free-running 64-bit slot counts, masked on use.
// Geometry travels in the handshake, never in memory that a client can write.
//
// Changing a layout: reserved fields are zero and refused otherwise, so a new field is a new
// feature bit (handshake.h) plus a reserved field; anything else raises kVersionMajor.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace inferd::ipc {

static_assert(std::endian::native == std::endian::little, "the ring ABI is little-endian");
static_assert(std::atomic<uint64_t>::is_always_lock_free, "indices are shared between processes");
static_assert(sizeof(std::atomic<uint64_t>) == 8);

inline constexpr uint32_t kMagic = 0x44524e49;  // "INRD"
inline constexpr uint16_t kVersionMajor = 2;  // 1 had pipes for doorbells
inline constexpr uint16_t kVersionMinor = 0;

inline constexpr uint32_t kSlotBytes = 64;
inline constexpr uint32_t kControlBytes = 4096;  // what precedes the slots in either region

// ---- limits ----
inline constexpr uint32_t kRingSlotsMin = 128;
inline constexpr uint32_t kRingSlotsMax = 1u << 20;
inline constexpr uint32_t kArenaBytesMin = 4096;
inline constexpr uint32_t kArenaBytesMax = 1u << 30;
inline constexpr uint32_t kStopTokensMax = 64;       // stop token ids of one submission
inline constexpr uint32_t kLogitBiasesMax = 256;     // as in inferd.h
inline constexpr uint32_t kTopLogprobsMax = 20;      // as in inferd.h
inline constexpr uint32_t kTokensPerRecordMax = 16;  // 16 * (4 + 4 + 20 * 8) + 32 bytes: 43 slots
inline constexpr uint32_t kSentenceBytesMax = 1000;  // of an error; longer ones are cut
inline constexpr uint32_t kRecordSlotsMax = 43;      // the longest record, a full tokens record
inline constexpr uint32_t kLastWordSlots = 4;        // kept free for the session's last word
inline constexpr uint32_t kLastWordBytesMax = kLastWordSlots * kSlotBytes - 24;
inline constexpr uint32_t kUnlimitedTokens = UINT32_MAX;

// ---- shared memory ----

// One index or wake word alone on its cache line, so that the two sides do not share lines.
struct alignas(kSlotBytes) IndexLine {
  std::atomic<uint64_t> value;
};
static_assert(sizeof(IndexLine) == kSlotBytes);

// Slots are copied by word with relaxed atomics: the other side may write them at any moment, and
// that must not be undefined behaviour here.
struct alignas(kSlotBytes) Slot {
  std::atomic<uint64_t> words[kSlotBytes / 8];
};
static_assert(sizeof(Slot) == kSlotBytes);

// First page of the client region. The client writes all of it.
struct ClientControl {
  IndexLine submission_tail;  // slots published by the client
  IndexLine completion_head;  // slots that the client has read
  IndexLine completion_wake;  // wake word of the client's reader; odd: it sleeps (ring.h)
};
static_assert(sizeof(ClientControl) == 192);
static_assert(offsetof(ClientControl, submission_tail) == 0);
static_assert(offsetof(ClientControl, completion_head) == 64);
static_assert(offsetof(ClientControl, completion_wake) == 128);

// Says what a token region is, for a debugger and for the daemon's next instance.
struct alignas(kSlotBytes) RegionIdentity {
  uint32_t magic;
  uint16_t version_major;
  uint16_t version_minor;
  uint64_t session_id;
  uint64_t features;  // agreed on in the handshake
  uint32_t submission_slots;
  uint32_t completion_slots;
  uint32_t arena_bytes;
  uint32_t reserved[7];
};
static_assert(sizeof(RegionIdentity) == kSlotBytes);
static_assert(offsetof(RegionIdentity, magic) == 0 && offsetof(RegionIdentity, version_major) == 4);
static_assert(offsetof(RegionIdentity, version_minor) == 6);
static_assert(offsetof(RegionIdentity, session_id) == 8 &&
              offsetof(RegionIdentity, features) == 16);
static_assert(offsetof(RegionIdentity, submission_slots) == 24);
static_assert(offsetof(RegionIdentity, completion_slots) == 28);
static_assert(offsetof(RegionIdentity, arena_bytes) == 32 &&
              offsetof(RegionIdentity, reserved) == 36);

// First page of the token region. The daemon writes all of it.
struct TokenControl {
  RegionIdentity identity;
  IndexLine completion_tail;  // slots published by the daemon
  IndexLine submission_head;  // slots that the daemon has read
  IndexLine submission_wake;  // wake word of the daemon's reader; odd: ring its doorbell
};
static_assert(sizeof(TokenControl) == 256);
static_assert(offsetof(TokenControl, identity) == 0);
static_assert(offsetof(TokenControl, completion_tail) == 64);
static_assert(offsetof(TokenControl, submission_head) == 128);
static_assert(offsetof(TokenControl, submission_wake) == 192);
static_assert(sizeof(TokenControl) <= kControlBytes && sizeof(ClientControl) <= kControlBytes);

// ---- records ----

// Submissions, client to daemon.
inline constexpr uint16_t kSubmit = 1;
inline constexpr uint16_t kCancel = 2;
inline constexpr uint16_t kDelivered = 3;
inline constexpr uint16_t kRenice = 4;  // with kFeatureRenice
inline constexpr uint16_t kPin = 5;     // with kFeaturePin
inline constexpr uint16_t kUnpin = 6;   // with kFeaturePin

// Completions, daemon to client.
inline constexpr uint16_t kAccepted = 1;
inline constexpr uint16_t kTokens = 2;
inline constexpr uint16_t kFinished = 3;
inline constexpr uint16_t kError = 4;
inline constexpr uint16_t kSessionEnd = 5;
inline constexpr uint16_t kReniced = 6;  // with kFeatureRenice
inline constexpr uint16_t kPinned = 7;   // with kFeaturePin

// Opens every record.
struct RecordHeader {
  uint16_t type;
  uint8_t slots;  // of the whole record, this one included
  uint8_t reserved;
  uint32_t flags;   // by type; a flag that the receiver does not know is refused
  // Names the sequence, or the pin that is asked for. Chosen by the client, never 0, never used twice.
  uint64_t cookie;
};
static_assert(sizeof(RecordHeader) == 16);
static_assert(offsetof(RecordHeader, type) == 0 && offsetof(RecordHeader, slots) == 2);
static_assert(offsetof(RecordHeader, reserved) == 3 && offsetof(RecordHeader, flags) == 4);
static_assert(offsetof(RecordHeader, cookie) == 8);

inline constexpr uint32_t kSubmitLogprobs = 1u << 0;   // report each token's log probability
inline constexpr uint32_t kSubmitIgnoreEos = 1u << 1;  // go on past end-of-answer tokens
// Neither takes cached prefixes nor leaves any: with kFeatureCacheDomain.
inline constexpr uint32_t kSubmitNoStore = 1u << 2;
// Nothing is generated: the prompt's tokens from `score_first` on are told as if they had been, with
// their log probabilities, and then kFinished with kLength. With kFeatureScore; needs
// kSubmitLogprobs, a max_tokens of exactly so many, and neither stop tokens nor biases.
inline constexpr uint32_t kSubmitScore = 1u << 3;
inline constexpr uint32_t kSubmitKnownFlags =
    kSubmitLogprobs | kSubmitIgnoreEos | kSubmitNoStore | kSubmitScore;

// How urgent a submission is. The numbers are those of inferd_priority.
enum class Priority : uint8_t {
  kInteractive = 0,  // somebody waits for each token
  kBatch = 1,        // somebody waits for the end
  kIdle = 2,         // with what nobody else wants
};
inline constexpr int32_t kNiceMin = -20;
inline constexpr int32_t kNiceMax = 19;

// A new sequence. Offsets are bytes from the start of the arena, multiples of 4. What they point at
// must stay as it is until kAccepted or kError answers; then the client may use the bytes again.
struct SubmitRecord {
  RecordHeader header;
  uint32_t prompt_offset;  // int32_t[prompt_count]
  uint32_t prompt_count;
  uint32_t stop_offset;  // int32_t[stop_count]: token ids that end the answer besides the model's
  uint32_t stop_count;
  uint32_t bias_offset;  // LogitBiasEntry[bias_count]
  uint32_t bias_count;
  uint32_t max_tokens;  // kUnlimitedTokens: up to the context's end
  uint32_t branch;
  uint64_t seed;
  float temperature;
  float top_p;
  float min_p;
  float repetition_penalty;
  float presence_penalty;
  float frequency_penalty;
  uint32_t top_k;
  uint32_t penalty_last_n;
  uint32_t top_logprobs;  // needs kSubmitLogprobs
  uint8_t priority;       // Priority; this and the next two with kFeatureUrgency, else 0
  int8_t nice;            // within the class: kNiceMin (first) to kNiceMax
  uint16_t reserved0;
  // The running sequence that this one was forked from, with kFeatureFork; 0: none. A hint: what
  // the daemon has computed for the tokens that both begin with is shared. It may have ended, or be
  // another's cookie: then nothing is shared.
  uint64_t parent_cookie;
  uint32_t deadline_ms;  // refused if it has not started so long after it was drained; 0: none
  uint32_t score_first;  // with kSubmitScore: of the prompt, the first token to score, at least 1
  uint64_t reserved[2];
};
static_assert(sizeof(SubmitRecord) == 128);
static_assert(offsetof(SubmitRecord, prompt_offset) == 16);
static_assert(offsetof(SubmitRecord, prompt_count) == 20);
static_assert(offsetof(SubmitRecord, stop_offset) == 24 &&
              offsetof(SubmitRecord, stop_count) == 28);
static_assert(offsetof(SubmitRecord, bias_offset) == 32 &&
              offsetof(SubmitRecord, bias_count) == 36);
static_assert(offsetof(SubmitRecord, max_tokens) == 40 && offsetof(SubmitRecord, branch) == 44);
static_assert(offsetof(SubmitRecord, seed) == 48);
static_assert(offsetof(SubmitRecord, temperature) == 56 && offsetof(SubmitRecord, top_p) == 60);
static_assert(offsetof(SubmitRecord, min_p) == 64);
static_assert(offsetof(SubmitRecord, repetition_penalty) == 68);
static_assert(offsetof(SubmitRecord, presence_penalty) == 72);
static_assert(offsetof(SubmitRecord, frequency_penalty) == 76);
static_assert(offsetof(SubmitRecord, top_k) == 80);
static_assert(offsetof(SubmitRecord, penalty_last_n) == 84);
static_assert(offsetof(SubmitRecord, top_logprobs) == 88);
static_assert(offsetof(SubmitRecord, priority) == 92 && offsetof(SubmitRecord, nice) == 93);
static_assert(offsetof(SubmitRecord, parent_cookie) == 96);
static_assert(offsetof(SubmitRecord, reserved0) == 94);
static_assert(offsetof(SubmitRecord, deadline_ms) == 104);
static_assert(offsetof(SubmitRecord, score_first) == 108);
static_assert(offsetof(SubmitRecord, reserved) == 112);

struct LogitBiasEntry {
  int32_t token;
  float bias;  // added to the logit; -infinity forbids the token
};
static_assert(sizeof(LogitBiasEntry) == 8);
static_assert(offsetof(LogitBiasEntry, token) == 0 && offsetof(LogitBiasEntry, bias) == 4);

// Ends a sequence; kFinished with kCancelled answers. No flags.
struct CancelRecord {
  RecordHeader header;
  uint64_t reserved[6];
};
static_assert(sizeof(CancelRecord) == 64 && offsetof(CancelRecord, reserved) == 16);

// The client's word on what its reader has had. With kDeliveredTruncate the sequence ends there (a
// stop string matched): tokens beyond `delivered_tokens` never counted, and kFinished answers.
inline constexpr uint32_t kDeliveredTruncate = 1u << 0;
inline constexpr uint32_t kDeliveredKnownFlags = kDeliveredTruncate;
struct DeliveredRecord {
  RecordHeader header;
  uint32_t delivered_tokens;
  uint32_t reserved0;
  uint64_t reserved[5];
};
static_assert(sizeof(DeliveredRecord) == 64);
static_assert(offsetof(DeliveredRecord, delivered_tokens) == 16);
static_assert(offsetof(DeliveredRecord, reserved0) == 20);
static_assert(offsetof(DeliveredRecord, reserved) == 24);

// Changes how urgent a sequence of the session is; kReniced with the same tag answers.
struct ReniceRecord {
  RecordHeader header;
  uint32_t tag;      // the client's, to tell answers apart
  uint8_t priority;  // Priority
  int8_t nice;       // kNiceMin to kNiceMax
  uint16_t reserved0;
  uint64_t reserved[5];
};
static_assert(sizeof(ReniceRecord) == 64);
static_assert(offsetof(ReniceRecord, tag) == 16 && offsetof(ReniceRecord, priority) == 20);
static_assert(offsetof(ReniceRecord, nice) == 21 && offsetof(ReniceRecord, reserved0) == 22);
static_assert(offsetof(ReniceRecord, reserved) == 24);

// Pins what is cached of a prompt's whole pages in the session's cache domain (kPin), or ends all
// pins of the session's user (kUnpin, without a prompt); kPinned with the same cookie answers, and
// until then the prompt must stay as it is. No flags.
struct PinRecord {
  RecordHeader header;
  uint32_t prompt_offset;  // in the arena, a multiple of 4: int32_t[prompt_count]
  uint32_t prompt_count;
  uint64_t reserved[5];
};
static_assert(sizeof(PinRecord) == 64);
static_assert(offsetof(PinRecord, prompt_offset) == 16 && offsetof(PinRecord, prompt_count) == 20);
static_assert(offsetof(PinRecord, reserved) == 24);

// The submission was copied and validated, and waits its turn: its part of the arena is free again.
struct AcceptedRecord {
  RecordHeader header;
  uint64_t sequence_id;  // as the daemon's tools show it
  uint32_t prompt_tokens;
  uint32_t completion_tokens_max;  // what max_tokens came to
  uint64_t reserved[4];
};
static_assert(sizeof(AcceptedRecord) == 64);
static_assert(offsetof(AcceptedRecord, sequence_id) == 16);
static_assert(offsetof(AcceptedRecord, prompt_tokens) == 24);
static_assert(offsetof(AcceptedRecord, completion_tokens_max) == 28);
static_assert(offsetof(AcceptedRecord, reserved) == 32);

// Tokens of one sequence. Behind the fixed part, without gaps:
//   int32_t ids[count]
//   float   logprobs[count]                 with kTokensLogprobs
//   LogprobEntry top[count][top_count]      likeliest first, with kTokensLogprobs
// An alternative that does not exist (a tiny vocabulary) has token -1.
inline constexpr uint32_t kTokensLogprobs = 1u << 0;
inline constexpr uint32_t kTokensKnownFlags = kTokensLogprobs;
struct TokensRecord {
  RecordHeader header;
  uint32_t first_index;  // of ids[0] among the sequence's completion tokens: a repeat is recognised
  uint16_t count;        // 1 to kTokensPerRecordMax
  uint8_t top_count;     // 0 to kTopLogprobsMax
  uint8_t reserved0;
  uint32_t cached_tokens;  // prompt tokens that were not computed for this sequence
  uint32_t reserved1;
};
static_assert(sizeof(TokensRecord) == 32);
static_assert(offsetof(TokensRecord, first_index) == 16);
static_assert(offsetof(TokensRecord, count) == 20 && offsetof(TokensRecord, top_count) == 22);
static_assert(offsetof(TokensRecord, reserved0) == 23);
static_assert(offsetof(TokensRecord, cached_tokens) == 24);
static_assert(offsetof(TokensRecord, reserved1) == 28);

struct LogprobEntry {
  int32_t token;
  float logprob;
};
static_assert(sizeof(LogprobEntry) == 8);
static_assert(offsetof(LogprobEntry, token) == 0 && offsetof(LogprobEntry, logprob) == 4);

// Why a sequence ended. The numbers are those of inferd_finish.
enum class FinishReason : uint32_t {
  kStop = 1,       // an end-of-answer token, a stop token, or kDeliveredTruncate
  kLength = 2,     // max_tokens
  kContext = 3,    // the context, or the longest sequence that the pool can hold
  kCancelled = 4,  // kCancel, or an administrator
};

// Last record of a sequence that did not fail.
struct FinishedRecord {
  RecordHeader header;
  uint32_t reason;  // FinishReason
  uint32_t prompt_tokens;
  uint32_t cached_tokens;
  uint32_t completion_tokens;
  uint64_t queue_ns;    // from the drained submission to the first step that worked on it
  uint64_t prefill_ns;  // from there to the first token
  uint64_t decode_ns;   // from the first token to the last
  // Both with kFeatureUsage, else 0.
  uint32_t computed_tokens;  // those computed again after a preemption included
  uint32_t preemptions;
};
static_assert(sizeof(FinishedRecord) == 64);
static_assert(offsetof(FinishedRecord, reason) == 16 &&
              offsetof(FinishedRecord, prompt_tokens) == 20);
static_assert(offsetof(FinishedRecord, cached_tokens) == 24);
static_assert(offsetof(FinishedRecord, completion_tokens) == 28);
static_assert(offsetof(FinishedRecord, queue_ns) == 32);
static_assert(offsetof(FinishedRecord, prefill_ns) == 40 &&
              offsetof(FinishedRecord, decode_ns) == 48);
static_assert(offsetof(FinishedRecord, computed_tokens) == 56);
static_assert(offsetof(FinishedRecord, preemptions) == 60);

// What a renice came to: `code` 0, and what the sequence's urgency is now; or why it stays as it
// was, with char sentence[sentence_bytes] as of an ErrorRecord.
struct RenicedRecord {
  RecordHeader header;
  uint32_t tag;
  uint8_t priority;
  int8_t nice;
  uint16_t reserved0;
  uint32_t code;  // ErrorCode
  uint32_t sentence_bytes;
};
static_assert(sizeof(RenicedRecord) == 32);
static_assert(offsetof(RenicedRecord, tag) == 16 && offsetof(RenicedRecord, priority) == 20);
static_assert(offsetof(RenicedRecord, nice) == 21 && offsetof(RenicedRecord, reserved0) == 22);
static_assert(offsetof(RenicedRecord, code) == 24);
static_assert(offsetof(RenicedRecord, sentence_bytes) == 28);

// What a kPin or kUnpin came to: `code` 0, and of how many tokens; or why nothing was done, with
// char sentence[sentence_bytes] as of an ErrorRecord.
struct PinnedRecord {
  RecordHeader header;
  uint32_t tokens;  // of the prompt that are pinned now, or that are pinned no longer
  uint32_t code;    // ErrorCode
  uint32_t sentence_bytes;
  uint32_t reserved0;
};
static_assert(sizeof(PinnedRecord) == 32);
static_assert(offsetof(PinnedRecord, tokens) == 16 && offsetof(PinnedRecord, code) == 20);
static_assert(offsetof(PinnedRecord, sentence_bytes) == 24);
static_assert(offsetof(PinnedRecord, reserved0) == 28);

// Last record of a sequence that was refused or failed (kError), or of the whole session
// (kSessionEnd, cookie 0: all its sequences end so, and the daemon closes the connection).
// char sentence[sentence_bytes] follows, UTF-8, not NUL-terminated, over as many slots as it takes.
struct ErrorRecord {
  RecordHeader header;
  uint32_t code;  // ErrorCode
  uint32_t sentence_bytes;
};
static_assert(sizeof(ErrorRecord) == 24);
static_assert(offsetof(ErrorRecord, code) == 16 && offsetof(ErrorRecord, sentence_bytes) == 20);

// ---- sizes ----
constexpr uint32_t slots_for_bytes(uint32_t bytes) { return (bytes + kSlotBytes - 1) / kSlotBytes; }

// Slots of one tokens record; count at most kTokensPerRecordMax.
constexpr uint32_t slots_for_tokens(uint32_t count, bool logprobs, uint32_t top_count) {
  const uint32_t per_token = 4 + (logprobs ? 4 + top_count * 8 : 0);
  return slots_for_bytes(static_cast<uint32_t>(sizeof(TokensRecord)) + count * per_token);
}
static_assert(slots_for_tokens(kTokensPerRecordMax, true, kTopLogprobsMax) == kRecordSlotsMax);
static_assert(slots_for_bytes(sizeof(ErrorRecord) + kSentenceBytesMax) == 16);
// An answer to any submission takes no more than the longest error.
inline constexpr uint32_t kReniceSentenceBytesMax = 16 * kSlotBytes - sizeof(RenicedRecord);
inline constexpr uint32_t kPinSentenceBytesMax = 16 * kSlotBytes - sizeof(PinnedRecord);
static_assert(kRecordSlotsMax + kLastWordSlots < kRingSlotsMin && kRecordSlotsMax <= UINT8_MAX);

// Sizes of a session's rings and arena. Chosen by the daemon, told in the handshake.
struct Geometry {
  uint32_t submission_slots = 256;   // power of two
  uint32_t completion_slots = 1024;  // power of two
  uint32_t arena_bytes = 1u << 20;  // multiple of 4096; one prompt is at most a quarter as many ids

  constexpr uint64_t arena_offset() const {
    const uint64_t end = kControlBytes + uint64_t{submission_slots} * kSlotBytes;
    return (end + kControlBytes - 1) / kControlBytes * kControlBytes;
  }
  constexpr uint64_t client_region_bytes() const { return arena_offset() + arena_bytes; }
  constexpr uint64_t token_region_bytes() const {
    return kControlBytes + uint64_t{completion_slots} * kSlotBytes;
  }
  // Of both regions, all but the arena.
  constexpr uint64_t ring_bytes() const { return arena_offset() + token_region_bytes(); }
  // Within the limits above; a client checks this too before it maps anything.
  constexpr bool valid() const {
    const auto ring_ok = [](uint32_t slots) {
      return slots >= kRingSlotsMin && slots <= kRingSlotsMax && std::has_single_bit(slots);
    };
    return ring_ok(submission_slots) && ring_ok(completion_slots) &&
           arena_bytes >= kArenaBytesMin && arena_bytes <= kArenaBytesMax &&
           arena_bytes % kControlBytes == 0;
  }
};

// Every record is copied as bytes.
static_assert(std::is_trivially_copyable_v<SubmitRecord> &&
              std::is_standard_layout_v<SubmitRecord>);
static_assert(std::is_trivially_copyable_v<TokensRecord> &&
              std::is_standard_layout_v<TokensRecord>);
static_assert(std::is_trivially_copyable_v<FinishedRecord>);
static_assert(std::is_trivially_copyable_v<ErrorRecord>);
static_assert(std::is_trivially_copyable_v<AcceptedRecord>);

}  // namespace inferd::ipc
