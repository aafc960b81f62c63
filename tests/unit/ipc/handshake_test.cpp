// The handshake messages: what goes in comes out, and nothing else is believed.
#include "ipc/handshake.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/prng.h"

namespace inferd::ipc {
namespace {

Hello sample_hello() {
  Hello hello;
  hello.features_offered = kFeatures | (1ull << 40);
  hello.features_required = kFeatureTextTables;
  hello.model_name = "smol";
  hello.client_name = "editor";
  return hello;
}

Welcome sample_welcome() {
  Welcome welcome;
  welcome.features = kFeatures;
  welcome.session_id = 77;
  welcome.geometry = {128, 2048, 8192};
  welcome.text_tables_bytes = 12345;
  welcome.model = {"smol", "llama", "Q4_1", "avx2-1", 134515008, 49152, 8192, 1, 2, true};
  welcome.models = {welcome.model, {"large", "llama", "Q8_0", "avx2-1", 7, 32000, 4096, 3, -1, false}};
  welcome.daemon_version = "0.1.0";
  return welcome;
}

template <typename T>
void patch(std::vector<std::byte>& message, size_t offset, T value) {
  ASSERT_LE(offset + sizeof(T), message.size());
  std::memcpy(message.data() + offset, &value, sizeof(T));
}

TEST(Handshake, HelloRoundTrip) {
  const auto decoded = decode_hello(encode_hello(sample_hello()));
  ASSERT_TRUE(decoded.ok()) << decoded.error().message();
  EXPECT_EQ(decoded->features_offered, sample_hello().features_offered);
  EXPECT_EQ(decoded->features_required, sample_hello().features_required);
  EXPECT_EQ(decoded->model_name, "smol");
  EXPECT_EQ(decoded->client_name, "editor");
}

TEST(Handshake, WelcomeRoundTrip) {
  const auto decoded = decode_answer(encode_welcome(sample_welcome()));
  ASSERT_TRUE(decoded.ok()) << decoded.error().message();
  EXPECT_EQ(decoded->session_id, 77u);
  EXPECT_EQ(decoded->geometry.completion_slots, 2048u);
  EXPECT_EQ(decoded->geometry.arena_bytes, 8192u);
  EXPECT_EQ(decoded->text_tables_bytes, 12345u);
  EXPECT_EQ(decoded->model.name, "smol");
  EXPECT_EQ(decoded->model.architecture, "llama");
  EXPECT_EQ(decoded->model.quantization, "Q4_1");
  EXPECT_EQ(decoded->model.numerics_id, "avx2-1");
  EXPECT_EQ(decoded->model.parameters, 134515008u);
  EXPECT_EQ(decoded->model.eos_token, 2);
  EXPECT_EQ(decoded->daemon_version, "0.1.0");
}

TEST(Handshake, ModelsAreListedOnlyWithTheirFeature) {
  Welcome welcome = sample_welcome();
  const auto decoded = decode_answer(encode_welcome(welcome));
  ASSERT_TRUE(decoded.ok()) << decoded.error().message();
  EXPECT_EQ(decoded->models, welcome.models);
  welcome.features &= ~kFeatureModels;
  const auto older = decode_answer(encode_welcome(welcome));
  ASSERT_TRUE(older.ok()) << older.error().message();
  ASSERT_EQ(older->models.size(), 1u);
  EXPECT_EQ(older->models[0].name, "smol");
  EXPECT_EQ(older->models[0].parameters, 134515008u);
}

TEST(Handshake, TheLongestListOfModelsIsRead) {
  Welcome welcome = sample_welcome();
  ModelInfo& model = welcome.model;
  model.name = model.architecture = model.quantization = std::string(1000, 'x');
  model.numerics_id = welcome.daemon_version = model.name;
  welcome.models.assign(kModelsMax, model);
  const auto message = encode_welcome(welcome);
  EXPECT_EQ(message.size(), kAnswerBytesMax);
  const auto decoded = decode_answer(message);
  ASSERT_TRUE(decoded.ok()) << decoded.error().message();
  EXPECT_EQ(decoded->models.size(), kModelsMax);
}

TEST(Handshake, AListOfModelsThatMakesNoSenseIsRefused) {
  const auto refused = [](size_t offset, uint16_t value, ErrorCode code) {
    auto message = encode_welcome(sample_welcome());
    patch<uint16_t>(message, offset, value);
    const auto decoded = decode_answer(message);
    ASSERT_FALSE(decoded.ok()) << offset << " " << value;
    EXPECT_EQ(decoded.error().code(), code) << decoded.error().message();
  };
  constexpr size_t kCount = offsetof(WelcomeFixed, models_count);
  constexpr size_t kBytes = offsetof(WelcomeFixed, model_fixed_bytes);
  refused(kCount, 0, ErrorCode::kProtocol);  // not even its own
  refused(kCount, 1, ErrorCode::kProtocol);  // and something behind it
  refused(kCount, 3, ErrorCode::kProtocol);
  refused(kCount, kModelsMax + 1, ErrorCode::kProtocol);
  refused(kBytes, sizeof(ModelFixed) - 1, ErrorCode::kProtocol);
  refused(kBytes, 4000, ErrorCode::kProtocol);
  refused(kBytes, sizeof(ModelFixed) + 4, ErrorCode::kUnsupported);  // "smol" as a field
  Welcome elsewhere = sample_welcome();
  elsewhere.models.erase(elsewhere.models.begin());
  EXPECT_EQ(decode_answer(encode_welcome(elsewhere)).error().code(), ErrorCode::kProtocol);
}

TEST(Handshake, ACacheDomainIsNamedOnlyWithItsFeature) {
  Hello hello = sample_hello();
  hello.cache_domain = "team";
  const auto decoded = decode_hello(encode_hello(hello));
  ASSERT_TRUE(decoded.ok()) << decoded.error().message();
  EXPECT_EQ(decoded->cache_domain, "team");
  hello.features_offered &= ~kFeatureCacheDomain;
  EXPECT_EQ(decode_hello(encode_hello(hello)).error().code(), ErrorCode::kProtocol);
  auto reserved = encode_hello(sample_hello());
  patch<uint64_t>(reserved, offsetof(HelloFixed, reserved), 1);
  EXPECT_EQ(decode_hello(reserved).error().code(), ErrorCode::kUnsupported);
}

TEST(Handshake, RefusalComesOutAsItsError) {
  const auto decoded = decode_answer(encode_refusal(ErrorCode::kNotFound, "no model 'x'"));
  ASSERT_FALSE(decoded.ok());
  EXPECT_EQ(decoded.error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(decoded.error().message(), "no model 'x'");
}

TEST(Handshake, RefusalOfAnotherMajorVersionIsStillRead) {
  auto message = encode_refusal(ErrorCode::kVersionMismatch, "speak version 9");
  patch<uint16_t>(message, offsetof(MessageHeader, version_major), 9);
  const auto decoded = decode_answer(message);
  ASSERT_FALSE(decoded.ok());
  EXPECT_EQ(decoded.error().message(), "speak version 9");
}

TEST(Handshake, OtherMajorVersionIsRefusedWithBothVersions) {
  auto hello = encode_hello(sample_hello());
  patch<uint16_t>(hello, offsetof(MessageHeader, version_major), kVersionMajor + 1);
  const auto at_daemon = decode_hello(hello);
  ASSERT_FALSE(at_daemon.ok());
  EXPECT_EQ(at_daemon.error().code(), ErrorCode::kVersionMismatch);
  EXPECT_NE(at_daemon.error().message().find("3.0"), std::string::npos);
  EXPECT_NE(at_daemon.error().message().find("2.0"), std::string::npos);
  auto welcome = encode_welcome(sample_welcome());
  patch<uint16_t>(welcome, offsetof(MessageHeader, version_major), 0);
  EXPECT_EQ(decode_answer(welcome).error().code(), ErrorCode::kVersionMismatch);
}

TEST(Handshake, AFixedPartThatIsTooShortIsOfAnotherVersion) {
  auto hello = encode_hello(sample_hello());
  patch<uint16_t>(hello, offsetof(MessageHeader, fixed_bytes), sizeof(HelloFixed) - 8);
  EXPECT_EQ(decode_hello(hello).error().code(), ErrorCode::kVersionMismatch);
  auto welcome = encode_welcome(sample_welcome());
  patch<uint16_t>(welcome, offsetof(MessageHeader, fixed_bytes), sizeof(WelcomeFixed) - 8);
  EXPECT_EQ(decode_answer(welcome).error().code(), ErrorCode::kVersionMismatch);
}

TEST(Handshake, NewerMinorVersionWithALongerFixedPartIsReadIfTheSurplusIsZero) {
  auto hello = encode_hello(sample_hello());
  hello.insert(hello.begin() + sizeof(HelloFixed), 16, std::byte{0});
  patch<uint16_t>(hello, offsetof(MessageHeader, version_minor), 7);
  patch<uint16_t>(hello, offsetof(MessageHeader, fixed_bytes), sizeof(HelloFixed) + 16);
  patch<uint32_t>(hello, offsetof(MessageHeader, message_bytes),
                  static_cast<uint32_t>(hello.size()));
  const auto decoded = decode_hello(hello);
  ASSERT_TRUE(decoded.ok()) << decoded.error().message();
  EXPECT_EQ(decoded->client_name, "editor");
  hello[sizeof(HelloFixed) + 3] = std::byte{1};
  EXPECT_EQ(decode_hello(hello).error().code(), ErrorCode::kUnsupported);
}

TEST(Handshake, UnknownFlagsAndOtherRecordSizesAreRefused) {
  auto flagged = encode_hello(sample_hello());
  patch<uint32_t>(flagged, offsetof(HelloFixed, flags), 1);
  EXPECT_EQ(decode_hello(flagged).error().code(), ErrorCode::kUnsupported);
  auto resuming = encode_hello(sample_hello());
  patch<uint64_t>(resuming, offsetof(HelloFixed, resume_session), 5);
  EXPECT_EQ(decode_hello(resuming).error().code(), ErrorCode::kUnsupported);
  auto sized = encode_hello(sample_hello());
  patch<uint16_t>(sized, offsetof(HelloFixed, submit_bytes), 192);
  EXPECT_EQ(decode_hello(sized).error().code(), ErrorCode::kVersionMismatch);
}

TEST(Handshake, FeaturesAreAgreedOrRefusedByName) {
  Hello hello = sample_hello();
  EXPECT_EQ(agree_features(hello, kFeatures, 0).value(), kFeatures);
  EXPECT_EQ(agree_features(hello, kFeatureTextTables, 0).value(), kFeatureTextTables);
  hello.features_required = 1ull << 40;
  const auto lacking = agree_features(hello, kFeatures, 0);
  ASSERT_FALSE(lacking.ok());
  EXPECT_EQ(lacking.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(lacking.error().message().find("0x10000000000"), std::string::npos);
  hello = sample_hello();
  hello.features_offered = 0;
  hello.features_required = 0;
  EXPECT_FALSE(agree_features(hello, kFeatures, kFeatureDelivered).ok());
}

TEST(Handshake, LongNamesAreCutAtACharacter) {
  Hello hello;
  for (int i = 0; i < 200; ++i) hello.client_name += "é";  // 400 bytes
  const auto decoded = decode_hello(encode_hello(hello));
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->client_name.size(), 254u);
  const auto refusal =
      decode_answer(encode_refusal(ErrorCode::kInternal, std::string(100'000, 'x')));
  EXPECT_EQ(refusal.error().message().size(), kHandshakeBytesMax - sizeof(RefusalFixed));
}

TEST(Handshake, ControlCharactersDoNotReachATerminal) {
  Hello hello;
  hello.client_name = "a\033[2Jb\n";
  EXPECT_EQ(decode_hello(encode_hello(hello))->client_name, "a?[2Jb?");
}

TEST(Handshake, EveryTruncationIsRefused) {
  const auto hello = encode_hello(sample_hello());
  for (size_t bytes = 0; bytes < hello.size(); ++bytes) {
    EXPECT_FALSE(decode_hello(std::span(hello).first(bytes)).ok()) << bytes;
  }
  const auto welcome = encode_welcome(sample_welcome());
  for (size_t bytes = 0; bytes < welcome.size(); ++bytes) {
    EXPECT_FALSE(decode_answer(std::span(welcome).first(bytes)).ok()) << bytes;
  }
}

// Under AddressSanitizer this shows that no length is believed.
TEST(Handshake, MutatedMessagesNeverReadOutsideTheMessage) {
  Prng random(3);
  const std::vector<std::byte> seeds[] = {encode_hello(sample_hello()),
                                          encode_welcome(sample_welcome()),
                                          encode_refusal(ErrorCode::kIo, "sentence")};
  uint64_t accepted = 0;
  for (int round = 0; round < 30'000; ++round) {
    std::vector<std::byte> message = seeds[random.below(3)];
    const uint64_t changes = 1 + random.below(4);
    for (uint64_t i = 0; i < changes; ++i) {
      message[random.below(message.size())] = std::byte(random.next());
    }
    accepted += decode_hello(message).ok() + decode_answer(message).ok();
  }
  EXPECT_GT(accepted, 0u) << "mutations that change a name are harmless";
}

}  // namespace
}  // namespace inferd::ipc
