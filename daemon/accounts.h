// What each client and each user asked for, was given, and how long it took.
// Owner: StepLoop. Engine thread only; figures are values. Must not know rings or plans.
//
// Three levels, and nothing is counted on two of them, so that sums always add up: a connected
// client's own account; its user's, which takes in those of clients that have left; and one for all
// users who have left so long ago that they are forgotten. What a sequence came to is entered when
// it ends; while it lives, its scheduler's figures are added to what is told.
//
// Opening an account allocates (some 11 KiB), closing one a little; entering figures never does.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <vector>

#include "base/ids.h"
#include "daemon/histogram.h"
#include "memory/charge_table.h"
#include "scheduler/request.h"

namespace inferd::daemon {

// Users without a client that are remembered; beyond, the one that left first is forgotten.
inline constexpr uint32_t kDepartedUsersMax = 64;

// How a sequence ended.
enum class Outcome : uint8_t {
  kFinished = 0,   // by itself, or its client found a stop text
  kCancelled = 1,  // by its client or an administrator; or its client went away
  kOverdue = 2,    // it had not started when its deadline came
  kFailed = 3,     // with an error
};

struct AccountSums {
  uint64_t accepted = 0;  // requests; those below that ended are among them
  uint64_t refused = 0;
  uint64_t finished = 0;
  uint64_t cancelled = 0;
  uint64_t overdue = 0;
  uint64_t failed = 0;
  uint64_t hits = 0;  // requests of whose prompt the cache, or a parent, had something
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
  uint64_t computed_tokens = 0;
  uint64_t recomputed_tokens = 0;  // of the computed ones, those lost by preemption before
  uint64_t generated_tokens = 0;
  uint64_t preemptions = 0;
  uint64_t wait_ns = 0;  // without pages, in the queue or preempted

  void add(const AccountSums& other);
  // What a sequence came to so far.
  void add(const scheduler::SequenceStats& stats, int64_t waiting_ns);
};

struct Account {
  AccountSums sums;
  Histogram wait;  // of requests that ended: all that they waited
  Histogram ttft;  // submission drained to first token
  Histogram itl;   // between tokens of a sequence

  void add(const Account& other);
  // `waiting_ns`: of the wait in which it ended; 0 if it ran.
  void end(const scheduler::SequenceStats& stats, int64_t waiting_ns, Outcome outcome);
};

struct UserAccount {
  UserId user;
  Account departed;  // of clients that have left
  uint32_t sessions = 0;
  PageCount pages_most;  // charged to it, over all steps
  uint64_t noted_step = 0;
};

// Of one client. The step loop writes into `account`.
struct SessionAccount {
  SessionId session;
  UserAccount* user = nullptr;
  Account account;
  PageCount pages;  // in tables, of the step noted last
  PageCount pages_most;
  uint64_t noted_step = 0;
};

// How an account stands, live sequences included.
struct AccountFigures {
  AccountSums sums;
  TimeFigures wait;
  TimeFigures ttft;
  TimeFigures itl;
  uint32_t sequences = 0;  // that run or wait
  PageCount pages;         // a client's: in its tables; a user's: charged to it
  PageCount pages_most;
};
struct SessionFigures {
  SessionId session;
  UserId user;
  AccountFigures figures;
};
struct UserFigures {
  UserId user;
  uint32_t sessions = 0;
  AccountFigures figures;
  Account account;  // its histograms in full
};
struct AccountsSnapshot {
  std::vector<UserFigures> users;        // by id
  std::vector<SessionFigures> sessions;  // by id
  UserFigures others;                    // all that were forgotten; no user
  AccountFigures total;
};

class Accounts {
 public:
  // A client connected. The reference holds until close_session().
  SessionAccount& open_session(SessionId session, UserId user);
  void close_session(SessionAccount& session);

  // What the running sequences hold in a step: begin, then each of them.
  void begin_step() { ++step_; }
  void note_pages(SessionAccount& session, PageCount in_table, PageCount charged_to_user);

  // How all accounts stand, given the sequences that live and what is charged to whom.
  AccountsSnapshot snapshot(std::span<const scheduler::SequenceInfo> live,
                            std::span<const memory::UserCharge> charges) const;
  // All sums together, live sequences left out.
  AccountSums sums() const;

 private:
  void forget_longest_gone();

  std::map<SessionId, SessionAccount> sessions_;
  std::map<UserId, UserAccount> users_;
  std::list<UserId> departed_;  // users without a client, who left first in front
  Account others_;
  uint64_t step_ = 0;
};

}  // namespace inferd::daemon
