// Forked or computed alone: the bytes are the same. Children that part from their parents at every
// kind of place, children of children, parents that go on, end, pause for want of pages or are
// cancelled.
#include <gtest/gtest.h>

#include <array>

#include "base/prng.h"
#include "small_lab.h"

namespace inferd::isolation {
namespace {

// Where in its parent's answer a child begins; and how many tokens of its own it has.
constexpr std::array<uint32_t, 8> kAnswered{0, 1, 4, 7, 15, 16, 17, 30};
constexpr std::array<uint32_t, 4> kOwn{0, 1, 5, 20};

class Forks : public testing::TestWithParam<Layout> {
 protected:
  static std::unique_ptr<Lab> open(const Layout& one) {
    return open_small_lab(
        {.threads = one.threads, .pages = one.pages, .chunk_tokens = one.chunk_tokens});
  }

  // Four parents, eight children of each, and four children of those of the first.
  Forks() {
    const std::array<uint32_t, 4> lengths{15, 48, 100, 259};
    jobs_ = jobs_of(lengths, kSmallVocabulary, 71);
    for (Job& job : jobs_) {
      job.score = false;
      job.max_tokens = 60;
    }
    const auto alone = open({0, 0, 1})->run_alone(jobs_);
    Prng prng(72);
    for (uint32_t parent = 0; parent < lengths.size(); ++parent) {
      for (uint32_t i = 0; i < kAnswered.size(); ++i) {
        add_child(parent, alone[parent].ids, kAnswered[i], kOwn[(i + parent) % kOwn.size()], prng);
      }
    }
    const std::vector<Record> children = open({0, 0, 1})->run_alone(jobs_);
    for (uint32_t parent = 4; parent < 8; ++parent) {
      add_child(parent, children[parent].ids, 5, parent % 2, prng);
    }
    expected_ = open({0, 0, 1})->run_alone(jobs_);
  }

  void add_child(uint32_t parent, const std::vector<TokenId>& answer, uint32_t answered,
                 uint32_t own, Prng& prng) {
    Job child = jobs_[parent];
    answered = std::min(answered, static_cast<uint32_t>(answer.size()) - 1);
    child.prompt.insert(child.prompt.end(), answer.begin(), answer.begin() + answered);
    for (uint32_t i = 0; i < own; ++i) {
      child.prompt.push_back(static_cast<TokenId>(prng.below(kSmallVocabulary)));
    }
    child.parent = parent;
    child.sampling.branch = own == 0 ? 0 : static_cast<uint32_t>(jobs_.size());
    child.max_tokens = 25;
    // In time for what it shares, or before it, or when the parent has gone further.
    child.arrive_step = jobs_[parent].arrive_step + answered + static_cast<uint32_t>(prng.below(6));
    jobs_.push_back(std::move(child));
  }

  static uint64_t cached(std::span<const Record> records) {
    uint64_t sum = 0;
    for (const Record& record : records) sum += record.cached_tokens;
    return sum;
  }

  std::vector<Job> jobs_;
  std::vector<Record> expected_;
};

TEST_P(Forks, TheyGiveTheBytesOfTheirTokensAlone) {
  const auto lab = open(GetParam());
  for (const CacheDomain domain : {CacheDomain(), CacheDomain(7)}) {
    for (Job& job : jobs_) job.domain = domain;
    const std::vector<Record> records = lab->run(jobs_);
    expect_equal(expected_, records, jobs_);
    // In the smallest pool they come one after the other, and nobody's parent is there.
    const uint32_t pages = GetParam().pages;
    const uint64_t at_least = pages == 0 ? 2001 : pages == 50 ? 101 : 0;
    EXPECT_GE(cached(records), at_least);
  }
}

TEST_P(Forks, WhatCancelledParentsLeaveThemIsRight) {
  for (uint32_t parent = 0; parent < 8; ++parent) {
    jobs_[parent].cancel_step = jobs_[parent].arrive_step + 3 + 5 * parent;
    jobs_[parent].cancel_in_flight = parent % 2 == 0;
  }
  const std::vector<Record> records = open(GetParam())->run(jobs_);
  const auto from = [](auto& all) { return std::span(all).subspan(8); };
  expect_equal(from(expected_), from(records), from(jobs_));
}

INSTANTIATE_TEST_SUITE_P(RoomChunksAndThreads, Forks,
                         testing::Values(Layout{0, 0, 1}, Layout{0, 7, 2}, Layout{50, 0, 2},
                                         Layout{30, 32, 1}),
                         layout_name);

}  // namespace
}  // namespace inferd::isolation
