#include "daemon/accounts.h"

#include <algorithm>

#include "base/check.h"

namespace inferd::daemon {

namespace {

void digest(const Account& account, AccountFigures& figures) {
  figures.sums = account.sums;
  figures.wait = figures_of(account.wait);
  figures.ttft = figures_of(account.ttft);
  figures.itl = figures_of(account.itl);
}

}  // namespace

void AccountSums::add(const AccountSums& other) {
  accepted += other.accepted;
  refused += other.refused;
  finished += other.finished;
  cancelled += other.cancelled;
  overdue += other.overdue;
  failed += other.failed;
  hits += other.hits;
  prompt_tokens += other.prompt_tokens;
  cached_tokens += other.cached_tokens;
  computed_tokens += other.computed_tokens;
  recomputed_tokens += other.recomputed_tokens;
  generated_tokens += other.generated_tokens;
  preemptions += other.preemptions;
  wait_ns += other.wait_ns;
}

void AccountSums::add(const scheduler::SequenceStats& stats, int64_t waiting_ns) {
  hits += stats.cached_tokens > 0 ? 1 : 0;
  prompt_tokens += stats.prompt_tokens;
  cached_tokens += stats.cached_tokens;
  computed_tokens += stats.computed_tokens;
  recomputed_tokens += stats.recomputed_tokens;
  generated_tokens += stats.generated_tokens;
  preemptions += stats.preemptions;
  wait_ns += static_cast<uint64_t>(stats.queue_wait_ns + waiting_ns);
}

void Account::add(const Account& other) {
  sums.add(other.sums);
  wait.merge(other.wait);
  ttft.merge(other.ttft);
  itl.merge(other.itl);
}

void Account::end(const scheduler::SequenceStats& stats, int64_t waiting_ns, Outcome outcome) {
  sums.add(stats, waiting_ns);
  wait.add(stats.queue_wait_ns + waiting_ns);
  switch (outcome) {
    case Outcome::kFinished: ++sums.finished; return;
    case Outcome::kCancelled: ++sums.cancelled; return;
    case Outcome::kOverdue: ++sums.overdue; return;
    case Outcome::kFailed: ++sums.failed; return;
  }
}

SessionAccount& Accounts::open_session(SessionId session, UserId user) {
  UserAccount& owner = users_[user];
  owner.user = user;
  if (owner.sessions == 0) departed_.remove(user);
  ++owner.sessions;
  const auto [place, is_new] = sessions_.try_emplace(session);
  INFERD_CHECK(is_new);
  place->second.session = session;
  place->second.user = &owner;
  return place->second;
}

void Accounts::close_session(SessionAccount& session) {
  UserAccount& owner = *session.user;
  INFERD_CHECK(owner.sessions > 0);
  owner.departed.add(session.account);
  if (--owner.sessions == 0) departed_.push_back(owner.user);
  sessions_.erase(session.session);
  if (departed_.size() > kDepartedUsersMax) forget_longest_gone();
}

void Accounts::forget_longest_gone() {
  const auto user = users_.find(departed_.front());
  INFERD_CHECK(user != users_.end() && user->second.sessions == 0);
  others_.add(user->second.departed);
  users_.erase(user);
  departed_.pop_front();
}

void Accounts::note_pages(SessionAccount& session, PageCount in_table, PageCount charged_to_user) {
  if (session.noted_step != step_) {
    session.noted_step = step_;
    session.pages = PageCount();
  }
  session.pages += in_table;
  session.pages_most = std::max(session.pages_most, session.pages);
  session.user->pages_most = std::max(session.user->pages_most, charged_to_user);
}

AccountsSnapshot Accounts::snapshot(std::span<const scheduler::SequenceInfo> live,
                                    std::span<const memory::UserCharge> charges) const {
  struct Live {
    AccountSums sums;
    uint32_t sequences = 0;
    PageCount pages;
    void add(const scheduler::SequenceInfo& info) {
      sums.add(info.stats, info.waiting_ns);
      ++sequences;
      pages += info.pages;
    }
  };
  std::map<SessionId, Live> of_session;
  for (const scheduler::SequenceInfo& info : live) of_session[info.session].add(info);

  AccountsSnapshot snapshot;
  std::map<UserId, UserFigures> users;
  for (const auto& [id, user] : users_) {
    UserFigures& figures = users[id];
    figures.user = id;
    figures.sessions = user.sessions;
    figures.account = user.departed;
    figures.figures.pages_most = user.pages_most;
  }
  for (const auto& [id, session] : sessions_) {
    const Live& now = of_session[id];
    SessionFigures figures;
    figures.session = id;
    figures.user = session.user->user;
    digest(session.account, figures.figures);
    figures.figures.sums.add(now.sums);
    figures.figures.sequences = now.sequences;
    figures.figures.pages = now.pages;
    figures.figures.pages_most = std::max(session.pages_most, now.pages);
    snapshot.sessions.push_back(figures);
    UserFigures& user = users[figures.user];
    user.account.add(session.account);
    user.account.sums.add(now.sums);
    user.figures.sequences += now.sequences;
  }
  for (const memory::UserCharge& charge : charges) {
    const auto user = users.find(charge.user);
    if (charge.pages.value == 0 || user == users.end()) continue;
    AccountFigures& figures = user->second.figures;
    figures.pages = charge.pages;
    figures.pages_most = std::max(figures.pages_most, charge.pages);
  }
  Account total = others_;
  for (auto& [id, user] : users) {
    total.add(user.account);
    snapshot.total.sequences += user.figures.sequences;
    snapshot.total.pages += user.figures.pages;
    digest(user.account, user.figures);
    snapshot.users.push_back(std::move(user));
  }
  digest(total, snapshot.total);
  snapshot.others.account = others_;
  digest(others_, snapshot.others.figures);
  return snapshot;
}

AccountSums Accounts::sums() const {
  AccountSums sums = others_.sums;
  for (const auto& [id, user] : users_) sums.add(user.departed.sums);
  for (const auto& [id, session] : sessions_) sums.add(session.account.sums);
  return sums;
}

}  // namespace inferd::daemon
