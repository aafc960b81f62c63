// The messages that open a session: hello (client), then welcome or refusal (daemon).
// Owner: ipc. Pure functions, any thread. Decoding trusts nothing: every length is checked against
// the message. Must not know sockets (socket.h) or what the descriptors are used for.
//
// A message is a fixed part, then its strings one behind the other without terminators. The fixed
// part says its own size: a receiver that knows a shorter one demands zeros beyond what it knows,
// so that nothing which it would have to understand is ignored.
//
// One connection is one session: after the welcome neither side sends anything more, and end of
// file is the other side's death.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ipc/wire.h"

namespace inferd::ipc {

inline constexpr size_t kHandshakeBytesMax = 4096;  // but for a welcome with a list of models
inline constexpr size_t kNameBytesMax = 255;        // of each string but the refusal's sentence
inline constexpr size_t kModelsMax = 32;            // that a daemon offers

// Feature bits. A side offers what it can do and names what it cannot do without.
inline constexpr uint64_t kFeatureTextTables = 1u << 0;  // tokenizer and template as a sealed memfd
inline constexpr uint64_t kFeatureDelivered = 1u << 1;   // kDelivered, truncation by the client
inline constexpr uint64_t kFeatureUrgency = 1u << 2;  // priority, nice and deadline of a submission
inline constexpr uint64_t kFeatureFork = 1u << 3;     // parent of a submission
// The hello may name a shared cache domain, a submission may have kSubmitNoStore.
inline constexpr uint64_t kFeatureCacheDomain = 1u << 4;
inline constexpr uint64_t kFeatureUsage = 1u << 5;  // computed tokens and preemptions of a finish
inline constexpr uint64_t kFeatureRenice = 1u << 6;  // kRenice and its answer
inline constexpr uint64_t kFeatureScore = 1u << 7;   // kSubmitScore
inline constexpr uint64_t kFeaturePin = 1u << 8;     // kPin, kUnpin and their answer
inline constexpr uint64_t kFeatureModels = 1u << 9;  // the welcome has a list of models
// Of this build.
inline constexpr uint64_t kFeatures = kFeatureTextTables | kFeatureDelivered | kFeatureUrgency |
                                      kFeatureFork | kFeatureCacheDomain | kFeatureUsage |
                                      kFeatureRenice | kFeatureScore | kFeaturePin | kFeatureModels;

inline constexpr uint16_t kMessageHello = 1;
inline constexpr uint16_t kMessageWelcome = 2;
inline constexpr uint16_t kMessageRefusal = 3;

// Opens every message.
struct MessageHeader {
  uint32_t magic;  // kMagic
  uint16_t version_major;
  uint16_t version_minor;
  uint16_t type;
  uint16_t fixed_bytes;    // header included; where the strings begin
  uint32_t message_bytes;  // all of it
};
static_assert(sizeof(MessageHeader) == 16);
static_assert(offsetof(MessageHeader, magic) == 0 && offsetof(MessageHeader, version_major) == 4);
static_assert(offsetof(MessageHeader, version_minor) == 6 && offsetof(MessageHeader, type) == 8);
static_assert(offsetof(MessageHeader, fixed_bytes) == 10);
static_assert(offsetof(MessageHeader, message_bytes) == 12);

struct HelloFixed {
  MessageHeader header;
  uint64_t features_offered;
  uint64_t features_required;
  uint64_t resume_session;  // 0: a new session
  uint32_t flags;           // none yet
  uint16_t slot_bytes;
  uint16_t submit_bytes;    // sizeof(SubmitRecord)
  uint16_t tokens_bytes;    // sizeof(TokensRecord)
  uint16_t finished_bytes;  // sizeof(FinishedRecord)
  uint16_t model_name_bytes;
  uint16_t client_name_bytes;
  uint16_t cache_domain_bytes;  // with kFeatureCacheDomain, else 0
  uint16_t reserved0[3];
  uint64_t reserved;
};
static_assert(sizeof(HelloFixed) == 72);
static_assert(offsetof(HelloFixed, features_offered) == 16);
static_assert(offsetof(HelloFixed, features_required) == 24);
static_assert(offsetof(HelloFixed, resume_session) == 32 && offsetof(HelloFixed, slot_bytes) == 44);
static_assert(offsetof(HelloFixed, flags) == 40 && offsetof(HelloFixed, model_name_bytes) == 52);
static_assert(offsetof(HelloFixed, cache_domain_bytes) == 56);
static_assert(offsetof(HelloFixed, submit_bytes) == 46 && offsetof(HelloFixed, tokens_bytes) == 48);
static_assert(offsetof(HelloFixed, finished_bytes) == 50);
static_assert(offsetof(HelloFixed, client_name_bytes) == 54);
static_assert(offsetof(HelloFixed, reserved0) == 58 && offsetof(HelloFixed, reserved) == 64);

struct WelcomeFixed {
  MessageHeader header;
  uint64_t features;  // offered by both sides; the session uses exactly these
  uint64_t session_id;
  uint32_t submission_slots;
  uint32_t completion_slots;
  uint32_t arena_bytes;
  uint32_t descriptor_count;  // kWelcomeDescriptors
  uint64_t text_tables_bytes;
  uint64_t parameters;
  uint32_t vocabulary;
  uint32_t context_tokens;
  int32_t bos_token;
  int32_t eos_token;
  uint16_t model_name_bytes;
  uint16_t architecture_bytes;
  uint16_t quantization_bytes;
  uint16_t numerics_id_bytes;
  uint16_t daemon_version_bytes;
  // With kFeatureModels, else 0: behind the strings of the above, so many ModelFixed of so many bytes
  // each, each followed by its strings. They are what the daemon offers, the session's model included.
  uint16_t models_count;
  uint16_t model_fixed_bytes;
  uint16_t reserved0;
  uint64_t reserved[4];
};
static_assert(sizeof(WelcomeFixed) == 128);
static_assert(offsetof(WelcomeFixed, features) == 16 && offsetof(WelcomeFixed, session_id) == 24);
static_assert(offsetof(WelcomeFixed, submission_slots) == 32);
static_assert(offsetof(WelcomeFixed, descriptor_count) == 44);
static_assert(offsetof(WelcomeFixed, text_tables_bytes) == 48);
static_assert(offsetof(WelcomeFixed, model_name_bytes) == 80);
static_assert(offsetof(WelcomeFixed, parameters) == 56 && offsetof(WelcomeFixed, bos_token) == 72);
static_assert(offsetof(WelcomeFixed, completion_slots) == 36);
static_assert(offsetof(WelcomeFixed, arena_bytes) == 40);
static_assert(offsetof(WelcomeFixed, vocabulary) == 64);
static_assert(offsetof(WelcomeFixed, context_tokens) == 68);
static_assert(offsetof(WelcomeFixed, eos_token) == 76);
static_assert(offsetof(WelcomeFixed, architecture_bytes) == 82);
static_assert(offsetof(WelcomeFixed, quantization_bytes) == 84);
static_assert(offsetof(WelcomeFixed, numerics_id_bytes) == 86);
static_assert(offsetof(WelcomeFixed, daemon_version_bytes) == 88);
static_assert(offsetof(WelcomeFixed, reserved0) == 94 && offsetof(WelcomeFixed, reserved) == 96);
static_assert(offsetof(WelcomeFixed, models_count) == 90);
static_assert(offsetof(WelcomeFixed, model_fixed_bytes) == 92);

// One model of the list.
inline constexpr uint32_t kModelChatTemplate = 1u << 0;  // prompts can be given as chat messages
struct ModelFixed {
  uint64_t parameters;
  uint32_t vocabulary;
  uint32_t context_tokens;
  int32_t bos_token;
  int32_t eos_token;
  uint32_t flags;  // one that the client does not know says nothing to it
  uint16_t name_bytes;
  uint16_t architecture_bytes;
  uint16_t quantization_bytes;
  uint16_t numerics_id_bytes;
  uint32_t reserved;
};
static_assert(sizeof(ModelFixed) == 40);
static_assert(offsetof(ModelFixed, vocabulary) == 8 && offsetof(ModelFixed, context_tokens) == 12);
static_assert(offsetof(ModelFixed, bos_token) == 16 && offsetof(ModelFixed, eos_token) == 20);
static_assert(offsetof(ModelFixed, flags) == 24 && offsetof(ModelFixed, name_bytes) == 28);
static_assert(offsetof(ModelFixed, architecture_bytes) == 30);
static_assert(offsetof(ModelFixed, quantization_bytes) == 32);
static_assert(offsetof(ModelFixed, numerics_id_bytes) == 34);
static_assert(offsetof(ModelFixed, reserved) == 36);

// Longest answer to a hello.
inline constexpr size_t kModelBytesMax = sizeof(ModelFixed) + 4 * kNameBytesMax;
inline constexpr size_t kAnswerBytesMax =
    sizeof(WelcomeFixed) + 5 * kNameBytesMax + kModelsMax * kModelBytesMax;
static_assert(kAnswerBytesMax > kHandshakeBytesMax);

struct RefusalFixed {
  MessageHeader header;
  uint32_t code;  // ErrorCode
  uint32_t sentence_bytes;
};
static_assert(sizeof(RefusalFixed) == 24);
static_assert(offsetof(RefusalFixed, code) == 16 && offsetof(RefusalFixed, sentence_bytes) == 20);

// The descriptors of a welcome, in this order.
enum WelcomeDescriptor : uint32_t {
  kFdClientRegion = 0,    // read-write
  kFdTokenRegion = 1,     // read-only
  kFdTextTables = 2,      // read-only, immutable
  kFdSubmissionBell = 3,  // an eventfd: the client rings it
  kFdCompletionBell = 4,  // an eventfd: the client polls and reads it
  kWelcomeDescriptors = 5,
};

struct Hello {
  uint64_t features_offered = kFeatures;
  uint64_t features_required = kFeatures;
  std::string model_name;   // empty: the daemon's first model
  std::string client_name;  // for people to read
  // Shared cache domain that its requests belong to; empty: the user's own. One that is asked for
  // without kFeatureCacheDomain is malformed.
  std::string cache_domain;
};

struct ModelInfo {
  std::string name;
  std::string architecture;
  std::string quantization;
  std::string numerics_id;
  uint64_t parameters = 0;
  uint32_t vocabulary = 0;
  uint32_t context_tokens = 0;
  int32_t bos_token = -1;
  int32_t eos_token = -1;
  bool has_chat_template = false;  // told by lists only

