// A step goes over each weight matrix once, however many sequences and tokens take part.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "jobs.h"
#include "lab.h"

namespace inferd::isolation {
namespace {

constexpr uint32_t kLayers = 3;
constexpr uint32_t kLayerMatrices = 7;
constexpr uint32_t kVocabulary = 384;
constexpr uint32_t kWidth = 256, kKeys = 128, kFeedForward = 512;

class WeightReads : public testing::TestWithParam<formats::TensorType> {
 protected:
  WeightReads() : model_(made(GetParam())) {}

  static bench::MakeModelOptions made(formats::TensorType type) {
    bench::MakeModelOptions options;
    options.type = type;
    options.layers = kLayers;
    options.embedding = kWidth;
    options.heads = 4;
    options.kv_heads = 2;
    options.feed_forward = kFeedForward;
    options.vocabulary = kVocabulary;
    return options;
  }

  // Weights of the layers' matrices; and of the output matrix.
  static constexpr uint64_t kLayerWeights =
      kLayers * (2ull * kWidth * kWidth + 2ull * kWidth * kKeys + 3ull * kWidth * kFeedForward);
  static constexpr uint64_t kOutputWeights = uint64_t{kWidth} * kVocabulary;

  static uint64_t bytes_of(uint64_t weights) {
    const formats::TensorTypeTraits& traits = *formats::tensor_type_traits(GetParam());
    return weights / traits.block_elements * traits.block_bytes;
  }

  struct Step {
    uint32_t tokens, items, logits;
    engine::EngineCounters before;
  };

  // Runs the jobs and checks what each step read; returns the steps.
  std::vector<Step> run(uint32_t threads, uint32_t chunk_tokens, std::span<const Job> jobs) {
    LabOptions options;
    options.model = model_.path();
    options.threads = threads;
    options.chunk_tokens = chunk_tokens;
    options.step_tokens = 4096;
    auto lab = Lab::create(options);
    EXPECT_TRUE(lab.ok()) << lab.error().message();
    if (!lab.ok()) return {};
    std::vector<Step> steps;
    (*lab)->on_plan = [&](const scheduler::BatchPlan& plan, uint32_t) {
      steps.push_back({plan.token_count, static_cast<uint32_t>(plan.items.size()),
                       plan.logits_count, (*lab)->counters()});
    };
    (*lab)->run(jobs);
    for (size_t i = 0; i < steps.size(); ++i) {
      const engine::EngineCounters after =
          i + 1 < steps.size() ? steps[i + 1].before : (*lab)->counters();
      const uint32_t output = steps[i].logits > 0 ? 1 : 0;
      EXPECT_EQ(after.steps - steps[i].before.steps, 1u);
      EXPECT_EQ(after.tokens - steps[i].before.tokens, steps[i].tokens);
      EXPECT_EQ(after.weight_reads - steps[i].before.weight_reads,
                kLayers * kLayerMatrices + output)
          << steps[i].items << " sequences, " << steps[i].tokens << " tokens";
      // Not more than the file's bytes, and no form of them that leaves some out.
      EXPECT_EQ(after.weight_bytes_read - steps[i].before.weight_bytes_read,
                bytes_of(kLayerWeights) + output * bytes_of(kOutputWeights));
    }
    return steps;
  }

  TemporaryModel model_;
};

TEST_P(WeightReads, OnceAStepWhateverTheBatch) {
  for (const uint32_t threads : {1u, 2u}) {
    for (const uint32_t batch : {1u, 2u, 8u, 17u, 32u}) {
      SCOPED_TRACE(std::to_string(batch) + " sequences, " + std::to_string(threads) + " threads");
      const std::vector<uint32_t> lengths(batch, 20);
      std::vector<Job> jobs = jobs_of(lengths, kVocabulary, 21);
      for (Job& job : jobs) job.max_tokens = 4;
      const std::vector<Step> steps = run(threads, 0, jobs);
      ASSERT_EQ(steps.size(), 4u);
      EXPECT_EQ(steps[0].tokens, 20 * batch);
      EXPECT_EQ(steps[3].tokens, batch);
    }
  }
}

TEST_P(WeightReads, OnceAStepOfPrefillsBesideDecodes) {
  constexpr std::array<uint32_t, 6> kLengths{1, 40, 300, 1500, 700, 33};
  std::vector<Job> jobs = jobs_of(kLengths, kVocabulary, 22);
  for (size_t i = 0; i < jobs.size(); ++i) {
    jobs[i].score = false;
    jobs[i].max_tokens = 40;
    jobs[i].arrive_step = static_cast<uint32_t>(i);
  }
  bool mixed = false, silent = false;
  for (const uint32_t chunk : {100u, 0u}) {
    for (const Step& step : run(2, chunk, jobs)) {
      mixed = mixed || (step.items > 3 && step.tokens > 100 + step.items);
      silent = silent || step.logits == 0;
    }
  }
  EXPECT_TRUE(mixed);
  // Alone, a chunk in mid-prompt wants no logits: the output matrix is not read.
  const std::vector<Job> last(1, [&] {
    Job job = jobs[3];
    job.arrive_step = 0;
    return job;
  }());
  for (const Step& step : run(1, 100, last)) silent = silent || step.logits == 0;
  EXPECT_TRUE(silent);
}

INSTANTIATE_TEST_SUITE_P(Types, WeightReads,
                         testing::Values(formats::TensorType::kF32, formats::TensorType::kQ8_0,
                                         formats::TensorType::kQ4_1, formats::TensorType::kQ4_0),
                         [](const auto& info) {
                           return std::string(formats::tensor_type_name(info.param));
                         });

}  // namespace
}  // namespace inferd::isolation
