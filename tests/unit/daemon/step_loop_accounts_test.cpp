// The accounts of a running loop: however requests end, they come to what was counted beside them.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/unit/daemon/loop_fixture.h"

namespace inferd::daemon {
namespace {

const UserFigures& user(const AccountsSnapshot& accounts, uint32_t uid) {
  for (const UserFigures& one : accounts.users) {
    if (one.user == UserId(uid)) return one;
  }
  ADD_FAILURE() << "no user " << uid;
  return accounts.users.front();
}

void expect_verified(const LoopFixture& fixture) {
  const Result<void> verified = fixture.loop->verify();
  EXPECT_TRUE(verified.ok()) << verified.error().message();
}

// Ends of all kinds: by themselves, cancelled, cut at a stop text, refused, overdue, failed, and
// with their client. After each turn, verify() holds the accounts to the scheduler's own counts.
TEST(StepLoopAccounts, EveryEndIsEnteredOnceWithItsUserAndItsSession) {
  LoopFixture fixture({.pages = 40, .sequences_max = 4});
  FakeClient ann = fixture.connect(1001);
  FakeClient bob = fixture.connect(1002);
  FakeClient also_bob = fixture.connect(1002);
  const SessionId last = fixture.last_session();
  const auto turn = [&] {
    fixture.clock.advance_ns(1'000'000);
    fixture.loop->turn(false);
    for (FakeClient* client : {&ann, &bob, &also_bob}) client->read();
    expect_verified(fixture);
  };
  ann.submit(prompt_of(20), 5);
  const uint64_t cancelled = ann.submit(prompt_of(30, 2), ipc::kUnlimitedTokens);
  const uint64_t cut = bob.submit(prompt_of(10, 3), ipc::kUnlimitedTokens);
  ipc::SubmitRecord late = ipc::good_submission(900, 10);
  late.deadline_ms = 1;
  also_bob.submit(prompt_of(300, 4), ipc::kUnlimitedTokens);
  also_bob.submit(prompt_of(300, 5), ipc::kUnlimitedTokens);
  also_bob.submit(late, prompt_of(300, 6));
  also_bob.submit({1000}, 5);
  for (int i = 0; i < 10; ++i) turn();
  ann.cancel(cancelled);
  bob.truncate(cut, 2);
  turn();
  AccountsSnapshot accounts = fixture.loop->accounts();
  const AccountSums& of_ann = user(accounts, 1001).figures.sums;
  EXPECT_EQ(of_ann.accepted, 2u);
  EXPECT_EQ(of_ann.finished, 1u);
  EXPECT_EQ(of_ann.cancelled, 1u);
  EXPECT_EQ(of_ann.prompt_tokens, 50u);
  const AccountSums& of_bob = user(accounts, 1002).figures.sums;
  EXPECT_EQ(of_bob.accepted, 4u);
  EXPECT_EQ(of_bob.refused, 1u);
  EXPECT_EQ(of_bob.finished, 1u) << "its client found a stop text";
  EXPECT_EQ(of_bob.overdue, 1u);
  EXPECT_EQ(user(accounts, 1002).sessions, 2u);
  EXPECT_GT(user(accounts, 1002).figures.pages_most.value, 18u);

  fixture.loop->remove_session(last);
  expect_verified(fixture);
  accounts = fixture.loop->accounts();
  EXPECT_EQ(user(accounts, 1002).figures.sums.cancelled, 2u) << "with their client";
  EXPECT_EQ(user(accounts, 1002).sessions, 1u);
  EXPECT_EQ(accounts.sessions.size(), 2u);
  fixture.run_until_idle({&ann, &bob});
}

TEST(StepLoopAccounts, AFailedRequestAndASessionThatIsEndedAreEnteredOnce) {
  LoopFixture fixture;
  FakeClient ann = fixture.connect(1001);
  FakeClient bob = fixture.connect(1002);
  ipc::SubmitRecord record = ipc::good_submission(1, 8);
  record.bias_count = kFakeVocabulary;
  record.bias_offset = 4096;
  std::vector<ipc::LogitBiasEntry> all;
  for (TokenId id = 0; id < static_cast<TokenId>(kFakeVocabulary); ++id)
    all.push_back({id, -HUGE_VALF});
  std::memcpy(ann.raw->arena + 4096, all.data(), all.size() * sizeof(all[0]));
  ann.submit(record, prompt_of(8));
  bob.submit(prompt_of(40), ipc::kUnlimitedTokens);
  for (int i = 0; i < 5; ++i) fixture.loop->turn(false);
  ipc::CancelRecord wrong{{ipc::kCancel, 1, 0, 0xffff, 1}, {}};
  bob.put(wrong);
  fixture.clock.advance_ns(1);
  fixture.loop->turn(false);
  EXPECT_EQ(fixture.loop->counters().sessions_broken, 1u);
  expect_verified(fixture);
  const AccountsSnapshot accounts = fixture.loop->accounts();
  EXPECT_EQ(user(accounts, 1001).figures.sums.failed, 1u);
  EXPECT_EQ(user(accounts, 1002).figures.sums.cancelled, 1u);
  EXPECT_EQ(user(accounts, 1002).sessions, 0u);
}

// Little memory: requests wait, are preempted and compute again.
TEST(StepLoopAccounts, TimesAndTokensOfAllUsersComeToTheLoopsOwn) {
  LoopFixture fixture({.pages = 24, .sequences_max = 4});
  std::vector<FakeClient> clients;
  for (uint32_t i = 0; i < 6; ++i) clients.push_back(fixture.connect(2000 + i % 3));
  std::vector<FakeClient*> all;
  for (FakeClient& client : clients) all.push_back(&client);
  for (TokenId i = 0; i < 6; ++i) {
    for (TokenId k = 0; k < 3; ++k) {
      clients[static_cast<size_t>(i)].submit(prompt_of(60, i + 10 * k), 80, ipc::kSubmitIgnoreEos);
    }
  }
  fixture.run_until_idle(all);
  const AccountsSnapshot accounts = fixture.loop->accounts();
  const LoopCounters& loop = fixture.loop->counters();
  const AccountSums& total = accounts.total.sums;
  EXPECT_EQ(total.finished, 18u);
  EXPECT_GT(total.preemptions, 0u);
  EXPECT_GT(total.recomputed_tokens, 0u);
  EXPECT_GT(total.wait_ns, 0u);
  AccountSums over_users;
  Histogram ttft;
  Histogram itl;
  for (const UserFigures& one : accounts.users) {
    AccountSums over_sessions;
    uint64_t waits = 0;
    for (const SessionFigures& session : accounts.sessions) {
      if (session.user != one.user) continue;
      over_sessions.add(session.figures.sums);
      waits += session.figures.wait.count;
    }
    EXPECT_EQ(over_sessions.computed_tokens, one.figures.sums.computed_tokens);
    EXPECT_EQ(over_sessions.generated_tokens, 6u * 80);
    EXPECT_EQ(over_sessions.wait_ns, one.figures.sums.wait_ns);
    EXPECT_EQ(waits, one.figures.wait.count);
    over_users.add(one.figures.sums);
    ttft.merge(one.account.ttft);
    itl.merge(one.account.itl);
  }
  const scheduler::SchedulerStats stats = fixture.scheduler.stats();
  EXPECT_EQ(over_users.computed_tokens, stats.computed_tokens);
  EXPECT_EQ(over_users.recomputed_tokens, stats.recomputed_tokens);
  EXPECT_EQ(over_users.cached_tokens, stats.cached_tokens);
  EXPECT_EQ(over_users.preemptions, stats.preemptions);
  EXPECT_EQ(ttft.count(), loop.ttft.count());
  EXPECT_EQ(ttft.sum_ns(), loop.ttft.sum_ns());
  EXPECT_EQ(itl.sum_ns(), loop.itl.sum_ns());
  EXPECT_EQ(itl.quantile_ns(0.99), loop.itl.quantile_ns(0.99));
  EXPECT_EQ(ttft.count() + itl.count(), loop.tokens_published);
  const PressureFigures pressure = fixture.loop->snapshot().pressure;
  EXPECT_GT(pressure.pages_some.total_ns, 0u);
  EXPECT_GE(pressure.pages_some.total_ns, pressure.pages_full.total_ns);
}

TEST(StepLoopAccounts, AnInteractiveAnswerIsLateOnceItsTokenWasDue) {
  constexpr int64_t kMillisecondNs = 1'000'000;
  LoopFixture fixture;
  FakeClient client = fixture.connect();
  int64_t step_ns = 20 * kMillisecondNs;
  fixture.engine.on_run = [&](const scheduler::BatchPlan&) { fixture.clock.advance_ns(step_ns); };
  const auto late_ns = [&] { return fixture.loop->snapshot().pressure.compute_full.total_ns; };
  const auto turns = [&](int count) {
    for (int i = 0; i < count; ++i) {
      fixture.loop->turn(false);
      client.read();
    }
  };
  client.submit(prompt_of(10), ipc::kUnlimitedTokens, ipc::kSubmitIgnoreEos);
  turns(5);
  EXPECT_EQ(late_ns(), 0u) << "20 ms a token, with a target of 50 ms";
  step_ns = 70 * kMillisecondNs;
  turns(3);
  EXPECT_EQ(late_ns(), 3u * 20 * kMillisecondNs);
  const SequenceId id(client[1].sequence_id);
  ASSERT_TRUE(fixture.loop->renice_sequence(id, {scheduler::PriorityClass::kBatch, {}}, {}).ok());
  turns(3);
  EXPECT_EQ(late_ns(), 3u * 20 * kMillisecondNs) << "nobody waits for each token of a batch answer";
}

TEST(StepLoopAccounts, AClientThatDidNotReadIsNotServedLate) {
  LoopFixture fixture;
  ipc::Geometry small;
  small.completion_slots = ipc::kRingSlotsMin;
  FakeClient client = fixture.connect(1000, &small);
  client.submit(prompt_of(10), ipc::kUnlimitedTokens, ipc::kSubmitIgnoreEos);
  uint32_t turns = 0;
  while (fixture.loop->snapshot().sessions[0].stalled == false && ++turns < 1000) {
    fixture.clock.advance_ns(1'000'000);
    fixture.loop->turn(false);
  }
  ASSERT_LT(turns, 1000u);
  fixture.clock.advance_ns(1'000'000'000);
  client.read();
  for (int i = 0; i < 3; ++i) {
    fixture.clock.advance_ns(1'000'000);
    fixture.loop->turn(false);
    client.read();
  }
  EXPECT_GT(fixture.loop->counters().itl.longest_ns(), 1'000'000'000) << "so it was paused";
  EXPECT_EQ(fixture.loop->snapshot().pressure.compute_full.total_ns, 0u);
}

}  // namespace
}  // namespace inferd::daemon
