// What is measured while a trace is simulated: page waste, fairness, and how things went over time.
// Owner: TraceSimulation. One thread. Must not know requests' tokens or the scheduler's decisions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/paged_memory.h"
#include "scheduler/request.h"

namespace inferd::bench {

// Internal fragmentation: places for tokens in held pages that no token has. A page is counted
// once, however many sequences hold it; a page of the prefix index is full.
class WasteMeter {
 public:
  // Things are like this for so long. Between plan and commit: pages that the step writes are held.
  void add(const memory::PagedMemory& memory, int64_t time_ns);

  // 1 - tokens held / (16 * pages held), both summed over time; 0 before anything was held.
  double share() const;
  // The mean over time of that quotient at each moment when pages were held.
  double time_mean_share() const;
  // The most places without a token that any one sequence had: more than 15 would be a page too
  // many.
  uint32_t sequence_tokens_max() const { return sequence_tokens_max_; }
  uint32_t pages_max() const { return pages_max_; }
  double pages_mean() const;

 private:
  double empty_time_ = 0;   // tokens * ns
  double places_time_ = 0;  // tokens * ns
  double share_time_ = 0;   // ns
  double held_ns_ = 0;
  uint32_t sequence_tokens_max_ = 0;
  uint32_t pages_max_ = 0;
};

// Service of users, in tokens of cost over the weight, and how far apart any two of a class got
// while both lacked something: the figure that scheduler/fair_queue.h bounds.
class FairnessMeter {
 public:
  static constexpr uint32_t kUsersPaired = 64;  // pairs are watched among the first so many users

  explicit FairnessMeter(uint32_t users);

  void serve(scheduler::PriorityClass priority, uint32_t user, uint64_t cost, uint32_t weight);
  // The user has work that the step being looked at leaves undone.
  void note_lacking(scheduler::PriorityClass priority, uint32_t user);
  void end_step();

  double service(uint32_t user) const;  // of all classes
  // The largest range of a difference, over all pairs and spans.
  double apart_max() const { return apart_max_; }
  // Steps in which at least one pair lacked something.
  uint64_t contended_steps() const { return contended_steps_; }

 private:
  struct Range {
    double low = 0;
    double high = 0;
    bool open = false;
  };
  Range& range_of(size_t priority, uint32_t one, uint32_t other);

  uint32_t users_;
  uint32_t paired_;
  std::vector<double> served_;    // [classes, users]
  std::vector<uint8_t> lacking_;  // [classes, users]
  std::vector<Range> ranges_;     // [classes, paired, paired]
  double apart_max_ = 0;
  uint64_t contended_steps_ = 0;
};

// The bound of fair_queue.h, for the longest sequence that there was and steps of so many tokens.
double fair_bound(uint32_t longest_tokens, uint32_t step_tokens);

// How things stood at one moment.
struct Moment {
  double time_s = 0;
  memory::PageCounts pages{};
  uint64_t prompt_tokens = 0;  // of requests admitted so far
  uint64_t cached_tokens = 0;
  uint32_t waiting = 0;
  uint32_t running = 0;
  std::vector<double> service{};  // [users shown]
};

// Keeps a bounded number of moments, evenly over a time whose end is not known yet: when there are
// too many, every second one goes and the rest come half as often.
class MomentLog {
 public:
  static constexpr size_t kMomentsMax = 1000;

  bool due(double time_s) const { return time_s >= next_s_; }
  void add(Moment moment);
  std::span<const Moment> moments() const { return moments_; }

 private:
  std::vector<Moment> moments_;
  double interval_s_ = 0.01;
  double next_s_ = 0;
};

}  // namespace inferd::bench