  bool operator==(const ModelInfo&) const = default;
};

struct Welcome {
  uint64_t features = 0;
  uint64_t session_id = 0;
  Geometry geometry;
  uint64_t text_tables_bytes = 0;
  ModelInfo model;
  std::string daemon_version;
  // Of an older daemon (no kFeatureModels): `model` alone.
  std::vector<ModelInfo> models;
};

// Strings longer than kNameBytesMax are cut at a character's end.
std::vector<std::byte> encode_hello(const Hello& hello);
// At most kModelsMax models, `model` among them; they are left out without kFeatureModels.
std::vector<std::byte> encode_welcome(const Welcome& welcome);
// The sentence is cut to what a message holds.
std::vector<std::byte> encode_refusal(ErrorCode code, std::string_view sentence);
inline std::vector<std::byte> encode_refusal(const Error& error) {
  return encode_refusal(error.code(), error.message());
}

// The daemon's check of a hello: form, version, struct sizes, flags, features. The error is what
// encode_refusal() should send: kProtocol, kVersionMismatch or kUnsupported.
Result<Hello> decode_hello(std::span<const std::byte> message);

// What both sides will use, given what the client offers and requires; kUnsupported if either lacks
// what the other needs. `supported` and `required` are the daemon's.
Result<uint64_t> agree_features(const Hello& hello, uint64_t supported, uint64_t required);

// The client's reading of the answer. A refusal comes out as the Error that it carries.
Result<Welcome> decode_answer(std::span<const std::byte> message);

}  // namespace inferd::ipc
