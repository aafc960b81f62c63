// A long prompt is computed beside running answers, not before them: each of those gets a token in
// every step.
#include <gtest/gtest.h>

#include <array>
#include <map>

#include "small_lab.h"

namespace inferd::isolation {
namespace {

constexpr uint32_t kLater = 30;  // step by which the short prompts are computed in each case

struct Case {
  uint32_t step_tokens, chunk_tokens;
};

class RunningOn : public testing::TestWithParam<Case> {};

TEST_P(RunningOn, EveryRunningAnswerGetsATokenInEachStepOfALongPrefill) {
  const TemporaryModel model(small_shape(4096));
  LabOptions options;
  options.model = model.path();
  options.sequences = 8;
  options.step_tokens = GetParam().step_tokens;
  options.chunk_tokens = GetParam().chunk_tokens;
  auto lab = Lab::create(options);
  ASSERT_TRUE(lab.ok()) << lab.error().message();

  // Five that answer, then two with long prompts.
  constexpr std::array<uint32_t, 7> kLengths{1, 9, 16, 17, 30, 1500, 900};
  std::vector<Job> jobs = jobs_of(kLengths, kSmallVocabulary, 31);
  for (Job& job : jobs) job.max_tokens = 1200, job.score = false;
  jobs[5].arrive_step = jobs[6].arrive_step = kLater;
  jobs[5].max_tokens = jobs[6].max_tokens = 1;

  std::map<uint64_t, std::vector<uint32_t>> positions;  // of each running answer, step after step
  uint32_t prefill_steps = 0, prefill_tokens = 0;
  (*lab)->on_plan = [&](const scheduler::BatchPlan& plan, uint32_t step) {
    uint32_t prefilled = 0, answering = 0;
    for (const scheduler::BatchItem& item : plan.items) {
      if (item.sequence.value > 5) {
        prefilled += static_cast<uint32_t>(item.tokens.size());
        continue;
      }
      if (step >= kLater) positions[item.sequence.value].push_back(item.position_first);
      answering += item.logits_count;
    }
    if (prefilled == 0) return;
    EXPECT_GE(step, kLater);
    EXPECT_EQ(answering, 5u) << "step " << step;
    EXPECT_LE(plan.token_count, GetParam().step_tokens);
    // And the prompts do not wait for the answers: what the step has left is theirs.
    const uint32_t room = GetParam().step_tokens - 5;
    const uint32_t chunk =
        GetParam().chunk_tokens == 0 ? room : std::min(room, GetParam().chunk_tokens);
    const uint32_t left = 2400 - prefill_tokens;
    EXPECT_GE(prefilled, std::min(chunk, left)) << "step " << step;
    prefill_tokens += prefilled;
    ++prefill_steps;
  };
  const std::vector<Record> records = (*lab)->run(jobs);
  EXPECT_EQ(prefill_tokens, 2400u);
  EXPECT_GE(prefill_steps, 2400 / GetParam().step_tokens);
  for (const auto& [sequence, steps] : positions) {
    for (size_t i = 1; i < steps.size(); ++i) EXPECT_EQ(steps[i], steps[i - 1] + 1);
  }
  for (const Record& record : records) EXPECT_EQ(record.finish, scheduler::FinishReason::kLength);
}

INSTANTIATE_TEST_SUITE_P(Steps, RunningOn,
                         testing::Values(Case{512, 0}, Case{64, 0}, Case{8, 0}, Case{512, 7}),
                         [](const auto& info) {
                           return "Of" + std::to_string(info.param.step_tokens) + "Chunks" +
                                  std::to_string(info.param.chunk_tokens);
                         });

}  // namespace
}  // namespace inferd::isolation
