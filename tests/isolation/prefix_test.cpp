// Found in the prefix index or computed: the bytes are the same. Prompts that begin alike and part
// at every kind of place, cold and warm, in one step and in chunks, with room for all of them and
// for few.
#include <gtest/gtest.h>

#include <array>

#include "base/prng.h"
#include "small_lab.h"

namespace inferd::isolation {
namespace {

// How much of the common beginning a prompt has: around the ends of pages, blocks and splits.
constexpr std::array<uint32_t, 16> kCommon{1,   15,  16,  17,  31,  48,  63,  65,
                                           255, 256, 257, 400, 511, 512, 513, 600};

class Prefixes : public testing::TestWithParam<Layout> {
 protected:
  Prefixes() {
    Prng prng(51);
    std::vector<TokenId> beginning(600);
    for (TokenId& token : beginning) token = static_cast<TokenId>(prng.below(kSmallVocabulary));
    const std::array<uint32_t, 2 * kCommon.size()> lengths{};
    jobs_ = jobs_of(lengths, kSmallVocabulary, 52);
    for (size_t i = 0; i < jobs_.size(); ++i) {
      Job& job = jobs_[i];
      job.score = false;
      job.max_tokens = 12 + static_cast<uint32_t>(i % 9);
      job.prompt.assign(beginning.begin(), beginning.begin() + kCommon[i / 2]);
      // The second of each length goes on otherwise; the first of some is all beginning.
      const uint32_t own = i % 4 == 0 ? 0 : 1 + static_cast<uint32_t>(prng.below(40));
      for (uint32_t k = 0; k < own; ++k) {
        job.prompt.push_back(static_cast<TokenId>(prng.below(kSmallVocabulary)));
      }
    }
  }

  static std::unique_ptr<Lab> open(const Layout& one) {
    return open_small_lab(
        {.threads = one.threads, .pages = one.pages, .chunk_tokens = one.chunk_tokens});
  }

  std::vector<Job> in_domain(CacheDomain domain, uint32_t steps_apart) const {
    std::vector<Job> jobs = jobs_;
    for (size_t i = 0; i < jobs.size(); ++i) {
      jobs[i].domain = domain;
      // Not by length: long ones before short ones and after.
      jobs[i].arrive_step = static_cast<uint32_t>(i * 11 % jobs.size()) * steps_apart;
    }
    return jobs;
  }

  std::vector<Job> jobs_;
};

uint64_t cached(std::span<const Record> records) {
  uint64_t sum = 0;
  for (const Record& record : records) sum += record.cached_tokens;
  return sum;
}

TEST_P(Prefixes, FoundOrComputedTheyGiveTheSameBytes) {
  const std::vector<Record> expected = open({0, 0, 1})->run_alone(jobs_);
  EXPECT_EQ(cached(expected), 0u);
  const auto lab = open(GetParam());
  uint64_t found = 0;
  for (const uint32_t steps_apart : {0u, 1u, 5u}) {
    SCOPED_TRACE(std::to_string(steps_apart) + " steps apart");
    const std::vector<Job> jobs = in_domain(CacheDomain(7), steps_apart);
    const std::vector<Record> records = lab->run(jobs);
    expect_equal(expected, records, jobs);
    found += cached(records);
  }
  EXPECT_GT(found, 8000u);
}

TEST_P(Prefixes, WhatCancelledOnesLeaveBehindIsRight) {
  const std::vector<Record> expected = open({0, 0, 1})->run_alone(jobs_);
  const auto lab = open(GetParam());
  std::vector<Job> others = in_domain(CacheDomain(7), 1);
  for (size_t i = 0; i < others.size(); ++i) {
    others[i].cancel_step = others[i].arrive_step + 1 + static_cast<uint32_t>(i % 5);
    others[i].cancel_in_flight = i % 2 == 0;
  }
  lab->run(others);
  const std::vector<Job> jobs = in_domain(CacheDomain(7), 1);
  const std::vector<Record> records = lab->run(jobs);
  expect_equal(expected, records, jobs);
}

TEST_P(Prefixes, AnotherDomainFindsNothingAndGetsTheSame) {
  const std::vector<Record> expected = open({0, 0, 1})->run_alone(jobs_);
  const auto lab = open(GetParam());
  lab->run(in_domain(CacheDomain(7), 1));
  std::vector<Job> jobs = jobs_;
  for (size_t i = 0; i < jobs.size(); ++i) jobs[i].domain = CacheDomain(100 + i);
  const std::vector<Record> records = lab->run(jobs);
  expect_equal(expected, records, jobs);
  EXPECT_EQ(cached(records), 0u);
}

INSTANTIATE_TEST_SUITE_P(RoomChunksAndThreads, Prefixes,
                         testing::Values(Layout{0, 0, 1}, Layout{0, 7, 2}, Layout{0, 64, 2},
                                         Layout{60, 0, 2}, Layout{60, 32, 1}),
                         layout_name);

}  // namespace
}  // namespace inferd::isolation
