#include "scheduler/fair_queue.h"

#include <algorithm>
#include <string>

#include "base/check.h"

namespace inferd::scheduler {

namespace {

// Accounts beyond this many that owe nothing are looked for before the table grows.
constexpr size_t kAccountsKept = 64;

// 1.25^nice in 1/1024: a step of nice is a quarter more or less cost, as in Linux' CFS.
constexpr uint64_t kNiceUnit = 1024;
constexpr std::array<uint32_t, 40> kNiceCost = {
    12,   15,   18,   23,   29,    36,    45,    56,    70,    88,    110,   137,   172,   215,
    268,  336,  419,  524,  655,   819,   1024,  1280,  1600,  2000,  2500,  3125,  3906,  4883,
    6104, 7629, 9537, 11921, 14901, 18626, 23283, 29104, 36380, 45475, 56843, 71054};

uint64_t virtual_cost(uint64_t cost, uint32_t weight, int32_t nice) {
  return FairQueue::nice_cost(cost, nice) * kWeightDefault / weight;
}

// An account that may go: closed, and not ahead of its group.
bool forgettable(const FairAccount& account, uint64_t group_time) {
  return account.used && account.members == 0 && account.time <= group_time;
}

uint32_t free_account(std::vector<FairAccount>& accounts) {
  for (uint32_t index = 0; index < accounts.size(); ++index) {
    if (!accounts[index].used) return index;
  }
  accounts.emplace_back();
  return static_cast<uint32_t>(accounts.size() - 1);
}

}  // namespace

uint32_t FairQueue::find_user(PriorityClass priority, UserId user) {
  const auto owner = static_cast<uint32_t>(priority);
  for (uint32_t index = 0; index < users_.size(); ++index) {
    FairAccount& account = users_[index];
    if (!account.used || account.owner != owner || account.key != user.value) continue;
    if (account.members == 0) account.time = std::max(account.time, class_times_[owner]);
    return index;
  }
  if (users_.size() >= kAccountsKept) {
    for (uint32_t index = 0; index < users_.size(); ++index) {
      if (!forgettable(users_[index], class_times_[users_[index].owner])) continue;
      for (FairAccount& lane : lanes_) {
        if (lane.used && lane.owner == index) lane = FairAccount{};
      }
      users_[index] = FairAccount{};
    }
  }
  const uint32_t index = free_account(users_);
  user_times_.resize(users_.size(), 0);
  user_times_[index] = 0;
  FairAccount& account = users_[index];
  account.used = true;
  account.key = user.value;
  account.owner = owner;
  account.time = class_times_[owner];
  return index;
}

uint32_t FairQueue::open(PriorityClass priority, UserId user, SessionId session, uint32_t weight) {
  INFERD_CHECK(weight > 0);
  const uint32_t owner = find_user(priority, user);
  users_[owner].weight = weight;
  for (uint32_t index = 0; index < lanes_.size(); ++index) {
    FairAccount& account = lanes_[index];
    if (!account.used || account.owner != owner || account.key != session.value) continue;
    if (account.members++ == 0) {
      ++users_[owner].members;
      account.time = std::max(account.time, user_times_[owner]);
    }
    return index;
  }
  if (lanes_.size() >= kAccountsKept) {
    for (FairAccount& lane : lanes_) {
      if (forgettable(lane, user_times_[lane.owner])) lane = FairAccount{};
    }
  }
  const uint32_t index = free_account(lanes_);
  FairAccount& account = lanes_[index];
  account.used = true;
  account.key = session.value;
  account.owner = owner;
  account.members = 1;
  account.time = user_times_[owner];
  ++users_[owner].members;
  return index;
}

void FairQueue::close(uint32_t lane) {
  FairAccount& account = lanes_[lane];
  INFERD_CHECK(account.used && account.members > 0);
  if (--account.members > 0) return;
  account.backlogged = false;
  FairAccount& user = users_[account.owner];
  INFERD_CHECK(user.members > 0);
  if (--user.members == 0) user.backlogged = false;
}

uint64_t FairQueue::nice_cost(uint64_t cost, int32_t nice) {
  return cost * kCostTime * kNiceCost[static_cast<size_t>(std::clamp(nice, -20, 19) + 20)] / kNiceUnit;
}

uint64_t FairQueue::user_time(uint32_t lane, uint64_t nice_cost) const {
  return nice_cost * kWeightDefault / user_of(lane).weight;
}

void FairQueue::expect(uint32_t lane, uint64_t cost, int32_t nice) {
  FairAccount& account = lanes_[lane];
  FairAccount& user = users_[account.owner];
  account.pending += virtual_cost(cost, kWeightDefault, nice);
  user.pending += virtual_cost(cost, user.weight, nice);
}

void FairQueue::forget_expected() {
  for (FairAccount& account : lanes_) account.pending = 0;
  for (FairAccount& account : users_) account.pending = 0;
}

void FairQueue::charge(uint32_t lane, uint64_t cost, int32_t nice) {
  FairAccount& account = lanes_[lane];
  FairAccount& user = users_[account.owner];
  account.time += virtual_cost(cost, kWeightDefault, nice);
  user.time += virtual_cost(cost, user.weight, nice);
}

void FairQueue::note_unserved(uint32_t lane) {
  lanes_[lane].unserved = true;
  users_[lanes_[lane].owner].unserved = true;
}

void FairQueue::end_step() {
  advance(lanes_, user_times_);
  advance(users_, class_times_);
}

// Rules 2 and 3 of the header, for all groups at once.
void FairQueue::advance(std::vector<FairAccount>& accounts, std::vector<uint64_t>& group_times) {
  constexpr uint64_t kNone = UINT64_MAX;
  behind_.assign(group_times.size(), kNone);
  ahead_.assign(group_times.size(), 0);
  for (FairAccount& account : accounts) {
    account.backlogged = account.unserved;
    account.unserved = false;
    if (account.members == 0) continue;
    uint64_t& behind = behind_[account.owner];
    if (account.backlogged) behind = std::min(behind, account.time);
    ahead_[account.owner] = std::max(ahead_[account.owner], account.time);
  }
  for (size_t group = 0; group < group_times.size(); ++group) {
    const uint64_t time = behind_[group] != kNone ? behind_[group] : ahead_[group];
    group_times[group] = std::max(group_times[group], time);
  }
  for (FairAccount& account : accounts) {
    if (account.members == 0 || account.backlogged) continue;
    account.time = std::max(account.time, group_times[account.owner]);
  }
}

Result<void> FairQueue::verify() const {
  const auto violation = [](const std::string& text) {
    return Error(ErrorCode::kInternal, "fair queue: " + text);
  };
  std::vector<uint32_t> open_lanes(users_.size(), 0);
  for (const FairAccount& lane : lanes_) {
    if (!lane.used) continue;
    if (lane.owner >= users_.size() || !users_[lane.owner].used) {
      return violation("session " + std::to_string(lane.key) + " belongs to no user");
    }
    if (lane.members > 0) ++open_lanes[lane.owner];
    if (lane.pending != 0) return violation("a session's expected cost was not forgotten");
  }
  for (size_t index = 0; index < users_.size(); ++index) {
    if (users_[index].members != open_lanes[index]) {
      return violation("user " + std::to_string(users_[index].key) + " counts " +
                       std::to_string(users_[index].members) + " sessions, but " +
                       std::to_string(open_lanes[index]) + " are open");
    }
    if (users_[index].pending != 0) return violation("a user's expected cost was not forgotten");
  }
  return {};
}

// ---- turns ----

void Turns::clear() {
  for (uint32_t user : touched_) lanes_[user].clear();
  touched_.clear();
  users_.clear();
}

void Turns::add(uint32_t lane, uint64_t arrival) {
  if (lanes_.size() < queue_.user_count()) lanes_.resize(queue_.user_count());
  const uint32_t user = queue_.user_index(lane);
  if (lanes_[user].empty()) touched_.push_back(user);
  lanes_[user].push_back({queue_.lane(lane).now(), arrival, lane});
}

void Turns::start() {
  for (uint32_t user : touched_) {
    std::make_heap(lanes_[user].begin(), lanes_[user].end());
    push_user(user);
  }
}

uint32_t Turns::lane() const {
  INFERD_DCHECK(!users_.empty());
  return lanes_[users_.front().index].front().index;
}

void Turns::requeue(uint64_t arrival) {
  const uint32_t user = users_.front().index;
  std::vector<Entry>& lanes = lanes_[user];
  std::pop_heap(lanes.begin(), lanes.end());
  lanes.back().time = queue_.lane(lanes.back().index).now();
  lanes.back().arrival = arrival;
  std::push_heap(lanes.begin(), lanes.end());
  pop_user();
  push_user(user);
}

void Turns::remove() {
  const uint32_t user = users_.front().index;
  std::vector<Entry>& lanes = lanes_[user];
  std::pop_heap(lanes.begin(), lanes.end());
  lanes.pop_back();
  pop_user();
  if (!lanes.empty()) push_user(user);
}

void Turns::push_user(uint32_t user) {
  users_.push_back({queue_.users_[user].now(), lanes_[user].front().arrival, user});
  std::push_heap(users_.begin(), users_.end());
}

void Turns::pop_user() {
  std::pop_heap(users_.begin(), users_.end());
  users_.pop_back();
}

}  // namespace inferd::scheduler
