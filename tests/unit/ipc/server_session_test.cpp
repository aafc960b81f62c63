// The daemon's end of a session against clients that behave, and against clients that do not.
#include "ipc/server_session.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "base/prng.h"
#include "raw_client.h"

namespace inferd::ipc {
namespace {

std::unique_ptr<ServerSession> make_session(Geometry geometry = {128, 128, 8192}) {
  return std::move(ServerSession::create(geometry, SessionId(5), kFeatures)).value();
}

bool polls_readable(int fd) {
  pollfd poller = {fd, POLLIN, 0};
  return poll(&poller, 1, 0) == 1;
}

TEST(ServerSession, SubmissionArrivesWithPromptStopTokensAndBiases) {
  auto session = make_session();
  RawClient client(*session);
  const TokenId prompt[] = {10, 20, 30};
  const TokenId stop[] = {7};
  const LogitBiasEntry bias[] = {{4, -std::numeric_limits<float>::infinity()}, {5, 1.5f}};
  std::memcpy(client.arena + 64, prompt, sizeof(prompt));
  std::memcpy(client.arena + 128, stop, sizeof(stop));
  std::memcpy(client.arena + 8192 - sizeof(bias), bias, sizeof(bias));
  SubmitRecord record = good_submission(42, 3);
  record.prompt_offset = 64;
  record.stop_offset = 128;
  record.stop_count = 1;
  record.bias_offset = 8192 - sizeof(bias);
  record.bias_count = 2;
  record.header.flags = kSubmitLogprobs;
  record.top_logprobs = 20;
  client.put(&record, sizeof(record));
  DrainScratch scratch;
  RecordingVisitor visitor;
  const DrainOutcome outcome = session->drain(10, scratch, visitor);
  EXPECT_EQ(outcome.records, 1u);
  EXPECT_FALSE(outcome.more);
  EXPECT_FALSE(outcome.broken);
  EXPECT_EQ(visitor.submitted, std::vector<uint64_t>{42});
  EXPECT_EQ(visitor.last_prompt, (std::vector<TokenId>{10, 20, 30}));
  EXPECT_EQ(visitor.last_stop, std::vector<TokenId>{7});
  ASSERT_EQ(visitor.last_bias.size(), 2u);
  EXPECT_EQ(visitor.last_bias[1].bias, 1.5f);
}

TEST(ServerSession, ARenicedSequenceIsAnsweredAndAnUnknownFieldEndsTheSession) {
  auto session = std::move(ServerSession::create(Geometry(), SessionId(1), kFeatures)).value();
  RawClient client(*session);
  DrainScratch scratch;
  RecordingVisitor visitor;
  ReniceRecord record = {{kRenice, 1, 0, 0, 5}, 77, uint8_t(Priority::kIdle), -4, 0, {}};
  client.put(&record, sizeof(record));
  record.nice = 20;
  client.put(&record, sizeof(record));
  EXPECT_FALSE(session->drain(10, scratch, visitor).broken);
  ASSERT_EQ(visitor.reniced.size(), 2u);
  EXPECT_TRUE(visitor.reniced[0].second);
  EXPECT_FALSE(visitor.reniced[1].second);
  const Renice renice = visitor.reniced[0].first;
  EXPECT_EQ(renice.cookie, 5u);
  EXPECT_EQ(renice.tag, 77u);
  EXPECT_EQ(renice.priority, Priority::kIdle);
  EXPECT_EQ(renice.nice, -4);
  const Error error(ErrorCode::kPermissionDenied, std::string(3000, 'x'));
  EXPECT_TRUE(session->publish_reniced(renice, error));
  session->flush(test_bells());
  const auto answer = client.take();
  EXPECT_EQ(answer.size(), 16u * kSlotBytes);
  EXPECT_EQ(as<RenicedRecord>(answer).code, uint32_t(ErrorCode::kPermissionDenied));
  EXPECT_EQ(as<RenicedRecord>(answer).sentence_bytes, kReniceSentenceBytesMax);
  record.reserved[4] = 1;
  client.put(&record, sizeof(record));
  EXPECT_TRUE(session->drain(10, scratch, visitor).broken);
}

TEST(ServerSession, APinIsCopiedCheckedAndAnswered) {
  auto session = make_session();
  RawClient client(*session);
  const TokenId prompt[] = {10, -20, 30};
  std::memcpy(client.arena + 64, prompt, sizeof(prompt));
  PinRecord record = {{kPin, 1, 0, 0, 5}, 64, 3, {}};
  client.put(&record, sizeof(record));
  record.prompt_offset = 8192 - 8;  // of 8192 bytes, one id too many
  client.put(&record, sizeof(record));
  record = {{kUnpin, 1, 0, 0, 6}, 0, 0, {}};
  client.put(&record, sizeof(record));
  record = {{kPin, 1, 0, 0, 0}, 64, 3, {}};
  client.put(&record, sizeof(record));
  DrainScratch scratch;
  RecordingVisitor visitor;
  EXPECT_FALSE(session->drain(10, scratch, visitor).broken);
  ASSERT_EQ(visitor.pinned.size(), 4u);
  EXPECT_EQ(visitor.pinned[0].cookie, 5u);
  EXPECT_EQ(visitor.pinned[0].prompt, (std::vector<TokenId>{10, -20, 30}));
  EXPECT_EQ(visitor.pinned[0].refusal, "");
  EXPECT_NE(visitor.pinned[1].refusal.find("outside the arena"), std::string::npos);
  EXPECT_TRUE(visitor.pinned[1].prompt.empty());
  EXPECT_TRUE(visitor.pinned[2].prompt.empty());
  EXPECT_EQ(visitor.pinned[2].refusal, "");
  EXPECT_NE(visitor.pinned[3].refusal.find("cookie"), std::string::npos);

  EXPECT_TRUE(session->publish_pinned(5, 48u));
  EXPECT_TRUE(session->publish_pinned(6, Error(ErrorCode::kNotFound, std::string(3000, 'x'))));
  session->flush(test_bells());
  const auto pinned = as<PinnedRecord>(client.take());
  EXPECT_EQ(pinned.header.cookie, 5u);
  EXPECT_EQ(pinned.tokens, 48u);
  EXPECT_EQ(pinned.code, 0u);
  const auto answer = client.take();
  EXPECT_EQ(answer.size(), 16u * kSlotBytes);
  EXPECT_EQ(as<PinnedRecord>(answer).code, uint32_t(ErrorCode::kNotFound));
  EXPECT_EQ(as<PinnedRecord>(answer).sentence_bytes, kPinSentenceBytesMax);
  record = {{kPin, 1, 0, 0, 7}, 64, 3, {0, 0, 0, 0, 1}};
  client.put(&record, sizeof(record));
  EXPECT_TRUE(session->drain(10, scratch, visitor).broken);
}

TEST(ServerSession, LongPromptsToPinEndADrainAsThoseToRunDo) {
  auto session = make_session({128, 128, 1u << 20});
  RawClient client(*session);
  const PinRecord record = {{kPin, 1, 0, 0, 5}, 0, kDrainPromptTokensMax, {}};
  client.put(&record, sizeof(record));
  client.put(&record, sizeof(record));
  DrainScratch scratch;
  RecordingVisitor visitor;
  const DrainOutcome outcome = session->drain(10, scratch, visitor);
  EXPECT_EQ(outcome.records, 1u);
  EXPECT_TRUE(outcome.more);
}

TEST(ServerSession, ToASessionWithoutTheFeatureAPinningClientBreaksTheProtocol) {
  for (const uint16_t type : {kPin, kUnpin}) {
    auto session = std::move(ServerSession::create(Geometry(), SessionId(1),
                                                   kFeatures & ~kFeaturePin))
                       .value();
    RawClient client(*session);
    DrainScratch scratch;
    RecordingVisitor visitor;
    const PinRecord record = {{type, 1, 0, 0, 5}, 0, type == kPin ? 16u : 0u, {}};
    client.put(&record, sizeof(record));
    EXPECT_TRUE(session->drain(10, scratch, visitor).broken);
    EXPECT_TRUE(visitor.pinned.empty());
  }
}

TEST(ServerSession, ToASessionWithoutTheFeatureARenicingClientBreaksTheProtocol) {
  auto session = std::move(ServerSession::create(Geometry(), SessionId(1),
                                                 kFeatures & ~(kFeatureRenice | kFeatureScore)))
                     .value();
  RawClient client(*session);
  DrainScratch scratch;
  RecordingVisitor visitor;
  SubmitRecord scores = good_submission(1, 4);
  scores.header.flags = kSubmitScore | kSubmitLogprobs;
  scores.score_first = 1;
  scores.max_tokens = 3;
  client.put(&scores, sizeof(scores));
  const ReniceRecord record = {{kRenice, 1, 0, 0, 5}, 77, 0, 0, 0, {}};
  client.put(&record, sizeof(record));
  EXPECT_TRUE(session->drain(10, scratch, visitor).broken);
  EXPECT_EQ(visitor.last_refusal_code, ErrorCode::kUnsupported);
}

TEST(ServerSession, CancelAndDeliveredArrive) {
  auto session = make_session();
  RawClient client(*session);
  const CancelRecord cancel = {{kCancel, 1, 0, 0, 9}, {}};
  const DeliveredRecord delivered = {{kDelivered, 1, 0, kDeliveredTruncate, 9}, 12, 0, {}};
  client.put(&cancel, sizeof(cancel));
  client.put(&delivered, sizeof(delivered));
  DrainScratch scratch;
  RecordingVisitor visitor;
  const DrainOutcome first = session->drain(1, scratch, visitor);
  EXPECT_EQ(first.records, 1u);
  EXPECT_TRUE(first.more);
  EXPECT_EQ(session->drain(1, scratch, visitor).records, 1u);
  EXPECT_EQ(visitor.cancelled, std::vector<uint64_t>{9});
  ASSERT_EQ(visitor.delivered.size(), 1u);
  EXPECT_EQ(visitor.delivered[0], std::make_pair(12u, true));
}

// Fields that came later are refused where the two sides did not agree on them, and taken where
// they did.
TEST(ServerSession, FieldsOfAFeatureNeedTheFeature) {
  struct Later {
    uint64_t feature;
    void (*change)(SubmitRecord&);
  };
  const Later fields[] = {
      {kFeatureUrgency, [](SubmitRecord& r) { r.priority = 2; }},
      {kFeatureUrgency, [](SubmitRecord& r) { r.nice = -20; }},
      {kFeatureUrgency, [](SubmitRecord& r) { r.deadline_ms = 1; }},
      {kFeatureFork, [](SubmitRecord& r) { r.parent_cookie = 7; }},
      {kFeatureCacheDomain, [](SubmitRecord& r) { r.header.flags = kSubmitNoStore; }},
  };
  for (const Later& field : fields) {
    for (const uint64_t features : {kFeatures, kFeatures & ~field.feature}) {
      auto session =
          std::move(ServerSession::create({128, 128, 8192}, SessionId(5), features)).value();
      RawClient client(*session);
      SubmitRecord record = good_submission(1, 4);
      field.change(record);
      client.put(&record, sizeof(record));
      DrainScratch scratch;
      RecordingVisitor visitor;
      EXPECT_FALSE(session->drain(10, scratch, visitor).broken);
      EXPECT_EQ(visitor.submitted.size(), features == kFeatures ? 1u : 0u);
      if (features == kFeatures) continue;
      EXPECT_EQ(visitor.last_refusal_code, ErrorCode::kUnsupported);
      EXPECT_NE(visitor.last_refusal.find("same version"), std::string::npos);
    }
  }
}

struct BadCase {
  const char* name;
  void (*change)(SubmitRecord&);
};
class BadSubmission : public testing::TestWithParam<BadCase> {};

// One senseless submission is refused with a sentence, and the session goes on.
TEST_P(BadSubmission, IsRefusedAndTheNextOneIsServed) {
  auto session = make_session();
  RawClient client(*session);
  SubmitRecord record = good_submission(1, 4);
  GetParam().change(record);
  client.put(&record, sizeof(record));
  record = good_submission(2, 4);
  client.put(&record, sizeof(record));
  DrainScratch scratch;
  RecordingVisitor visitor;
  const DrainOutcome outcome = session->drain(10, scratch, visitor);
  EXPECT_FALSE(outcome.broken);
  EXPECT_EQ(visitor.refused.size(), 1u);
  EXPECT_FALSE(visitor.last_refusal.empty());
  EXPECT_EQ(visitor.submitted, std::vector<uint64_t>{2});
}

void ask_to_score(SubmitRecord& r, uint32_t first) {
  r.header.flags |= kSubmitScore | kSubmitLogprobs;
  r.score_first = first;
  r.max_tokens = r.prompt_count - first;
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
INSTANTIATE_TEST_SUITE_P(
    ServerSession, BadSubmission,
    testing::Values(BadCase{"UnknownFlag", [](SubmitRecord& r) { r.header.flags = 1u << 9; }},
                    BadCase{"ReservedByte", [](SubmitRecord& r) { r.header.reserved = 1; }},
                    BadCase{"ReservedWord", [](SubmitRecord& r) { r.reserved[1] = 1; }},
                    BadCase{"ReservedHalf", [](SubmitRecord& r) { r.reserved0 = 1; }},
                    BadCase{"ScoreWithoutItsFlag", [](SubmitRecord& r) { r.score_first = 1; }},
                    BadCase{"ScoreOfTheFirst", [](SubmitRecord& r) { ask_to_score(r, 0); }},
                    BadCase{"ScoreBeyond", [](SubmitRecord& r) { ask_to_score(r, r.prompt_count); }},
                    BadCase{"ScoreWithoutLogprobs",
                            [](SubmitRecord& r) {
                              ask_to_score(r, 1);
                              r.header.flags &= ~kSubmitLogprobs;
                            }},
                    BadCase{"ScoreWithAnotherLength",
                            [](SubmitRecord& r) {
                              ask_to_score(r, 1);
                              ++r.max_tokens;
                            }},
                    BadCase{"ScoreWithBiases",
                            [](SubmitRecord& r) {
                              ask_to_score(r, 1);
                              r.bias_count = 1;
                            }},
                    BadCase{"NoSuchPriority", [](SubmitRecord& r) { r.priority = 3; }},
                    BadCase{"NiceTooHigh", [](SubmitRecord& r) { r.nice = 20; }},
                    BadCase{"NiceTooLow", [](SubmitRecord& r) { r.nice = -21; }},
                    BadCase{"NoCookie", [](SubmitRecord& r) { r.header.cookie = 0; }},
                    BadCase{"EmptyPrompt", [](SubmitRecord& r) { r.prompt_count = 0; }},
                    BadCase{"OffsetBeyond", [](SubmitRecord& r) { r.prompt_offset = 8192; }},
                    BadCase{"OffsetHuge", [](SubmitRecord& r) { r.prompt_offset = 0xfffffffc; }},
                    BadCase{"OffsetOdd", [](SubmitRecord& r) { r.prompt_offset = 2; }},
                    BadCase{"LengthBeyond", [](SubmitRecord& r) { r.prompt_count = 2049; }},
                    BadCase{"LengthHuge", [](SubmitRecord& r) { r.prompt_count = 0xffffffff; }},
                    BadCase{"SumWraps",
                            [](SubmitRecord& r) {
                              r.prompt_offset = 0xfffffffc;
                              r.prompt_count = 0x40000001;
                            }},
                    BadCase{"StopsHuge", [](SubmitRecord& r) { r.stop_count = 0xffffffff; }},
                    BadCase{"StopsBeyond",
                            [](SubmitRecord& r) {
                              r.stop_count = 64;
                              r.stop_offset = 8000;
                            }},
                    BadCase{"BiasesHuge", [](SubmitRecord& r) { r.bias_count = 0x20000000; }},
                    BadCase{"NoTokensWanted", [](SubmitRecord& r) { r.max_tokens = 0; }},
                    BadCase{"TemperatureNan", [](SubmitRecord& r) { r.temperature = kNan; }},
                    BadCase{"TemperatureInf", [](SubmitRecord& r) { r.temperature = kInf; }},
                    BadCase{"TemperatureNegative", [](SubmitRecord& r) { r.temperature = -1; }},
                    BadCase{"TopP", [](SubmitRecord& r) { r.top_p = 0; }},
                    BadCase{"MinP", [](SubmitRecord& r) { r.min_p = 1.5f; }},
                    BadCase{"Repetition", [](SubmitRecord& r) { r.repetition_penalty = 0; }},
                    BadCase{"Presence", [](SubmitRecord& r) { r.presence_penalty = kNan; }},
                    BadCase{"Frequency", [](SubmitRecord& r) { r.frequency_penalty = kInf; }},
                    BadCase{"TopWithoutLogprobs", [](SubmitRecord& r) { r.top_logprobs = 1; }},
                    BadCase{"TopTooMany",
                            [](SubmitRecord& r) {
                              r.header.flags = kSubmitLogprobs;
                              r.top_logprobs = 21;
                            }}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(ServerSession, BiasThatIsNoNumberIsRefused) {
  auto session = make_session();
  RawClient client(*session);
  const LogitBiasEntry bias = {1, kNan};
  std::memcpy(client.arena + 256, &bias, sizeof(bias));
  SubmitRecord record = good_submission(1, 1);
  record.bias_offset = 256;
  record.bias_count = 1;
  client.put(&record, sizeof(record));
  DrainScratch scratch;
  RecordingVisitor visitor;
  session->drain(10, scratch, visitor);
  EXPECT_EQ(visitor.refused.size(), 1u);
}

// What breaks the framing ends the session, with a reason in the last word.
void expect_broken(ServerSession& session, RawClient& client) {
  DrainScratch scratch;
  RecordingVisitor visitor;
  const DrainOutcome outcome = session.drain(10, scratch, visitor);
  ASSERT_TRUE(outcome.broken);
  EXPECT_EQ(outcome.broken->code(), ErrorCode::kProtocol);
  EXPECT_TRUE(visitor.submitted.empty());
  EXPECT_EQ(session.drain(10, scratch, visitor).records, 0u) << "nothing more is read";
  EXPECT_TRUE(session.publish_last_word(ErrorCode::kProtocol, outcome.broken->message()));
  session.flush(test_bells());
  const auto record = client.take();
  ASSERT_FALSE(record.empty());
  const auto error = as<ErrorRecord>(record);
  EXPECT_EQ(error.header.type, kSessionEnd);
  EXPECT_EQ(error.code, static_cast<uint32_t>(ErrorCode::kProtocol));
  EXPECT_FALSE(session.publish_error(1, ErrorCode::kInternal, "x")) << "the last word is last";
}

TEST(ServerSession, IndexFurtherAheadThanTheRingIsLongEndsTheSession) {
  for (const uint64_t tail : {uint64_t{129}, UINT64_MAX, uint64_t{1} << 63}) {
    auto session = make_session();
    RawClient client(*session);
    client.control->submission_tail.value = tail;
    expect_broken(*session, client);
  }
}

TEST(ServerSession, UnknownTypeEndsTheSession) {
  auto session = make_session();
  RawClient client(*session);
  CancelRecord record = {{99, 1, 0, 0, 1}, {}};
  client.put(&record, sizeof(record));
  expect_broken(*session, client);
}

TEST(ServerSession, WrongSlotCountEndsTheSession) {
  for (const uint8_t slots : {0, 1, 3, 255}) {
    auto session = make_session();
    RawClient client(*session);
    SubmitRecord record = good_submission(1, 1);
    record.header.slots = slots;
    client.put(&record, sizeof(record));
    expect_broken(*session, client);
  }
}

TEST(ServerSession, RecordPublishedInPartEndsTheSession) {
  auto session = make_session();
  RawClient client(*session);
  const SubmitRecord record = good_submission(1, 1);
  client.put(&record, sizeof(record));
  client.control->submission_tail.value = 1;
  expect_broken(*session, client);
}

TEST(ServerSession, UnknownFlagsOfACancellationEndTheSession) {
  auto session = make_session();
  RawClient client(*session);
  const CancelRecord record = {{kCancel, 1, 0, 1, 1}, {}};
  client.put(&record, sizeof(record));
  expect_broken(*session, client);
}

TEST(ServerSession, ImpossibleCompletionIndexStopsPublishing) {
  auto session = make_session();
  RawClient client(*session);
  client.control->completion_head.value = 1'000'000;
  // The daemon looks the index up once it needs room.
  int published = 0;
  while (session->publish_finished(1, {})) ASSERT_LT(++published, 1000);
  ASSERT_TRUE(session->broken());
  EXPECT_EQ(session->broken()->code(), ErrorCode::kProtocol);
  DrainScratch scratch;
  RecordingVisitor visitor;
  EXPECT_TRUE(session->drain(1, scratch, visitor).broken);
}

TEST(ServerSession, AFullRingPausesAndKeepsRoomForTheLastWord) {
  auto session = make_session();
  RawClient client(*session);
  int published = 0;
  while (session->has_room(1)) {
    ASSERT_TRUE(session->publish_finished(static_cast<uint64_t>(++published), {}));
  }
  EXPECT_EQ(published, 128 - static_cast<int>(kLastWordSlots));
  EXPECT_FALSE(session->publish_finished(1, {}));
  session->flush(test_bells());
  ASSERT_FALSE(client.take().empty());
  EXPECT_TRUE(session->has_room(1)) << "the client read one record";
  ASSERT_TRUE(session->publish_finished(1, {}));
  ASSERT_TRUE(session->publish_last_word(ErrorCode::kTimedOut, std::string(5000, 'w')));
  session->flush(test_bells());
  std::vector<std::byte> last;
  for (auto record = client.take(); !record.empty(); record = client.take()) last = record;
  const auto error = as<ErrorRecord>(last);
  EXPECT_EQ(error.header.type, kSessionEnd);
  EXPECT_EQ(error.sentence_bytes, kLastWordBytesMax);
}

TEST(ServerSession, TokensWithAlternativesSpanSlotsAcrossTheRingsEnd) {
  auto session = make_session();
  RawClient client(*session);
  std::vector<TokenId> ids;
  std::vector<float> logprobs;
  std::vector<LogprobEntry> top;
  for (uint32_t i = 0; i < kTokensPerRecordMax; ++i) {
    ids.push_back(static_cast<TokenId>(i * 3));
    logprobs.push_back(-0.5f * static_cast<float>(i));
    for (uint32_t k = 0; k < 20; ++k) {
      top.push_back({static_cast<TokenId>(i * 100 + k), -static_cast<float>(k)});
    }
  }
  for (uint32_t round = 0; round < 20; ++round) {  // 43 slots each in a ring of 128
    ASSERT_TRUE(session->publish_tokens(8, {round * 16, 3, ids, logprobs, top, 20}));
    session->flush(test_bells());
    const auto record = client.take();
    const auto header = as<TokensRecord>(record);
    ASSERT_EQ(header.header.slots, kRecordSlotsMax);
    EXPECT_EQ(header.first_index, round * 16);
    EXPECT_EQ(header.cached_tokens, 3u);
    EXPECT_EQ(header.count, kTokensPerRecordMax);
    const std::byte* at = record.data() + sizeof(TokensRecord);
    EXPECT_EQ(std::memcmp(at, ids.data(), ids.size() * 4), 0);
    EXPECT_EQ(std::memcmp(at + 64, logprobs.data(), 64), 0);
    EXPECT_EQ(std::memcmp(at + 128, top.data(), top.size() * sizeof(LogprobEntry)), 0);
  }
}

TEST(ServerSession, ErrorsAreCutAtACharacter) {
  auto session = make_session();
  RawClient client(*session);
  std::string sentence = "x";
  while (sentence.size() < 3000) sentence += "é";
  ASSERT_TRUE(session->publish_error(3, ErrorCode::kInvalidArgument, sentence));
  session->flush(test_bells());
  const auto record = client.take();
  const auto error = as<ErrorRecord>(record);
  EXPECT_EQ(error.sentence_bytes, 999u);
  EXPECT_EQ(std::memcmp(record.data() + sizeof(ErrorRecord), sentence.data(), 999), 0);
}

TEST(ServerSession, FlushRingsASleepingClientOnceAndAnAwakeOneNever) {
  auto session = make_session();
  RawClient client(*session);
  ASSERT_TRUE(session->publish_finished(1, {}));
  EXPECT_FALSE(session->flush(test_bells())) << "the client is awake";
  EXPECT_FALSE(polls_readable(client.completion_bell.get()));
  client.sleeper.arm();
  EXPECT_FALSE(session->flush(test_bells())) << "nothing new";
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(session->publish_finished(1, {}));
  EXPECT_TRUE(session->flush(test_bells()));
  EXPECT_TRUE(polls_readable(client.completion_bell.get()));
  ASSERT_TRUE(session->publish_finished(1, {}));
  EXPECT_FALSE(session->flush(test_bells())) << "rung for this sleep already";
}

TEST(ServerSession, SleepingDaemonIsRungAndWakes) {
  auto session = make_session();
  RawClient client(*session);
  ASSERT_TRUE(session->prepare_sleep());
  const CancelRecord record = {{kCancel, 1, 0, 0, 1}, {}};
  client.put(&record, sizeof(record));
  ASSERT_TRUE(client.waker.should_ring());
  ring_doorbell(client.submission_bell.get());
  EXPECT_TRUE(polls_readable(session->submission_bell_fd()));
  session->wake();
  EXPECT_FALSE(client.waker.should_ring());
  EXPECT_FALSE(session->prepare_sleep()) << "there is something to drain";
}

TEST(ServerSession, OnePromptAfterAnotherDoesNotHoldTheLoopUp) {
  auto session = make_session({128, 128, 1u << 20});
  RawClient client(*session);
  for (uint64_t i = 1; i <= 3; ++i) {
    const SubmitRecord record = good_submission(i, 1u << 18);
    client.put(&record, sizeof(record));
  }
  DrainScratch scratch;
  RecordingVisitor visitor;
  const DrainOutcome outcome = session->drain(10, scratch, visitor);
  EXPECT_EQ(outcome.records, 1u);
  EXPECT_TRUE(outcome.more);
}

TEST(ServerSession, SenselessGeometryIsRefused) {
  for (const Geometry g : {Geometry{100, 128, 8192}, Geometry{128, 64, 8192},
                           Geometry{128, 128, 100}, Geometry{128, 128, 0}}) {
    EXPECT_FALSE(ServerSession::create(g, SessionId(1), 0).ok());
  }
}

// A client that rewrites every word it can, from another thread, all the time. The daemon's end
// must stay within its memory (AddressSanitizer), its copies (no submission beyond the limits), and
// its loop.
TEST(ServerSession, AClientThatRewritesItsMemoryAtRandomHurtsNobody) {
  std::atomic<bool> stop{false};
  std::atomic<RawClient*> victim{nullptr};
  std::atomic<bool> idle{false};
  std::atomic<uint64_t> changes{0};
  std::thread mutator([&] {
    Prng random(4);
    while (!stop) {
      RawClient* client = victim;
      if (client == nullptr) {
        idle = true;
        std::this_thread::yield();
        continue;
      }
      idle = false;
      auto* words = reinterpret_cast<std::atomic<uint64_t>*>(client->client_region.data());
      const uint64_t count = client->client_region.size() / 8;
      // Mostly headers that look right, some noise.
      const uint64_t at = random.below(4) == 0 ? random.below(24) : random.below(count);
      const uint64_t header = (1 + random.below(3)) | (1 + random.below(2)) << 16;
      words[at].store(random.below(2) == 0 ? header : random.next() >> random.below(64),
                      std::memory_order_relaxed);
      ++changes;
    }
  });
  DrainScratch scratch;
  uint64_t records = 0, broken = 0;
  Prng random(5);
  for (int round = 0; round < 300; ++round) {
    auto session = make_session();
    RawClient client(*session);
    for (uint64_t i = 1; i <= 32; ++i) {
      const SubmitRecord record = good_submission(i, 1 + static_cast<uint32_t>(random.below(2048)));
      client.put(&record, sizeof(record));
    }
    idle = false;
    victim = &client;
    const uint64_t enough = changes + 1000;
    while (changes < enough) {
      RecordingVisitor visitor;
      const DrainOutcome outcome = session->drain(16, scratch, visitor);
      records += outcome.records;
      ASSERT_LE(outcome.records, 16u);
      ASSERT_LE(visitor.last_prompt.size(), 2048u);
      session->publish_finished(1, {});
      session->flush(test_bells());
      session->prepare_sleep();
      session->wake();
      if (outcome.broken) {
        ++broken;
        break;
      }
    }
    victim = nullptr;
    while (!idle) std::this_thread::yield();
  }
  stop = true;
  mutator.join();
  EXPECT_GT(broken, 0u);
  EXPECT_GT(records, 0u);
}

}  // namespace
}  // namespace inferd::ipc
