// Stored elsewhere and loaded back, or never away, or lost and computed again: the bytes are the
// same.
#include <gtest/gtest.h>

#include "base/prng.h"
#include "small_lab.h"

namespace inferd::isolation {
namespace {

struct TierLayout {
  uint32_t pages, chunk_tokens, threads, slots, lose_every;
};

std::string tier_layout_name(const testing::TestParamInfo<TierLayout>& info) {
  return "Pages" + std::to_string(info.param.pages) + "Chunks" +
         std::to_string(info.param.chunk_tokens) + "Threads" + std::to_string(info.param.threads) +
         "Slots" + std::to_string(info.param.slots) + (info.param.lose_every == 0 ? "" : "Losing");
}

class Tiers : public testing::TestWithParam<TierLayout> {
 protected:
  Tiers() {
    Prng prng(91);
    std::vector<TokenId> beginning(300);
    for (TokenId& token : beginning) token = static_cast<TokenId>(prng.below(kSmallVocabulary));
    std::vector<uint32_t> lengths;
    for (uint32_t i = 0; i < 24; ++i)
      lengths.push_back(10 + static_cast<uint32_t>(prng.below(120)));
    jobs_ = jobs_of(lengths, kSmallVocabulary, 92);
    for (size_t i = 0; i < jobs_.size(); ++i) {
      Job& job = jobs_[i];
      job.score = i % 7 == 3;
      job.max_tokens = 60 + static_cast<uint32_t>(prng.below(100));
      if (i % 2 == 0) std::copy_n(beginning.begin(), job.prompt.size() / 2, job.prompt.begin());
    }
  }

  static std::unique_ptr<Lab> open(const TierLayout& one) {
    return open_small_lab({.threads = one.threads,
                           .pages = one.pages,
                           .chunk_tokens = one.chunk_tokens,
                           .tier_slots = one.slots,
                           .tier_lose_every = one.lose_every});
  }

  std::vector<Job> jobs_;
};

uint64_t preempted(std::span<const Record> records) {
  uint64_t sum = 0;
  for (const Record& record : records) sum += record.preemptions;
  return sum;
}

TEST_P(Tiers, PreemptedAndLoadedBackTheyGiveTheSameBytes) {
  const std::vector<Record> expected = open({0, 0, 1, 0, 0})->run_alone(jobs_);
  const auto lab = open(GetParam());
  for (const uint32_t round : {0u, 1u}) {
    SCOPED_TRACE("round " + std::to_string(round));
    std::vector<Job> jobs = jobs_;
    for (size_t i = 0; i < jobs.size(); ++i) {
      jobs[i].domain = CacheDomain(7);
      jobs[i].arrive_step = static_cast<uint32_t>(i * 5 % jobs.size());
    }
    const std::vector<Record> records = lab->run(jobs);
    expect_equal(expected, records, jobs);
    EXPECT_GT(preempted(records), 4u);
  }
  EXPECT_GT(lab->tier_loads(), 50u);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Tiers,
                         testing::Values(TierLayout{28, 0, 1, 2000, 0},
                                         TierLayout{28, 7, 2, 2000, 0},
                                         TierLayout{40, 64, 2, 60, 0},
                                         TierLayout{28, 0, 2, 2000, 5},
                                         TierLayout{40, 3, 1, 2000, 0}),
                         tier_layout_name);

// What an administrator's flush or a restart leaves is used, and only by those who may.
TEST(TierDomains, AnothersPagesAreComputedAnew) {
  const std::vector<uint32_t> lengths(1, 200);
  std::vector<Job> jobs = jobs_of(lengths, kSmallVocabulary, 93);
  jobs[0].score = false;
  jobs[0].domain = CacheDomain(1);
  const auto lab = open_small_lab({.pages = 40, .tier_slots = 100});
  const Record first = lab->run(jobs)[0];
  lab->drop_cached();
  const Record again = lab->run(jobs)[0];
  EXPECT_EQ(again.loaded_tokens, 192u);
  EXPECT_EQ(again.cached_tokens, 192u);
  EXPECT_EQ(difference(first, again), "equal");
  lab->drop_cached();
  jobs[0].domain = CacheDomain(2);
  const Record other = lab->run(jobs)[0];
  EXPECT_EQ(other.loaded_tokens, 0u);
  EXPECT_EQ(difference(first, other), "equal");
}

}  // namespace
}  // namespace inferd::isolation
