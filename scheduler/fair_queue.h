// Whose turn it is: fair service between users by weight, then between the sessions of one user, within
// each priority class.
// Owner: Scheduler. Engine thread only. Must not know pages, tokens or steps; it knows costs.
//
// Start-time fair queueing with the idle rule of a virtual token counter (Sheng et al. 2024, "Fairness in
// Serving Large Language Models"). Every account has a virtual time: the cost charged to it, over its
// weight. Service always goes to the account that is furthest behind.
//
//  1. An account that wanted more than it got in the last step is backlogged. Between two users f and g
//     of a class who are backlogged all the while, the one behind is served first, but that decodes may
//     run up to a step ahead of prefills. So in any interval, with W the cost served over the weight,
//       |W_f - W_g| <= 2 max(w_p L, w_q M):
//     L the longest sequence and M a step in tokens, w_p = 1 and w_q = 2 the cost of a token of prefill
//     and of a decoded one. Where sequences or pages are what lacks, and not turns, somebody must be L
//     or M behind before others make way (Scheduler::owes), a step late: 2 w_p M more, as long as
//     there is somebody who can.
//  2. The group's time is that of its backlogged account furthest behind; if there is none, that of the
//     account furthest ahead: where nobody lacked anything, nothing is owed.
//  3. An account that is not backlogged is raised to the group's time: who was idle, or asked for little,
//     has saved nothing up. It is never lowered: who was served beyond its share goes on owing it.
//  4. A session that closes is remembered as long as it is ahead, so that coming back under a new number
//     gains nothing against sessions of other users (the user's account stays), and leaving loses nothing.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "scheduler/request.h"

namespace inferd::scheduler {

// Virtual time of one unit of cost at the default weight.
inline constexpr uint64_t kCostTime = 1024;

// A user within a class, or a session of such a user (a lane).
struct FairAccount {
  uint64_t key = 0;      // user id, or session id
  uint32_t owner = 0;    // index of the class, or of the user's account
  uint32_t members = 0;  // open lanes of a user, open requests of a lane; 0: closed
  uint32_t weight = kWeightDefault;
  bool used = false;
  bool backlogged = false;
  bool unserved = false;   // in the step being planned
  uint64_t time = 0;       // cost charged, over the weight
  uint64_t pending = 0;    // of the step being planned
  uint64_t now() const { return time + pending; }
};

class FairQueue {
 public:
  FairQueue() = default;

  // The lane of a session's requests of one class, made if there is none; one request more in it. The
  // weight is the user's from now on. Allocates. Pair with close(), one request less.
  uint32_t open(PriorityClass priority, UserId user, SessionId session, uint32_t weight);
  void close(uint32_t lane);

  // Adds cost to the lane and its user for the time being, until all that is forgotten.
  void expect(uint32_t lane, uint64_t cost, int32_t nice);
  void forget_expected();
  // What a cost counts at a nice, and how far such cost takes the lane's user on (rounded down).
  static uint64_t nice_cost(uint64_t cost, int32_t nice);
  uint64_t user_time(uint32_t lane, uint64_t nice_cost) const;
  // Adds cost for good.
  void charge(uint32_t lane, uint64_t cost, int32_t nice);
  // The lane has work that this step leaves undone.
  void note_unserved(uint32_t lane);
  // The step is planned: raises those that are not backlogged, moves the groups' times on.
  void end_step();

  uint32_t lane_count() const { return static_cast<uint32_t>(lanes_.size()); }
  const FairAccount& lane(uint32_t lane) const { return lanes_[lane]; }
  const FairAccount& user_of(uint32_t lane) const { return users_[lanes_[lane].owner]; }
  uint32_t user_index(uint32_t lane) const { return lanes_[lane].owner; }
  uint32_t user_count() const { return static_cast<uint32_t>(users_.size()); }
  PriorityClass class_of(uint32_t lane) const {
    return static_cast<PriorityClass>(users_[lanes_[lane].owner].owner);
  }

  // Members are counted right, and nothing is pending outside of a plan.
  Result<void> verify() const;

 private:
  friend class Turns;

  uint32_t find_user(PriorityClass priority, UserId user);
  void advance(std::vector<FairAccount>& accounts, std::vector<uint64_t>& group_times);

  std::vector<FairAccount> users_;
  std::vector<FairAccount> lanes_;
  std::vector<uint64_t> class_times_ = std::vector<uint64_t>(kPriorityClasses, 0);
  std::vector<uint64_t> user_times_;  // [users_]: time of the group of a user's lanes
  std::vector<uint64_t> behind_;      // scratch of advance(), by group
  std::vector<uint64_t> ahead_;
};

// The order in which lanes get their turns: the user furthest behind first, of that user the lane furthest
// behind; ties by the age of what the lane has next.
// Owner: Scheduler, which reuses it. Allocates nothing once it has seen as many lanes.
class Turns {
 public:
  explicit Turns(const FairQueue& queue) : queue_(queue) {}

  // Afresh: clear(), add() for each lane with something to serve (`arrival` of the first thing; each
  // lane once), start(). Then turns.
  void clear();
  void add(uint32_t lane, uint64_t arrival);
  void start();
  bool empty() const { return users_.empty(); }
  // Whose turn it is; not empty.
  uint32_t lane() const;
  // It had its turn and its times may have grown; `arrival` of what it has next.
  void requeue(uint64_t arrival);
  // It has nothing left.
  void remove();

 private:
  struct Entry {
    uint64_t time = 0;
    uint64_t arrival = 0;
    uint32_t index = 0;
    // For a heap with the smallest on top.
    bool operator<(const Entry& other) const {
      if (time != other.time) return time > other.time;
      if (arrival != other.arrival) return arrival > other.arrival;
      return index > other.index;
    }
  };
  void push_user(uint32_t user);
  void pop_user();

  const FairQueue& queue_;
  std::vector<Entry> users_;               // a heap
  std::vector<std::vector<Entry>> lanes_;  // [user accounts], each a heap
  std::vector<uint32_t> touched_;          // users with an entry in lanes_
};

}  // namespace inferd::scheduler
