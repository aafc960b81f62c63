#include "scheduler/step_cost.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace inferd::scheduler {

namespace {

// Half of what a step says is forgotten after some forty more: the machine's other work comes and
// goes.
constexpr double kFade = 0.983;
// After so many steps a measurement of more than so many times what was expected counts as that.
constexpr uint32_t kStepsTrusted = 16;
constexpr double kOutlier = 2.5;
// Weight of a figure as it was, in parts of what the steps say of it.
constexpr double kRidge = 0.05;
// Scales, so that the four columns are of like size.
constexpr std::array<double, 4> kScale = {1, 8, 64, 65'536};

// Of StepMargin: the part of the steps that may be late, how fast it learns, and its bounds. What a client
// waits for besides the step, and what no reserve can help against.
constexpr double kLateShare = 0.008;
// A step that is predicted to take so much of the time planned for was given all of it.
constexpr double kFilled = 0.85;
constexpr double kMarginStep = 0.04;
constexpr double kMarginMin = 1.05;
constexpr double kMarginMax = 2.0;

}  // namespace

StepCostModel::Row StepCostModel::features(const BatchPlan& plan) {
  double positions = 0;
  for (const BatchItem& item : plan.items) {
    const auto tokens = static_cast<double>(item.tokens.size());
    positions += tokens * (item.position_first + tokens / 2);
  }
  return {1, plan.logits_count / kScale[1], plan.token_count / kScale[2], positions / kScale[3]};
}

void StepCostModel::observe(const BatchPlan& plan, int64_t step_ns) {
  if (plan.items.empty() || step_ns <= 0) return;
  const Row row = features(plan);
  auto measured_ns = static_cast<double>(step_ns);
  // A step that was held up, by another process or a page fault, is no measure of the next one. If
  // the machine has become as slow as that, this is learned by and by.
  if (steps_seen_ >= kStepsTrusted) {
    measured_ns = std::min(measured_ns, kOutlier * predict_ns(plan));
  } else {
    ++steps_seen_;
  }
  if (!warm_) {
    // One step says nothing about the parts: shares that sum up to it.
    const double sum = row[0] + row[1] + row[2];
    for (uint32_t i = 0; i < 3; ++i) figures_[i] = measured_ns / sum;
    warm_ = true;
  }
  const double weight = 1 / (measured_ns * measured_ns);
  for (uint32_t i = 0; i < kFigures; ++i) {
    for (uint32_t k = 0; k < kFigures; ++k) {
      matrix_[i][k] = matrix_[i][k] * kFade + weight * row[i] * row[k];
    }
    right_[i] = right_[i] * kFade + weight * row[i] * measured_ns;
  }
  solve();
}

// The figures that come out negative are 0, and the others what they then are.
void StepCostModel::solve() {
  uint32_t free = (1u << kFigures) - 1;
  for (uint32_t before = 0; free != before;) {
    before = free;
    const Row row = solved(free);
    for (uint32_t i = 0; i < kFigures; ++i) {
      if (!std::isfinite(row[i])) return;  // as they were
      if (row[i] < 0) free &= ~(1u << i);
    }
    if (free == before) figures_ = row;
  }
  cost_ = {figures_[0] / kScale[0], figures_[1] / kScale[1], figures_[2] / kScale[2],
           figures_[3] / kScale[3]};
}

// Solves (matrix + ridge) figures = right + ridge * figures by elimination, for the figures whose
// bit is set in `free`; the others are 0. The ridge makes every pivot positive.
StepCostModel::Row StepCostModel::solved(uint32_t free) const {
  std::array<Row, kFigures> left{};
  Row right{};
  for (uint32_t i = 0; i < kFigures; ++i) {
    if ((free >> i & 1) == 0) {
      left[i][i] = 1;
      continue;
    }
    for (uint32_t k = 0; k < kFigures; ++k) {
      if ((free >> k & 1) != 0) left[i][k] = matrix_[i][k];
    }
    const double ridge = std::max(kRidge * matrix_[i][i], 1e-300);
    left[i][i] += ridge;
    right[i] = right_[i] + ridge * figures_[i];
  }
  for (uint32_t pivot = 0; pivot < kFigures; ++pivot) {
    INFERD_DCHECK(left[pivot][pivot] > 0);
    for (uint32_t row = pivot + 1; row < kFigures; ++row) {
      const double factor = left[row][pivot] / left[pivot][pivot];
      for (uint32_t k = pivot; k < kFigures; ++k) left[row][k] -= factor * left[pivot][k];
      right[row] -= factor * right[pivot];
    }
  }
  Row solved{};
  for (uint32_t row = kFigures; row-- > 0;) {
    for (uint32_t k = row + 1; k < kFigures; ++k) right[row] -= left[row][k] * solved[k];
    solved[row] = right[row] / left[row][row];
  }
  return solved;
}

double StepCostModel::predict_ns(const BatchPlan& plan) const {
  const Row row = features(plan);
  double sum = 0;
  for (uint32_t i = 0; i < kFigures; ++i) sum += row[i] * figures_[i];
  return sum;
}

void StepMargin::observe(double predicted_ns, int64_t turn_ns, int64_t target_ns) {
  if (target_ns == 0 || predicted_ns < kFilled * static_cast<double>(planned_ns(target_ns))) return;
  const bool late = static_cast<double>(turn_ns) > margin_ * predicted_ns;
  margin_ += late ? kMarginStep * (1 - kLateShare) : -kMarginStep * kLateShare;
  margin_ = std::clamp(margin_, kMarginMin, kMarginMax);
}

}  // namespace inferd::scheduler
