#include "ipc/handshake.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

namespace inferd::ipc {
namespace {

std::string_view cut_to(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

// Fixed part and strings into one message.
template <typename Fixed>
std::vector<std::byte> encode(Fixed fixed, uint16_t type, std::span<const std::string_view> strings,
                              size_t bytes_max = kHandshakeBytesMax) {
  size_t bytes = sizeof(Fixed);
  for (const auto& text : strings) bytes += text.size();
  INFERD_CHECK(bytes <= bytes_max);
  fixed.header = {kMagic, kVersionMajor,           kVersionMinor,
                  type,   uint16_t{sizeof(Fixed)}, static_cast<uint32_t>(bytes)};
  std::vector<std::byte> message(bytes);
  std::memcpy(message.data(), &fixed, sizeof(Fixed));
  size_t at = sizeof(Fixed);
  for (const auto& text : strings) {
    if (!text.empty()) std::memcpy(message.data() + at, text.data(), text.size());
    at += text.size();
  }
  return message;
}

Error malformed(const std::string& what) {
  return Error(ErrorCode::kProtocol, "the peer's handshake message is malformed: " + what);
}

std::string version_text(uint16_t major, uint16_t minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

// The header of any message of any version: form only.
Result<MessageHeader> read_header(std::span<const std::byte> message, size_t bytes_max) {
  MessageHeader header;
  if (message.size() < sizeof(header)) return malformed("it is too short");
  if (message.size() > bytes_max) return malformed("it is too long");
  std::memcpy(&header, message.data(), sizeof(header));
  if (header.magic != kMagic) return malformed("it does not begin as inferd's messages do");
  if (header.message_bytes != message.size()) return malformed("its length is not what it says");
  if (header.fixed_bytes < sizeof(header) || header.fixed_bytes > message.size()) {
    return malformed("its fixed part is not within it");
  }
  return header;
}

// The fixed part of a message of our major version, whose header was read.
template <typename Fixed>
Result<Fixed> read_fixed(std::span<const std::byte> message, const MessageHeader& header) {
  if (header.fixed_bytes < sizeof(Fixed)) {
    return Error(ErrorCode::kVersionMismatch,
                 "the peer's handshake lacks fields that this side needs; "
                 "use a client library and a daemon of the same version");
  }
  const auto surplus = message.subspan(sizeof(Fixed), header.fixed_bytes - sizeof(Fixed));
  if (std::any_of(surplus.begin(), surplus.end(), [](std::byte b) { return b != std::byte{0}; })) {
    return Error(ErrorCode::kUnsupported,
                 "the peer's handshake uses fields that this side does not know; "
                 "use a client library and a daemon of the same version");
  }
  Fixed fixed;
  std::memcpy(&fixed, message.data(), sizeof(Fixed));
  return fixed;
}

// Takes what follows the fixed part off a message, one after the other.
class StringReader {
 public:
  StringReader(std::span<const std::byte> message, size_t at) : message_(message), at_(at) {}

  Result<std::string> next(size_t bytes) {
    if (bytes > message_.size() - at_) return malformed("a string runs past its end");
    std::string text(reinterpret_cast<const char*>(message_.data()) + at_, bytes);
    at_ += bytes;
    // Names end up in logs and on terminals.
    for (char& c : text) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    }
    return text;
  }
  // The next structure, which the sender has `bytes` of; what it has beyond ours must be zero.
  template <typename T>
  Result<T> next_fixed(size_t bytes) {
    if (bytes < sizeof(T)) return malformed("a model of its list lacks fields");
    if (bytes > message_.size() - at_) return malformed("its list of models runs past its end");
    T value;
    std::memcpy(&value, message_.data() + at_, sizeof(T));
    const auto surplus = message_.subspan(at_ + sizeof(T), bytes - sizeof(T));
    if (std::any_of(surplus.begin(), surplus.end(),
                    [](std::byte b) { return b != std::byte{0}; })) {
      return Error(ErrorCode::kUnsupported,
                   "the daemon's list of models uses fields that this client does not know; "
                   "use a client library and a daemon of the same version");
    }
    at_ += bytes;
    return value;
  }
  Result<void> end() const {
    if (at_ != message_.size()) return malformed("it has bytes behind its last string");
    return {};
  }

 private:
  std::span<const std::byte> message_;
  size_t at_;  // never beyond the message
};

Error version_mismatch(const MessageHeader& header, const char* peer, const char* self) {
  return Error(ErrorCode::kVersionMismatch,
               std::string("the ") + peer + " speaks version " +
                   version_text(header.version_major, header.version_minor) +
                   " of the ring protocol, this " + self + " speaks " +
                   version_text(kVersionMajor, kVersionMinor) +
                   "; install the same release of both");
}

// The strings of a model, in the order of their sizes.
std::array<std::string_view, 4> strings_of(const ModelInfo& model) {
  return {cut_to(model.name, kNameBytesMax), cut_to(model.architecture, kNameBytesMax),
          cut_to(model.quantization, kNameBytesMax), cut_to(model.numerics_id, kNameBytesMax)};
}

// One model of a list, its strings included.
std::string listed(const ModelInfo& model) {
  const auto strings = strings_of(model);
  ModelFixed fixed = {};
  fixed.parameters = model.parameters;
  fixed.vocabulary = model.vocabulary;
  fixed.context_tokens = model.context_tokens;
  fixed.bos_token = model.bos_token;
  fixed.eos_token = model.eos_token;
  fixed.flags = model.has_chat_template ? kModelChatTemplate : 0;
  fixed.name_bytes = static_cast<uint16_t>(strings[0].size());
  fixed.architecture_bytes = static_cast<uint16_t>(strings[1].size());
  fixed.quantization_bytes = static_cast<uint16_t>(strings[2].size());
  fixed.numerics_id_bytes = static_cast<uint16_t>(strings[3].size());
  std::string bytes(reinterpret_cast<const char*>(&fixed), sizeof(fixed));
  for (const std::string_view text : strings) bytes += text;
  return bytes;
}

Result<ModelInfo> read_listed(StringReader& reader, size_t fixed_bytes) {
  INFERD_ASSIGN(const auto fixed, reader.next_fixed<ModelFixed>(fixed_bytes));
  ModelInfo model;
  model.parameters = fixed.parameters;
  model.vocabulary = fixed.vocabulary;
  model.context_tokens = fixed.context_tokens;
  model.bos_token = fixed.bos_token;
  model.eos_token = fixed.eos_token;
  model.has_chat_template = (fixed.flags & kModelChatTemplate) != 0;
  INFERD_ASSIGN(model.name, reader.next(fixed.name_bytes));
  INFERD_ASSIGN(model.architecture, reader.next(fixed.architecture_bytes));
  INFERD_ASSIGN(model.quantization, reader.next(fixed.quantization_bytes));
  INFERD_ASSIGN(model.numerics_id, reader.next(fixed.numerics_id_bytes));
  return model;
}

// What the welcome lists; without the feature, the session's own model alone.
Result<void> read_models(const WelcomeFixed& fixed, StringReader& reader, Welcome& welcome) {
  if ((fixed.features & kFeatureModels) == 0) {
    welcome.models = {welcome.model};
    return {};
  }
  if (fixed.models_count > kModelsMax) return malformed("its list of models is too long");
  bool own = false;
  for (uint32_t i = 0; i < fixed.models_count; ++i) {
    INFERD_ASSIGN(ModelInfo model, read_listed(reader, fixed.model_fixed_bytes));
    own = own || model.name == welcome.model.name;
    welcome.models.push_back(std::move(model));
  }
  if (!own) return malformed("the session's model is not in its list");
  return {};
}

}  // namespace

std::vector<std::byte> encode_hello(const Hello& hello) {
  const std::string_view strings[] = {cut_to(hello.model_name, kNameBytesMax),
                                      cut_to(hello.client_name, kNameBytesMax),
                                      cut_to(hello.cache_domain, kNameBytesMax)};
  HelloFixed fixed = {};
  fixed.features_offered = hello.features_offered;
  fixed.features_required = hello.features_required;
  fixed.slot_bytes = kSlotBytes;
  fixed.submit_bytes = sizeof(SubmitRecord);
  fixed.tokens_bytes = sizeof(TokensRecord);
  fixed.finished_bytes = sizeof(FinishedRecord);
  fixed.model_name_bytes = static_cast<uint16_t>(strings[0].size());
  fixed.client_name_bytes = static_cast<uint16_t>(strings[1].size());
  fixed.cache_domain_bytes = static_cast<uint16_t>(strings[2].size());
  return encode(fixed, kMessageHello, strings);
}

std::vector<std::byte> encode_welcome(const Welcome& welcome) {
  const ModelInfo& model = welcome.model;
  const auto own = strings_of(model);
  std::vector<std::string_view> strings(own.begin(), own.end());
  strings.push_back(cut_to(welcome.daemon_version, kNameBytesMax));
  WelcomeFixed fixed = {};
  fixed.features = welcome.features;
  fixed.session_id = welcome.session_id;
  fixed.submission_slots = welcome.geometry.submission_slots;
  fixed.completion_slots = welcome.geometry.completion_slots;
  fixed.arena_bytes = welcome.geometry.arena_bytes;
  fixed.descriptor_count = kWelcomeDescriptors;
  fixed.text_tables_bytes = welcome.text_tables_bytes;
  fixed.parameters = model.parameters;
  fixed.vocabulary = model.vocabulary;
  fixed.context_tokens = model.context_tokens;
  fixed.bos_token = model.bos_token;
  fixed.eos_token = model.eos_token;
  fixed.model_name_bytes = static_cast<uint16_t>(strings[0].size());
  fixed.architecture_bytes = static_cast<uint16_t>(strings[1].size());
  fixed.quantization_bytes = static_cast<uint16_t>(strings[2].size());
  fixed.numerics_id_bytes = static_cast<uint16_t>(strings[3].size());
  fixed.daemon_version_bytes = static_cast<uint16_t>(strings[4].size());
  std::vector<std::string> models;
  if ((welcome.features & kFeatureModels) != 0) {
    INFERD_CHECK(welcome.models.size() <= kModelsMax);
    for (const ModelInfo& each : welcome.models) models.push_back(listed(each));
    fixed.models_count = static_cast<uint16_t>(models.size());
    fixed.model_fixed_bytes = sizeof(ModelFixed);
    strings.insert(strings.end(), models.begin(), models.end());
  }
  return encode(fixed, kMessageWelcome, strings, kAnswerBytesMax);
}

std::vector<std::byte> encode_refusal(ErrorCode code, std::string_view sentence) {
  const std::string_view strings[] = {cut_to(sentence, kHandshakeBytesMax - sizeof(RefusalFixed))};
  RefusalFixed fixed = {};
  fixed.code = static_cast<uint32_t>(code);
  fixed.sentence_bytes = static_cast<uint32_t>(strings[0].size());
  return encode(fixed, kMessageRefusal, strings);
}

Result<Hello> decode_hello(std::span<const std::byte> message) {
  INFERD_ASSIGN(const MessageHeader header, read_header(message, kHandshakeBytesMax));
  if (header.version_major != kVersionMajor) return version_mismatch(header, "client", "daemon");
  if (header.type != kMessageHello) return malformed("it is no hello");
  INFERD_ASSIGN(const HelloFixed fixed, read_fixed<HelloFixed>(message, header));
  if (fixed.flags != 0 || fixed.reserved != 0 || fixed.reserved0[0] != 0 ||
      fixed.reserved0[1] != 0 || fixed.reserved0[2] != 0) {
    return Error(ErrorCode::kUnsupported,
                 "the client's hello has flags that this daemon does not know");
  }
  if (fixed.resume_session != 0) {
    return Error(ErrorCode::kUnsupported, "this daemon cannot resume a session; open a new one");
  }
  if (fixed.slot_bytes != kSlotBytes || fixed.submit_bytes != sizeof(SubmitRecord) ||
      fixed.tokens_bytes != sizeof(TokensRecord) ||
      fixed.finished_bytes != sizeof(FinishedRecord)) {
    return Error(ErrorCode::kVersionMismatch,
                 "the client's records have other sizes than this daemon's; "
                 "install the same release of both");
  }
  if (fixed.model_name_bytes > kNameBytesMax || fixed.client_name_bytes > kNameBytesMax ||
      fixed.cache_domain_bytes > kNameBytesMax) {
    return malformed("a name is longer than " + std::to_string(kNameBytesMax) + " bytes");
  }
  if (fixed.cache_domain_bytes != 0 && (fixed.features_offered & kFeatureCacheDomain) == 0) {
    return malformed("it names a cache domain without the feature for it");
  }
  Hello hello;
  hello.features_offered = fixed.features_offered;
  hello.features_required = fixed.features_required;
  StringReader strings(message, header.fixed_bytes);
  INFERD_ASSIGN(hello.model_name, strings.next(fixed.model_name_bytes));
  INFERD_ASSIGN(hello.client_name, strings.next(fixed.client_name_bytes));
  INFERD_ASSIGN(hello.cache_domain, strings.next(fixed.cache_domain_bytes));
  INFERD_TRY(strings.end());
  return hello;
}

Result<uint64_t> agree_features(const Hello& hello, uint64_t supported, uint64_t required) {
  char text[128];
  if (const uint64_t missing = hello.features_required & ~supported; missing != 0) {
    std::snprintf(
        text, sizeof(text),
        "the client needs features that this daemon lacks (bits %#llx); update the daemon",
        static_cast<unsigned long long>(missing));
    return Error(ErrorCode::kUnsupported, text);
  }
  if (const uint64_t missing = required & ~hello.features_offered; missing != 0) {
    std::snprintf(
        text, sizeof(text),
        "this daemon needs features that the client lacks (bits %#llx); update the client",
        static_cast<unsigned long long>(missing));
    return Error(ErrorCode::kUnsupported, text);
  }
  return hello.features_offered & supported;
}

Result<Welcome> decode_answer(std::span<const std::byte> message) {
  INFERD_ASSIGN(const MessageHeader header, read_header(message, kAnswerBytesMax));
  // A refusal is read whatever the version: it may be the sentence that explains the version.
  if (header.type == kMessageRefusal && header.fixed_bytes >= sizeof(RefusalFixed)) {
    RefusalFixed fixed;
    std::memcpy(&fixed, message.data(), sizeof(fixed));
    StringReader strings(message, header.fixed_bytes);
    INFERD_ASSIGN(const std::string sentence, strings.next(fixed.sentence_bytes));
    const bool known = fixed.code >= 1 && fixed.code <= uint32_t(ErrorCode::kVersionMismatch);
    return Error(known ? static_cast<ErrorCode>(fixed.code) : ErrorCode::kProtocol, sentence);
  }
  if (header.version_major != kVersionMajor) return version_mismatch(header, "daemon", "client");
  if (header.type != kMessageWelcome) return malformed("it is neither welcome nor refusal");
  INFERD_ASSIGN(const WelcomeFixed fixed, read_fixed<WelcomeFixed>(message, header));
  Welcome welcome;
  welcome.features = fixed.features;
  welcome.session_id = fixed.session_id;
  welcome.geometry = {fixed.submission_slots, fixed.completion_slots, fixed.arena_bytes};
  if (!welcome.geometry.valid()) return malformed("the sizes of its rings are impossible");
  if (fixed.descriptor_count != kWelcomeDescriptors)
    return malformed("its descriptors are not ours");
  if ((fixed.features & ~kFeatures) != 0) {
    return Error(ErrorCode::kUnsupported,
                 "the daemon uses features that this client did not offer");
  }
  welcome.text_tables_bytes = fixed.text_tables_bytes;
  welcome.model.parameters = fixed.parameters;
  welcome.model.vocabulary = fixed.vocabulary;
  welcome.model.context_tokens = fixed.context_tokens;
  welcome.model.bos_token = fixed.bos_token;
  welcome.model.eos_token = fixed.eos_token;
  StringReader strings(message, header.fixed_bytes);
  INFERD_ASSIGN(welcome.model.name, strings.next(fixed.model_name_bytes));
  INFERD_ASSIGN(welcome.model.architecture, strings.next(fixed.architecture_bytes));
  INFERD_ASSIGN(welcome.model.quantization, strings.next(fixed.quantization_bytes));
  INFERD_ASSIGN(welcome.model.numerics_id, strings.next(fixed.numerics_id_bytes));
  INFERD_ASSIGN(welcome.daemon_version, strings.next(fixed.daemon_version_bytes));
  INFERD_TRY(read_models(fixed, strings, welcome));
  INFERD_TRY(strings.end());
  return welcome;
}

}  // namespace inferd::ipc
