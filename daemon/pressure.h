// Pressure: for how much of the time work stood still for want of something, as the kernel's PSI
// tells it of processors and memory. Owner: StepLoop. Engine thread only; figures are values. Must
// not know requests, users or pages.
//
// Each resource has two lines. What stands still is a sequence that could go on: not paused because
// its client does not read, and not waiting for a prefix that another one computes.
//
//   pages    some  at least one has no pages: it does not fit, cannot grow, or is computing again
//                  what it lost when its pages were taken
//            full  so, and nobody else comes further in the step
//   compute  some  at least one that has what it needs gets no token in the step: others were first
//            full  an interactive answer under way is later with its next token than the latency
//                  target, for whatever reason but its client's
//
// A line has a total, and shares of the last 10, 60 and 300 seconds: averages that forget
// exponentially. Once kPeriodNs or more has passed, with x the share of that time t in which work
// stood still,
//   average' = x + (average - x) * exp(-t / window).
// Lateness is known when the token comes at last. What would make a share larger than one is
// carried over to the next period, so averages lag then; totals do not.
#pragma once

#include <array>
#include <cstdint>

#include "scheduler/request.h"

namespace inferd::daemon {

inline constexpr std::array<int64_t, 3> kPressureWindowsS{10, 60, 300};

struct PressureLine {
  std::array<double, kPressureWindowsS.size()> averages{};  // 0 to 1, by kPressureWindowsS
  uint64_t total_ns = 0;
};
struct PressureFigures {
  PressureLine pages_some;
  PressureLine pages_full;
  PressureLine compute_some;
  PressureLine compute_full;
};

// One line.
class StallTime {
 public:
  static constexpr int64_t kPeriodNs = 2'000'000'000;

  explicit StallTime(int64_t now_ns) : period_since_ns_(now_ns), counted_until_ns_(now_ns) {}

  // Work stood still from `from_ns` to `to_ns`. Times that overlap count once, if told in the order
  // of their ends.
  void add(int64_t from_ns, int64_t to_ns);
  // Lets the averages take in the time up to now.
  void roll(int64_t now_ns);
  const PressureLine& line() const { return line_; }

 private:
  int64_t period_since_ns_;
  int64_t counted_until_ns_;
  int64_t pending_ns_ = 0;  // not in the averages yet
  PressureLine line_;
};

class PressureMeter {
 public:
  explicit PressureMeter(int64_t now_ns);

  // What the step that begins now leaves out; it holds until the next call.
  void observe(int64_t now_ns, const scheduler::StepWaits& waits);
  // A token that was due at `due_ns` came now.
  void note_late(int64_t due_ns, int64_t now_ns) { compute_full_.add(due_ns, now_ns); }
  PressureFigures figures(int64_t now_ns) const;

 private:
  void pass_time(int64_t now_ns);

  int64_t since_ns_;
  bool pages_short_ = false;  // of the step under way
  bool pages_blocked_ = false;
  bool compute_short_ = false;
  StallTime pages_some_;
  StallTime pages_full_;
  StallTime compute_some_;
  StallTime compute_full_;
};

}  // namespace inferd::daemon
