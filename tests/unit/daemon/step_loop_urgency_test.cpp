// What a submission may say beside its prompt: how urgent it is, until when, whom it was forked
// from, and that nothing of it is to be kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/daemon/loop_fixture.h"

namespace inferd::daemon {
namespace {

using testing::HasSubstr;

ipc::SubmitRecord submission(uint64_t cookie, uint32_t max_tokens) {
  ipc::SubmitRecord record = ipc::good_submission(cookie, 1);
  record.max_tokens = max_tokens;
  return record;
}

std::vector<TokenId> joined(std::vector<TokenId> head, const std::vector<TokenId>& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

scheduler::SequenceInfo info_of(const LoopFixture& fixture, uint64_t sequence) {
  return fixture.scheduler.info(SequenceId(sequence)).value();
}

TEST(Urgency, ClassAndNiceReachTheScheduler) {
  LoopFixture fixture;
  FakeClient client = fixture.connect();
  ipc::SubmitRecord record = submission(1, 5);
  record.priority = static_cast<uint8_t>(ipc::Priority::kBatch);
  record.nice = 7;
  client.submit(record, prompt_of(100));
  fixture.loop->turn(false);
  client.read();
  EXPECT_EQ(info_of(fixture, client[1].sequence_id).priority, scheduler::PriorityClass::kBatch);
  EXPECT_EQ(info_of(fixture, client[1].sequence_id).nice, 7);
  fixture.run_until_idle({&client});
}

TEST(Urgency, ARunningSequenceIsRenicedByItsOwnClient) {
  LoopFixture fixture;
  FakeClient client = fixture.connect(), other = fixture.connect(1001);
  FakeClient root = fixture.connect(0, nullptr, true);
  client.submit(prompt_of(100), 500);
  root.submit(prompt_of(100), 500);
  fixture.loop->turn(false);
  client.read();
  root.read();
  client.renice(1, 1, ipc::Priority::kBatch, 5);
  client.renice(1, 2, ipc::Priority::kInteractive, 5);
  client.renice(7, 3, ipc::Priority::kBatch, 5);
  client.renice(1, 4, static_cast<ipc::Priority>(3), 5);
  client.renice(1, 5, ipc::Priority::kIdle, 20);
  other.renice(1, 1, ipc::Priority::kIdle, 0);  // a cookie is its own session's
  root.renice(1, 1, ipc::Priority::kInteractive, -3);
  for (int i = 0; i < 3; ++i) fixture.loop->turn(false);  // a few submissions a turn
  for (FakeClient* each : {&client, &other, &root}) each->read();
  EXPECT_EQ(client.reniced[1].first, ErrorCode::kOk);
  EXPECT_EQ(client.reniced[2].first, ErrorCode::kPermissionDenied);
  EXPECT_THAT(client.reniced[2].second, HasSubstr("more urgent"));
  EXPECT_EQ(client.reniced[3].first, ErrorCode::kNotFound);
  EXPECT_EQ(client.reniced[4].first, ErrorCode::kInvalidArgument);
  EXPECT_EQ(client.reniced[5].first, ErrorCode::kInvalidArgument);
  EXPECT_EQ(other.reniced[1].first, ErrorCode::kNotFound);
  EXPECT_EQ(root.reniced[1].first, ErrorCode::kOk);
  const auto info = info_of(fixture, client[1].sequence_id);
  EXPECT_EQ(info.priority, scheduler::PriorityClass::kBatch);
  EXPECT_EQ(info.nice, 5);
  EXPECT_EQ(info_of(fixture, root[1].sequence_id).nice, -3);
  client.cancel(1);
  root.cancel(1);
  fixture.run_until_idle({&client, &root});
}

TEST(Urgency, NiceBelowZeroIsForThePrivileged) {
  LoopFixture fixture;
  FakeClient client = fixture.connect();
  ipc::SubmitRecord record = submission(1, 5);
  record.nice = -1;
  client.submit(record, prompt_of(10));
  fixture.run_until_idle({&client});
  EXPECT_EQ(client[1].error, ErrorCode::kPermissionDenied);
  EXPECT_THAT(client[1].sentence, HasSubstr("nice below 0"));
  FakeClient root = fixture.connect(0, nullptr, true);
  root.submit(record, prompt_of(10));
  fixture.run_until_idle({&root});
  EXPECT_TRUE(root[1].finished);
}

TEST(Urgency, ARequestThatDoesNotStartInTimeIsRefusedAndOneThatDoesIsNot) {
  LoopFixture fixture({.pages = 16, .sequences_max = 1, .context_tokens = 200});
  FakeClient client = fixture.connect();
  client.submit(prompt_of(20), 100);  // cookie 1: runs a while, a millisecond a step
  ipc::SubmitRecord record = submission(2, 5);
  record.deadline_ms = 20;
  client.submit(record, prompt_of(30));
  record = submission(3, 5);
  record.deadline_ms = 10'000;
  client.submit(record, prompt_of(40));
  fixture.run_until_idle({&client});
  EXPECT_TRUE(client[1].finished);
  EXPECT_TRUE(client[2].accepted);
  EXPECT_EQ(client[2].error, ErrorCode::kTimedOut);
  EXPECT_THAT(client[2].sentence, HasSubstr("deadline"));
  EXPECT_EQ(client[3].ids, fake_answer(prompt_of(40), 5));
  EXPECT_EQ(fixture.loop->counters().requests_overdue, 1u);
  EXPECT_EQ(fixture.pages_free(), PageCount(16));
}

TEST(Forks, GoOnFromTheirParentWithWhatItWouldSayOrWithTheirOwnTokens) {
  for (const uint32_t flags : {0u, ipc::kSubmitNoStore}) {
    LoopFixture fixture;
    FakeClient client = fixture.connect();
    const std::vector<TokenId> prompt = prompt_of(100);
    ipc::SubmitRecord record = submission(1, 60);
    record.header.flags = flags;
    client.submit(record, prompt);
    while (client[1].ids.size() < 10) {
      fixture.loop->turn(false);
      client.read();
    }
    const std::vector<TokenId> so_far = joined(prompt, client[1].ids);
    const std::vector<TokenId> own = {3, 1, 4};
    record = submission(2, 20);
    record.header.flags = flags;
    record.parent_cookie = 1;
    client.submit(record, so_far);
    record.header.cookie = 3;
    client.submit(record, joined(so_far, own));
    fixture.run_until_idle({&client});
    EXPECT_EQ(client[1].ids, fake_answer(prompt, 60)) << "the parent goes on unharmed";
    EXPECT_EQ(client[2].ids, fake_answer(so_far, 20));
    EXPECT_EQ(client[3].ids, fake_answer(joined(so_far, own), 20));
    EXPECT_EQ(client[2].cached_tokens, 109u);
    EXPECT_EQ(client[3].cached_tokens, 109u) << "the parent's last token was not computed yet";
  }
}

TEST(Forks, OfAnEndedParentComputeWhatTheCacheHasNot) {
  LoopFixture fixture;
  FakeClient client = fixture.connect();
  const uint64_t parent = client.submit(prompt_of(50), 20);
  fixture.run_until_idle({&client});
  const std::vector<TokenId> so_far = joined(prompt_of(50), client[parent].ids);
  for (const uint64_t named : {parent, uint64_t{77}}) {
    ipc::SubmitRecord record = submission(10 + named, 20);
    record.parent_cookie = named;
    client.submit(record, so_far);
    fixture.run_until_idle({&client});
    EXPECT_EQ(client[10 + named].ids, fake_answer(so_far, 20));
    EXPECT_GE(client[10 + named].cached_tokens, 64u) << "whole pages are found in the cache";
  }
}

TEST(NoStore, NeitherFindsNorLeavesPrefixes) {
  LoopFixture fixture;
  FakeClient client = fixture.connect();
  const uint64_t stored = client.submit(prompt_of(100), 2);
  fixture.run_until_idle({&client});
  const uint32_t nodes = fixture.memory.prefixes().nodes();
  EXPECT_GT(nodes, 0u);
  ipc::SubmitRecord record = submission(8, 40);
  record.header.flags = ipc::kSubmitNoStore;
  client.submit(record, prompt_of(100));
  fixture.run_until_idle({&client});
  EXPECT_EQ(client[8].ids, fake_answer(prompt_of(100), 40));
  EXPECT_EQ(client[8].cached_tokens, 0u);
  EXPECT_EQ(client[stored].cached_tokens, 0u);
  EXPECT_EQ(fixture.memory.prefixes().nodes(), nodes);
}

TEST(CacheDomains, AreAUsersOwnUnlessTheSessionsIsAShared) {
  LoopFixture fixture;
  FakeClient ann = fixture.connect(1001);
  FakeClient bob = fixture.connect(1002);
  FakeClient ann_shared = fixture.connect(1001, nullptr, false, CacheDomain(uint64_t{2} << 32));
  FakeClient bob_shared = fixture.connect(1002, nullptr, false, CacheDomain(uint64_t{2} << 32));
  const auto cached = [&](FakeClient& client) {
    const uint64_t cookie = client.submit(prompt_of(100), 2);
    fixture.run_until_idle({&client});
    EXPECT_EQ(client[cookie].ids, fake_answer(prompt_of(100), 2));
    return client[cookie].cached_tokens;
  };
  EXPECT_EQ(cached(ann), 0u);
  EXPECT_EQ(cached(bob), 0u);
  EXPECT_EQ(cached(ann_shared), 0u) << "her own prefixes are not in the shared domain";
  EXPECT_EQ(cached(bob_shared), 96u) << "whole pages";
  EXPECT_EQ(cached(ann), 96u);
}

}  // namespace
}  // namespace inferd::daemon
