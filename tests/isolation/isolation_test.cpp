// Ids and logits, by their bytes, do not depend on who else is there, on chunks or on threads: 32
// prompts of one token to several thousand, on a model of 4-bit weights whose heads share keys by
// three.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "jobs.h"
#include "lab.h"

namespace inferd::isolation {
namespace {

// Around the ends of pages (16), attention blocks (64) and splits (256), and beyond.
constexpr std::array<uint32_t, 32> kLengths{
    1,   2,   3,   5,   7,   8,   15,  16,  17,  31,  32,  33,  63,   64,   65,   100,
    127, 129, 200, 255, 256, 257, 320, 400, 511, 512, 513, 769, 1025, 1600, 2500, 4000};
constexpr uint32_t kVocabulary = 384;
constexpr uint32_t kLongest = 4000;

bench::MakeModelOptions shape() {
  bench::MakeModelOptions options;
  options.heads = 6;
  options.kv_heads = 2;
  options.embedding = 128;
  options.head_dim = 16;
  options.feed_forward = 128;
  options.vocabulary = kVocabulary;
  options.context = 4096;
  options.type = formats::TensorType::kQ4_1;
  return options;
}

const TemporaryModel& model() {
  static const TemporaryModel made(shape());
  return made;
}

const std::vector<Job>& jobs() {
  static const std::vector<Job> made = jobs_of(kLengths, kVocabulary, 1);
  return made;
}

std::unique_ptr<Lab> open(uint32_t threads, uint32_t chunk_tokens) {
  LabOptions options;
  options.model = model().path();
  options.threads = threads;
  options.sequences = 40;
  options.chunk_tokens = chunk_tokens;
  options.step_tokens = chunk_tokens == 0 ? 16384 : 40 * chunk_tokens;
  auto lab = Lab::create(options);
  EXPECT_TRUE(lab.ok()) << lab.error().message();
  return lab.ok() ? std::move(lab).value() : nullptr;
}

// Each alone, its prompt whole, by one thread, over pages that nobody had before.
const std::vector<Record>& reference() {
  static const std::vector<Record> records = [] {
    const auto lab = open(1, 0);
    std::vector<Record> made;
    for (const Job& job : jobs()) {
      lab->refresh_pages();
      made.push_back(lab->run({&job, 1})[0]);
    }
    return made;
  }();
  return records;
}

struct Cut {
  uint32_t chunk_tokens, threads;
};

class Isolation : public testing::TestWithParam<Cut> {};

TEST_P(Isolation, EachGetsWhatItGetsAlone) {
  const auto lab = open(GetParam().threads, GetParam().chunk_tokens);
  {
    SCOPED_TRACE("alone");
    expect_equal(reference(), lab->run_alone(jobs()), jobs());
  }
  uint32_t widest = 0;
  lab->on_plan = [&](const scheduler::BatchPlan& plan, uint32_t) {
    widest = std::max(widest, static_cast<uint32_t>(plan.items.size()));
  };
  expect_equal(reference(), lab->run(jobs()), jobs());
  EXPECT_EQ(widest, 32u);
}

TEST_P(Isolation, OthersMayJoinAndLeaveAtEveryStep) {
  const auto lab = open(GetParam().threads, GetParam().chunk_tokens);
  std::vector<Job> all = jobs();
  // The longest come last, so that some are in mid-prompt as the others decode and end.
  for (size_t i = 0; i < all.size(); ++i) all[i].arrive_step = static_cast<uint32_t>(i);
  const uint32_t chunk = GetParam().chunk_tokens;
  const uint32_t steps = 32 + (chunk == 0 ? 1 : (kLongest + chunk - 1) / chunk) + 8;
  const std::vector<Job> others = visitors(steps, kVocabulary, 2);
  all.insert(all.end(), others.begin(), others.end());

  uint32_t unchanged = 0;
  std::set<SequenceId> before;
  lab->on_plan = [&](const scheduler::BatchPlan& plan, uint32_t step) {
    std::set<SequenceId> now;
    for (const scheduler::BatchItem& item : plan.items) now.insert(item.sequence);
    const bool joined = !std::includes(before.begin(), before.end(), now.begin(), now.end());
    const bool left = !std::includes(now.begin(), now.end(), before.begin(), before.end());
    if (step >= 2 && step < steps && !(joined && left)) ++unchanged;
    before = now;
  };
  expect_equal(reference(), lab->run(all), all);
  EXPECT_EQ(unchanged, 0u);
}

INSTANTIATE_TEST_SUITE_P(ChunksAndThreads, Isolation,
                         testing::Values(Cut{0, 1}, Cut{0, 2}, Cut{1, 1}, Cut{1, 2}, Cut{7, 1},
                                         Cut{7, 2}, Cut{64, 1}, Cut{64, 2}),
                         [](const auto& info) {
                           const uint32_t chunk = info.param.chunk_tokens;
                           return (chunk == 0 ? "Whole" : "Chunks" + std::to_string(chunk)) +
                                  "Threads" + std::to_string(info.param.threads);
                         });

// Equal results mean something only if they depend on all that they should depend on.
TEST(IsolationPower, EachPromptHasResultsOfItsOwn) {
  std::set<uint64_t> rows;
  std::set<TokenId> ids;
  size_t count = 0;
  for (const Record& record : reference()) {
    // At position 0 there is one token to depend on, and two prompts may begin with the same.
    const auto first = record.rows.begin() + (record.row_first == 0 ? 1 : 0);
    rows.insert(first, record.rows.end());
    ids.insert(record.ids.begin(), record.ids.end());
    count += static_cast<size_t>(record.rows.end() - first);
  }
  EXPECT_EQ(rows.size(), count);
  EXPECT_GT(ids.size(), 60u);
}

TEST(IsolationPower, EveryTokenBeforeReachesTheLogits) {
  const auto lab = open(2, 64);
  for (const size_t changed : {size_t{0}, size_t{255}, size_t{2048}, size_t{3998}}) {
    Job job = jobs()[31];
    job.prompt[changed] = (job.prompt[changed] + 1) % static_cast<TokenId>(kVocabulary);
    const Record record = lab->run({&job, 1})[0];
    ASSERT_EQ(record.rows.size(), reference()[31].rows.size());
    EXPECT_NE(record.rows.front(), reference()[31].rows.front()) << changed;
  }
}

TEST(IsolationPower, AnotherSeedDrawsOtherTokens) {
  const auto lab = open(1, 0);
  for (const size_t index : {size_t{1}, size_t{3}, size_t{5}}) {
    Job job = jobs()[index];
    job.sampling.seed += 1000;
    EXPECT_NE(lab->run({&job, 1})[0].ids, reference()[index].ids) << index;
  }
}

}  // namespace
}  // namespace inferd::isolation
