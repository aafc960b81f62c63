// Thousands of simulated runs, and runs that were broken on purpose and must not pass.
// INFERD_SIM_SEEDS: number of seeds; INFERD_SIM_FIRST: the first one, to repeat what failed.
#include "tests/sim/simulation.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace inferd::sim {
namespace {

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

TEST(Simulation, EveryRequestEndsAsItWouldAloneUnderEveryFault) {
  const uint64_t first = from_environment("INFERD_SIM_FIRST", 1);
  const uint64_t count = from_environment("INFERD_SIM_SEEDS", 10000);
  SimReport sum;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SimOptions options;
    options.seed = seed;
    auto simulation = std::make_unique<Simulation>(options);
    const Result<void> verdict = simulation->run();
    if (!verdict) {
      Simulation::abandon(std::move(simulation));
      FAIL() << "seed " << seed << ": " << verdict.error().message();
    }
    sum.steps += simulation->report().steps;
    sum.preemptions += simulation->report().preemptions;
    sum.finished += simulation->report().finished;
    sum.cancelled += simulation->report().cancelled;
    sum.refused += simulation->report().refused;
    sum.cached_tokens += simulation->report().cached_tokens;
    sum.loaded_tokens += simulation->report().loaded_tokens;
    sum.tier_losses += simulation->report().tier_losses;
  }
  // A simulation in which nothing happens would prove nothing.
  if (count >= 100) {
    EXPECT_GT(sum.steps, count);
    EXPECT_GT(sum.preemptions, count / 10);
    EXPECT_GT(sum.finished, count);
    EXPECT_GT(sum.cancelled, count / 10);
    EXPECT_GT(sum.refused, count / 10);
    EXPECT_GT(sum.cached_tokens, count * 10);
    EXPECT_GT(sum.loaded_tokens, count);
    EXPECT_GT(sum.tier_losses, count / 10);
  }
  RecordProperty("steps", static_cast<int>(sum.steps));
  RecordProperty("preemptions", static_cast<int>(sum.preemptions));
}

// Users who flood the daemon with requests of any shape, two of three weights; see check_fairness().
TEST(Simulation, AFloodIsSharedFairly) {
  const uint64_t count = from_environment("INFERD_SIM_SEEDS", 10000) / 50;
  double range = 0;
  for (uint64_t seed = 1; seed <= count; ++seed) {
    SimOptions options;
    options.seed = seed;
    options.flood = true;
    options.fault_ticks = 400;
    auto simulation = std::make_unique<Simulation>(options);
    const Result<void> verdict = simulation->run();
    range = std::max(range, simulation->report().fair_range);
    if (!verdict) {
      Simulation::abandon(std::move(simulation));
      FAIL() << "seed " << seed << ": " << verdict.error().message();
    }
  }
  EXPECT_GT(range, 0.1) << "of the bound: otherwise nobody competed";
  RecordProperty("percent_of_bound", static_cast<int>(100 * range));
}

TEST(Simulation, EqualSeedsGiveEqualRuns) {
  SimOptions options;
  options.seed = 42;
  Simulation one(options);
  Simulation other(options);
  ASSERT_TRUE(one.run().ok());
  ASSERT_TRUE(other.run().ok());
  EXPECT_EQ(one.report().steps, other.report().steps);
  EXPECT_EQ(one.report().preemptions, other.report().preemptions);
  EXPECT_EQ(one.report().finished, other.report().finished);
}

// Runs seeds with one kind of fault; each run in which it was planted must fail.
void expect_caught(Sabotage sabotage, bool verify, uint64_t seeds) {
  uint32_t planted = 0;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SimOptions options;
    options.seed = seed;
    options.sabotage = sabotage;
    options.verify = verify;
    if (sabotage == Sabotage::kUnfairCharge) {
      options.flood = true;
      options.fault_ticks = 800;
    }
    auto simulation = std::make_unique<Simulation>(options);
    const Result<void> verdict = simulation->run();
    if (simulation->report().sabotaged) {
      ++planted;
      EXPECT_FALSE(verdict.ok()) << "seed " << seed << ": " << sabotage_name(sabotage)
                                 << " went unnoticed";
    }
    Simulation::abandon(std::move(simulation));
  }
  EXPECT_GT(planted, seeds / 20) << sabotage_name(sabotage) << " is hardly ever possible";
}

class BrokenVariant : public testing::TestWithParam<Sabotage> {};

TEST_P(BrokenVariant, IsCaught) { expect_caught(GetParam(), true, 100); }

INSTANTIATE_TEST_SUITE_P(Sabotage, BrokenVariant,
                         testing::ValuesIn(all_sabotages().begin(), all_sabotages().end()),
                         [](const testing::TestParamInfo<Sabotage>& info) {
                           std::string name(sabotage_name(info.param));
                           for (char& letter : name) letter = letter == ' ' ? '_' : letter;
                           return name;
                         });

// What a user would notice is noticed by the answers alone, with no invariant looked at.
TEST(BrokenVariantByItsAnswers, ForgottenTokenIsCaught) {
  expect_caught(Sabotage::kForgetToken, false, 100);
}

}  // namespace
}  // namespace inferd::sim
