// How long a step takes, learned from the steps that were run.
// Owner: daemon/, which feeds it and passes the figures on in StepBudget. Engine thread only.
// Must not know clocks; it is told what a step took.
#pragma once

#include <array>
#include <cstdint>

#include "scheduler/batch_plan.h"

namespace inferd::scheduler {

// Nanoseconds: of any step (the weights are read once), of a row of logits (and its sampling), of a
// token, and of attending from one token to one position. All 0: nothing is known.
struct StepCost {
  double step_ns = 0;
  double row_ns = 0;
  double token_ns = 0;
  double position_ns = 0;

  // A figure may well be 0: the steps seen may say so.
  bool known() const { return step_ns > 0 || row_ns > 0 || token_ns > 0 || position_ns > 0; }
  // Of `tokens` tokens from this position on, with so many rows of logits.
  double share_ns(uint32_t tokens, uint32_t rows, uint32_t position_first) const {
    return rows * row_ns + tokens * (token_ns + position_ns * (position_first + tokens / 2.0));
  }
};

// Least squares over the four figures above with older steps fading away, each step weighed by the
// inverse of its time, so that errors count relative to it. No figure is negative. Where the steps seen do not
// tell two figures apart, they stay near what they were: a ridge, for each figure as wide as what the steps
// say of it, so that one of which they say little (how deep the contexts are, while those are short) is not held
// back by what they say of others.
class StepCostModel {
 public:
  // A step that was run. Deterministic; allocates nothing.
  void observe(const BatchPlan& plan, int64_t step_ns);
  // Nothing negative. All zero before the first step.
  const StepCost& cost() const { return cost_; }
  // What the figures say of this plan.
  double predict_ns(const BatchPlan& plan) const;

 private:
  static constexpr uint32_t kFigures = 4;
  using Row = std::array<double, kFigures>;

  static Row features(const BatchPlan& plan);
  void solve();
  Row solved(uint32_t free) const;

  std::array<Row, kFigures> matrix_{};  // of the normal equations
  Row right_{};
  Row figures_{};
  bool warm_ = false;
  uint32_t steps_seen_ = 0;
  StepCost cost_;
};

// How much longer than predicted a step may take, learned so that only a small part of those that are given all
// of the time planned for miss the latency target (one in 125 in the long run): a quantile followed by steps up for
// each one that took longer and small ones down for each that did not (Robbins and Monro 1951). A calm machine gives
// nearly all of the target to prefill, a shared one keeps more in reserve.
class StepMargin {
 public:
  // The time to plan a step for.
  int64_t planned_ns(int64_t target_ns) const {
    return static_cast<int64_t>(static_cast<double>(target_ns) / margin_);
  }
  // A step that was run; `turn_ns` is what a client waited for it, from the end of the step before. Steps that had
  // less to do than there was time for say nothing: they are late more seldom, and would hide how often the
  // others are.
  void observe(double predicted_ns, int64_t turn_ns, int64_t target_ns);

 private:
  double margin_ = 1.2;  // until it is learned
};

}  // namespace inferd::scheduler
