// Pressure: totals and averages in a time that the test moves, against the definition by hand.
#include "daemon/pressure.h"

#include <gtest/gtest.h>

#include <cmath>

namespace inferd::daemon {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;

using Waits = scheduler::StepWaits;

// In seconds.
double total(const PressureLine& line) { return static_cast<double>(line.total_ns) / 1e9; }

TEST(StallTime, TimesThatOverlapCountOnce) {
  StallTime stall(0);
  stall.add(10, 20);
  stall.add(15, 20);
  stall.add(5, 25);
  stall.add(40, 30);
  EXPECT_EQ(stall.line().total_ns, 15u);
  stall.add(30, 40);
  EXPECT_EQ(stall.line().total_ns, 25u);
}

TEST(StallTime, AveragesApproachTheShareOfTimeAndForgetIt) {
  StallTime stall(0);
  // Every second, a quarter of it, for five minutes.
  for (int64_t second = 0; second < 300; ++second) {
    stall.add(second * kSecondNs, second * kSecondNs + kSecondNs / 4);
    stall.roll((second + 1) * kSecondNs);
  }
  const PressureLine& line = stall.line();
  EXPECT_NEAR(line.averages[0], 0.25, 1e-3);
  EXPECT_NEAR(line.averages[1], 0.25 * (1 - std::exp(-5.0)), 1e-3);
  EXPECT_NEAR(line.averages[2], 0.25 * (1 - std::exp(-1.0)), 1e-3);
  EXPECT_EQ(line.total_ns, 75u * kSecondNs);
  // Ten seconds of peace, told at once or in pieces, come to the same.
  StallTime pieces = stall;
  const double before = line.averages[0];
  stall.roll(310 * kSecondNs);
  for (int64_t second = 301; second <= 310; ++second) pieces.roll(second * kSecondNs);
  EXPECT_NEAR(stall.line().averages[0], before * std::exp(-1.0), 1e-9);
  EXPECT_NEAR(pieces.line().averages[0], before * std::exp(-1.0), 1e-9);
}

TEST(StallTime, NothingIsAveragedBeforeAPeriodIsOverAndWhatIsToldLateIsNotLost) {
  StallTime stall(0);
  stall.add(0, kSecondNs);
  stall.roll(StallTime::kPeriodNs - 1);
  EXPECT_EQ(stall.line().averages[0], 0);
  stall.roll(StallTime::kPeriodNs);
  EXPECT_NEAR(stall.line().averages[0], 0.5 * (1 - std::exp(-0.2)), 1e-9);
  // Twenty seconds that are told when they are over, of which the averages took nothing in before.
  StallTime late(0);
  for (int64_t second = 2; second <= 18; second += 2) late.roll(second * kSecondNs);
  late.add(0, 20 * kSecondNs);
  for (int64_t second = 20; second <= 38; second += 2) late.roll(second * kSecondNs);
  EXPECT_NEAR(late.line().averages[0], 1 - std::exp(-2.0), 1e-9) << "20 s, from 18 s on";
  EXPECT_LE(late.line().averages[0], 1.0);
}

TEST(PressureMeter, AStateHoldsUntilTheNext) {
  PressureMeter meter(0);
  meter.observe(1 * kSecondNs, Waits{.computing = 1, .for_pages = 2});
  meter.observe(3 * kSecondNs, Waits{.recomputing = 1});
  meter.observe(6 * kSecondNs, Waits{.computing = 1, .recomputing = 1, .for_turn = 1});
  meter.observe(10 * kSecondNs, Waits{.computing = 3, .for_prefix = 2});
  const PressureFigures figures = meter.figures(50 * kSecondNs);
  EXPECT_EQ(total(figures.pages_some), 2 + 3 + 4);
  EXPECT_EQ(total(figures.pages_full), 3) << "nobody came further from 3 s to 6 s";
  EXPECT_EQ(total(figures.compute_some), 4);
  EXPECT_EQ(total(figures.compute_full), 0);
}

TEST(PressureMeter, FiguresGoOnBetweenTwoSteps) {
  PressureMeter meter(0);
  meter.observe(0, Waits{.computing = 1, .for_turn = 1});
  EXPECT_EQ(total(meter.figures(1 * kSecondNs).compute_some), 1);
  EXPECT_EQ(total(meter.figures(60 * kSecondNs).compute_some), 60);
  EXPECT_NEAR(meter.figures(60 * kSecondNs).compute_some.averages[1], 1 - std::exp(-1.0), 1e-9);
  meter.observe(61 * kSecondNs, Waits{});
  EXPECT_EQ(total(meter.figures(100 * kSecondNs).compute_some), 61);
}

TEST(PressureMeter, LatenessIsTheTimeSinceTheTokenWasDue) {
  PressureMeter meter(0);
  meter.note_late(5 * kSecondNs, 4 * kSecondNs);  // in time
  EXPECT_EQ(total(meter.figures(5 * kSecondNs).compute_full), 0);
  meter.note_late(5 * kSecondNs, 7 * kSecondNs);
  meter.note_late(6 * kSecondNs, 7 * kSecondNs);  // another answer, in the same step
  meter.note_late(8 * kSecondNs, 9 * kSecondNs);
  EXPECT_EQ(total(meter.figures(9 * kSecondNs).compute_full), 3);
}

}  // namespace
}  // namespace inferd::daemon
