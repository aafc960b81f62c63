// Isolation of results on the sample model and real text, in a smaller version: prompts of up to
// 600 tokens.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "jobs.h"
#include "lab.h"

namespace inferd::isolation {
namespace {

constexpr std::array<uint32_t, 8> kLengths{1, 5, 16, 65, 129, 257, 300, 600};

// As the other tests find it: $INFERD_TEST_MODEL, else where tools/fetch_model.sh keeps it.
std::string model_path() {
  if (const char* path = std::getenv("INFERD_TEST_MODEL")) return path;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string folder =
      cache != nullptr ? cache : std::string(home == nullptr ? "" : home) + "/.cache";
  return folder + "/inferd/models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

// Stretches of a text; the sampling of jobs_of().
std::vector<Job> make_jobs() {
  std::ifstream file(INFERD_SOURCE_DIR "/tests/golden/logits_smollm2_q4_1.json");
  const auto text = nlohmann::json::parse(file).at("ids").get<std::vector<TokenId>>();
  std::vector<Job> jobs = jobs_of(kLengths, 1000, 41);
  for (size_t i = 0; i < jobs.size(); ++i) {
    const auto first = text.begin() + static_cast<ptrdiff_t>(23 * i);
    jobs[i].prompt.assign(first, first + kLengths[i]);
  }
  return jobs;
}

class SampleModel : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_TRUE(std::filesystem::exists(model_path()))
        << "there is no sample model at " << model_path()
        << "; run tools/fetch_model.sh, or set INFERD_TEST_MODEL";
    jobs_ = make_jobs();
    const auto lab = open(1, 0);
    ASSERT_NE(lab, nullptr);
    expected_ = lab->run_alone(jobs_);
  }

  static std::unique_ptr<Lab> open(uint32_t threads, uint32_t chunk_tokens) {
    LabOptions options;
    options.model = model_path();
    options.threads = threads;
    options.sequences = 16;
    options.chunk_tokens = chunk_tokens;
    options.step_tokens = 1536;
    auto lab = Lab::create(options);
    EXPECT_TRUE(lab.ok()) << lab.error().message();
    return lab.ok() ? std::move(lab).value() : nullptr;
  }

  static inline std::vector<Job> jobs_;
  static inline std::vector<Record> expected_;
};

TEST_F(SampleModel, WholePromptsTogetherOnTwoThreads) {
  expect_equal(expected_, open(2, 0)->run(jobs_), jobs_);
}

TEST_F(SampleModel, ChunksOf7TogetherOnTwoThreads) {
  expect_equal(expected_, open(2, 7)->run(jobs_), jobs_);
}

TEST_F(SampleModel, ChunksOf64WithOthersJoiningAndLeavingOnOneThread) {
  std::vector<Job> all = jobs_;
  for (size_t i = 0; i < all.size(); ++i) all[i].arrive_step = static_cast<uint32_t>(i);
  for (const Job& visitor : visitors(30, 1000, 42)) all.push_back(visitor);
  expect_equal(expected_, open(1, 64)->run(all), all);
}

TEST_F(SampleModel, ChunksOf1OfTheShorterOnes) {
  constexpr size_t kShorter = 5;
  expect_equal(std::span(expected_).first(kShorter),
               open(2, 1)->run(std::span(jobs_).first(kShorter)), jobs_);
}

}  // namespace
}  // namespace inferd::isolation
