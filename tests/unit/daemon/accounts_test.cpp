// Accounts: whatever comes and goes, the sums over clients, users and all come to the same.
#include "daemon/accounts.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/prng.h"

namespace inferd::daemon {
namespace {

// All sums as text: equal texts are equal sums.
std::string text_of(const AccountSums& sums) {
  std::string text;
  for (uint64_t value :
       {sums.accepted, sums.refused, sums.finished, sums.cancelled, sums.overdue, sums.failed,
        sums.hits, sums.prompt_tokens, sums.cached_tokens, sums.computed_tokens,
        sums.recomputed_tokens, sums.generated_tokens, sums.preemptions, sums.wait_ns}) {
    text += std::to_string(value) + " ";
  }
  return text;
}

scheduler::SequenceStats stats_of(Prng& prng) {
  const auto up_to = [&](uint64_t limit) { return static_cast<uint32_t>(prng.next() % limit); };
  scheduler::SequenceStats stats;
  stats.prompt_tokens = 1 + up_to(1000);
  stats.cached_tokens = up_to(2) * up_to(stats.prompt_tokens);
  stats.generated_tokens = up_to(500);
  stats.recomputed_tokens = up_to(100);
  stats.computed_tokens = stats.prompt_tokens + stats.recomputed_tokens;
  stats.preemptions = up_to(4);
  stats.queue_wait_ns = up_to(1'000'000'000);
  return stats;
}

// Sessions of more users than are remembered open, get requests done, and close, by chance. What
// each user and all together should have is counted beside.
TEST(Accounts, SumsOverSessionsAndUsersAddUpWhateverIsForgotten) {
  constexpr uint32_t kUsers = 3 * kDepartedUsersMax;
  Prng prng(11);
  Accounts accounts;
  std::map<uint64_t, SessionAccount*> open;
  AccountSums total;
  std::map<uint64_t, AccountSums> of_session;
  std::map<uint64_t, UserId> owner;
  for (uint64_t round = 1; round <= 4000; ++round) {
    const uint64_t choice = prng.next() % 8;
    if (open.empty() || choice == 0) {
      owner[round] = UserId(static_cast<uint32_t>(prng.next() % kUsers));
      open[round] = &accounts.open_session(SessionId(round), owner[round]);
    } else if (choice == 1) {
      accounts.close_session(*open.begin()->second);
      open.erase(open.begin());
    } else {
      auto place = open.begin();
      std::advance(place, prng.next() % open.size());
      Account& account = place->second->account;
      Account expected;
      for (Account* one : {&account, &expected}) ++one->sums.accepted;
      const scheduler::SequenceStats stats = stats_of(prng);
      const auto outcome = static_cast<Outcome>(prng.next() % 4);
      account.end(stats, 5, outcome);
      account.ttft.add(1000);
      expected.end(stats, 5, outcome);
      total.add(expected.sums);
      of_session[place->first].add(expected.sums);
    }
  }
  const AccountsSnapshot snapshot = accounts.snapshot({}, {});
  EXPECT_EQ(text_of(snapshot.total.sums), text_of(total));
  EXPECT_EQ(text_of(accounts.sums()), text_of(total));
  EXPECT_EQ(snapshot.total.ttft.count, total.accepted);
  EXPECT_EQ(snapshot.total.wait.count, total.accepted);
  AccountSums over_users = snapshot.others.figures.sums;
  std::map<uint32_t, uint32_t> sessions_of;
  for (const UserFigures& user : snapshot.users) {
    over_users.add(user.figures.sums);
    sessions_of[user.user.value] = user.sessions;
  }
  EXPECT_EQ(text_of(over_users), text_of(total));
  EXPECT_GT(snapshot.others.figures.sums.accepted, 0u) << "nobody was forgotten: too few users";
  ASSERT_EQ(snapshot.sessions.size(), open.size());
  for (const SessionFigures& session : snapshot.sessions) {
    EXPECT_EQ(text_of(session.figures.sums), text_of(of_session[session.session.value]));
    EXPECT_EQ(session.user, owner[session.session.value]);
    --sessions_of[session.user.value];
  }
  uint32_t departed = 0;
  for (const UserFigures& user : snapshot.users) {
    EXPECT_EQ(sessions_of[user.user.value], 0u);
    departed += user.sessions == 0 ? 1 : 0;
  }
  EXPECT_LE(departed, kDepartedUsersMax);
  EXPECT_GT(departed, kDepartedUsersMax / 2) << "nobody is forgotten for nothing";
}

TEST(Accounts, AUsersFiguresAreThoseOfItsSessionsPresentAndPast) {
  Accounts accounts;
  SessionAccount& first = accounts.open_session(SessionId(1), UserId(7));
  SessionAccount& second = accounts.open_session(SessionId(2), UserId(7));
  accounts.open_session(SessionId(3), UserId(8));
  first.account.sums.refused = 3;
  first.account.itl.add(2'000'000);
  second.account.sums.refused = 4;
  second.account.itl.add(8'000'000);
  for (bool closed : {false, true}) {
    if (closed) accounts.close_session(first);
    const AccountsSnapshot snapshot = accounts.snapshot({}, {});
    ASSERT_EQ(snapshot.users.size(), 2u);
    EXPECT_EQ(snapshot.users[0].sessions, closed ? 1u : 2u);
    EXPECT_EQ(snapshot.users[0].figures.sums.refused, 7u);
    EXPECT_EQ(snapshot.users[0].figures.itl.count, 2u);
    EXPECT_EQ(snapshot.users[0].figures.itl.mean_ns, 5'000'000);
    EXPECT_EQ(snapshot.users[1].figures.sums.refused, 0u);
    EXPECT_EQ(snapshot.sessions.size(), closed ? 2u : 3u);
  }
}

TEST(Accounts, LiveSequencesAreAddedToWhatIsToldAndNotToWhatIsKept) {
  Accounts accounts;
  accounts.open_session(SessionId(1), UserId(7));
  scheduler::SequenceInfo info;
  info.sequence = SequenceId(1);
  info.session = SessionId(1);
  info.user = UserId(7);
  info.pages = PageCount(3);
  info.stats.prompt_tokens = 40;
  info.stats.computed_tokens = 16;
  info.stats.queue_wait_ns = 100;
  info.waiting_ns = 11;
  for (int repeat = 0; repeat < 2; ++repeat) {
    const AccountsSnapshot snapshot = accounts.snapshot(std::span(&info, 1), {});
    EXPECT_EQ(snapshot.sessions[0].figures.sums.computed_tokens, 16u);
    EXPECT_EQ(snapshot.sessions[0].figures.pages.value, 3u);
    EXPECT_EQ(snapshot.users[0].figures.sums.wait_ns, 111u);
    EXPECT_EQ(snapshot.users[0].figures.sequences, 1u);
    EXPECT_EQ(snapshot.total.sums.prompt_tokens, 40u);
    EXPECT_EQ(snapshot.total.wait.count, 0u) << "it has not ended";
  }
}

TEST(Accounts, TheMostPagesOfAStepAreRemembered) {
  Accounts accounts;
  SessionAccount& session = accounts.open_session(SessionId(1), UserId(7));
  accounts.begin_step();
  accounts.note_pages(session, PageCount(4), PageCount(9));
  accounts.note_pages(session, PageCount(5), PageCount(9));
  accounts.begin_step();
  accounts.note_pages(session, PageCount(6), PageCount(6));
  const memory::UserCharge charge{UserId(7), PageCount(2)};
  const AccountsSnapshot snapshot = accounts.snapshot({}, std::span(&charge, 1));
  EXPECT_EQ(snapshot.sessions[0].figures.pages_most.value, 9u);
  EXPECT_EQ(snapshot.users[0].figures.pages_most.value, 9u);
  EXPECT_EQ(snapshot.users[0].figures.pages.value, 2u);
  EXPECT_EQ(snapshot.total.pages.value, 2u);
}

}  // namespace
}  // namespace inferd::daemon
