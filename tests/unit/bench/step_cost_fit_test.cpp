#include "bench/step_cost_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/prng.h"

namespace inferd::bench {
namespace {

using scheduler::StepCost;
using testing::HasSubstr;

constexpr StepCost kKnown{5e6, 8e5, 1.5e6, 900};

std::vector<CostSample> samples_of(const StepCost& cost, double noise) {
  Prng prng(9);
  std::vector<CostSample> samples;
  for (uint32_t depth : {0u, 300u, 2000u}) {
    for (uint32_t decodes : {0u, 1u, 8u}) {
      for (uint32_t chunk : {0u, 16u, 256u}) {
        if (decodes + chunk == 0) continue;
        CostSample sample;
        if (chunk > 0) sample.add(chunk, 1, depth);
        for (uint32_t i = 0; i < decodes; ++i) sample.add(1, 1, depth);
        sample.time_ns = sample.predicted_ns(cost) * (1 + noise * (prng.uniform() - 0.5));
        samples.push_back(sample);
      }
    }
  }
  return samples;
}

void expect_near(const StepCost& cost, const StepCost& expected, double share) {
  EXPECT_NEAR(cost.step_ns, expected.step_ns, share * expected.step_ns);
  EXPECT_NEAR(cost.row_ns, expected.row_ns, share * expected.row_ns);
  EXPECT_NEAR(cost.token_ns, expected.token_ns, share * expected.token_ns);
  EXPECT_NEAR(cost.position_ns, expected.position_ns, share * expected.position_ns);
}

TEST(StepCostFit, RecoversWhatTheStepsWereMadeOf) {
  const Result<CostFit> fit = fit_step_cost(samples_of(kKnown, 0));
  ASSERT_TRUE(fit.ok());
  expect_near(fit->cost, kKnown, 1e-6);
  EXPECT_LT(fit->error_max, 1e-6);
}

TEST(StepCostFit, TellsHowFarOffItIs) {
  const Result<CostFit> fit = fit_step_cost(samples_of(kKnown, 0.1));
  ASSERT_TRUE(fit.ok());
  expect_near(fit->cost, kKnown, 0.25);
  EXPECT_GT(fit->error_rms, 0.01);
  EXPECT_LE(fit->error_max, 0.11);
  EXPECT_LE(fit->error_rms, fit->error_max);
}

TEST(StepCostFit, NoFigureIsNegative) {
  // A long prompt that goes faster per token than its beginning: plain least squares would go below
  // 0.
  std::vector<CostSample> samples = samples_of({5e6, 0, 1.5e6, 0}, 0);
  for (CostSample& sample : samples) sample.time_ns /= 1 + sample.positions * 1e-6;
  const Result<CostFit> fit = fit_step_cost(samples);
  ASSERT_TRUE(fit.ok());
  for (double figure :
       {fit->cost.step_ns, fit->cost.row_ns, fit->cost.token_ns, fit->cost.position_ns}) {
    EXPECT_GE(figure, 0);
  }
  EXPECT_EQ(fit->cost.position_ns, 0);
}

TEST(StepCostFit, RefusesTooLittle) {
  EXPECT_FALSE(fit_step_cost({}).ok());
  std::vector<CostSample> samples = samples_of(kKnown, 0);
  samples[3].time_ns = 0;
  EXPECT_FALSE(fit_step_cost(samples).ok());
}

// As `inferd-bench engine` makes its rows: medians of rates, of prompts in steps of 512.
std::string row_text(const char* test, uint32_t threads, uint32_t batch, uint32_t depth,
                     uint32_t tokens_each) {
  const bool decode = std::string(test) == "decode";
  double time_ns = 0;
  for (uint32_t done = 0; done < tokens_each;) {
    const uint32_t count = decode ? 1 : std::min(tokens_each - done, 512u);
    for (uint32_t i = 0; i < batch; ++i) {
      if (!decode || i == 0) time_ns += kKnown.step_ns;
      const uint32_t rows = decode || done + count == tokens_each ? 1 : 0;
      time_ns += kKnown.share_ns(count, rows, depth + done);
    }
    done += count;
  }
  const uint32_t tokens = batch * tokens_each;
  return "{\"test\": \"" + std::string(test) + "\", \"threads\": " + std::to_string(threads) +
         ", \"batch\": " + std::to_string(batch) + ", \"depth\": " + std::to_string(depth) +
         ", \"tokens\": " + std::to_string(tokens) +
         ", \"tokens_per_s\": " + std::to_string(tokens / (time_ns * 1e-9)) + "}";
}

TEST(StepCostFit, RecoversItFromRowsOfTheEngineBench) {
  std::string text = "[";
  for (uint32_t batch : {1u, 8u}) {
    for (uint32_t depth : {0u, 2048u}) {
      text += row_text("prefill", 2, batch, depth, 1000) + ",";
      text += row_text("prefill", 2, batch, depth, 40) + ",";
      text += row_text("decode", 2, batch, depth, 128) + ",";
      text += R"({"test": "decode", "threads": 1, "batch": 1, "depth": 0, "tokens": 5,
                  "tokens_per_s": 3.5},)";
    }
  }
  text.back() = ']';
  const auto samples = samples_of_rows(text, 512);
  ASSERT_TRUE(samples.ok()) << samples.error().message();
  EXPECT_EQ(samples->size(), 12u);  // those of two threads
  const Result<CostFit> fit = fit_step_cost(*samples);
  ASSERT_TRUE(fit.ok());
  expect_near(fit->cost, kKnown, 0.02);
}

TEST(StepCostFit, NamesTheRowThatIsWrong) {
  for (const auto& [text, complaint] :
       {std::pair{"{}", "no JSON array"}, std::pair{"[1]", "row 1 is no measurement"},
        std::pair{R"([{"test": "x"}])", "neither prefill nor decode"},
        std::pair{R"([{"test": "decode", "threads": 1}])", "no count \"batch\""},
        std::pair{R"([{"test": "decode", "threads": 1, "batch": 0, "depth": 0, "tokens": 1,
                       "tokens_per_s": 1}])",
                  "no rate"}}) {
    const auto samples = samples_of_rows(text, 512);
    ASSERT_FALSE(samples.ok()) << text;
    EXPECT_THAT(samples.error().message(), HasSubstr(complaint));
  }
}

TEST(StepCostFit, AFileOfFiguresReadsBack) {
  CostFit fit;
  fit.cost = kKnown;
  const Result<StepCost> cost = parse_step_cost(step_cost_json(fit));
  ASSERT_TRUE(cost.ok());
  expect_near(*cost, kKnown, 0);
  EXPECT_FALSE(parse_step_cost("nonsense").ok());
  EXPECT_FALSE(parse_step_cost(R"({"step_ns": 1, "row_ns": 0, "token_ns": -1})").ok());
  EXPECT_FALSE(
      parse_step_cost(R"({"step_ns": 0, "row_ns": 0, "token_ns": 0, "position_ns": 0})").ok());
}

}  // namespace
}  // namespace inferd::bench
