#include "jobs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/prng.h"

namespace inferd::isolation {

namespace {

std::vector<TokenId> random_prompt(Prng& prng, uint32_t tokens, uint32_t vocabulary) {
  std::vector<TokenId> prompt(tokens);
  for (TokenId& token : prompt) token = static_cast<TokenId>(prng.below(vocabulary));
  return prompt;
}

engine::SamplingParams sampling_of(size_t way, uint64_t seed) {
  engine::SamplingParams params;
  params.seed = seed;
  params.temperature = 0.9f;
  switch (way % 4) {
    case 0:
      break;
    case 1:
      params.top_k = 40;
      params.top_p = 0.9f;
      break;
    case 2:
      params.temperature = 1.3f;
      params.min_p = 0.02f;
      break;
    default:
      params.repetition_penalty = 1.3f;
      params.presence_penalty = 0.2f;
      params.frequency_penalty = 0.1f;
      break;
  }
  return params;
}

}  // namespace

std::vector<Job> jobs_of(std::span<const uint32_t> prompt_tokens, uint32_t vocabulary,
                         uint64_t seed) {
  Prng prng(seed);
  std::vector<Job> jobs;
  for (size_t i = 0; i < prompt_tokens.size(); ++i) {
    Job job;
    job.prompt = random_prompt(prng, prompt_tokens[i], vocabulary);
    job.max_tokens = 5 + static_cast<uint32_t>(i % 4);
    if (i % 2 == 1) job.sampling = sampling_of(i / 2, seed + i);
    job.score = i / 2 % 2 == 0;
    jobs.push_back(job);
  }
  return jobs;
}

std::vector<Job> visitors(uint32_t steps, uint32_t vocabulary, uint64_t seed) {
  Prng prng(seed);
  std::vector<Job> jobs;
  for (uint32_t step = 0; step < steps; ++step) {
    Job job;
    job.prompt = random_prompt(prng, 1 + static_cast<uint32_t>(prng.below(40)), vocabulary);
    job.max_tokens = 100;
    job.arrive_step = step;
    job.cancel_step = step + 2;
    job.cancel_in_flight = step % 2 == 0;
    jobs.push_back(job);
  }
  return jobs;
}

TemporaryModel::TemporaryModel(const bench::MakeModelOptions& options) {
  static int count = 0;
  path_ = testing::TempDir() + "inferd_isolation_" + std::to_string(getpid()) + "_" +
          std::to_string(count++) + ".gguf";
  const Result<void> made = bench::make_model(options, path_);
  EXPECT_TRUE(made.ok()) << made.error().message();
}

TemporaryModel::~TemporaryModel() { unlink(path_.c_str()); }

void expect_equal(std::span<const Record> expected, std::span<const Record> actual,
                  std::span<const Job> jobs) {
  ASSERT_GE(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(expected[i] == actual[i]) << "job " << i << " of " << jobs[i].prompt.size()
                                          << " tokens: " << difference(expected[i], actual[i]);
  }
}

}  // namespace inferd::isolation
