// What a page held before, who else wants it, and where in it a sequence ends do not reach a
// result.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "small_lab.h"

namespace inferd::isolation {
namespace {

// On both sides of the ends of pages (16), attention blocks (64) and splits (256).
constexpr std::array<uint32_t, 15> kEdges{15, 16,  17,  31,  32,  33,  63, 64,
                                          65, 255, 256, 257, 511, 512, 513};
// A job of the longest length with all that it generates.
constexpr uint32_t kLongestPages = 33;

class Pages : public testing::Test {
 protected:
  static std::unique_ptr<Lab> open(uint32_t pages, uint32_t chunk_tokens = 0) {
    return open_small_lab({.threads = 2, .pages = pages, .chunk_tokens = chunk_tokens});
  }

  // Each alone, over fresh pages.
  static std::vector<Record> fresh(std::span<const Job> jobs) {
    const auto lab = open(0);
    std::vector<Record> records;
    for (const Job& job : jobs) {
      lab->refresh_pages();
      records.push_back(lab->run({&job, 1})[0]);
    }
    return records;
  }

  // Who wrote each page, in order.
  static void watch(Lab& lab, std::map<PageId, std::vector<SequenceId>>& writers) {
    lab.on_plan = [&writers](const scheduler::BatchPlan& plan, uint32_t) {
      for (const scheduler::BatchItem& item : plan.items) {
        for (const PageId page : item.pages) {
          std::vector<SequenceId>& of_page = writers[page];
          if (of_page.empty() || of_page.back() != item.sequence) of_page.push_back(item.sequence);
        }
      }
    };
  }

  static const std::vector<Job>& edges() {
    static const std::vector<Job> made = [] {
      std::vector<Job> jobs = jobs_of(kEdges, kSmallVocabulary, 11);
      // Across the next end of a page too.
      for (Job& job : jobs) job.max_tokens = 15 + (job.max_tokens & 3);
      return jobs;
    }();
    return made;
  }
};

TEST_F(Pages, WhatAPageHeldBeforeDoesNotMatter) {
  const std::vector<Record> expected = fresh(edges());
  const auto lab = open(kLongestPages + 1);
  std::map<PageId, std::vector<SequenceId>> writers;
  watch(*lab, writers);
  constexpr std::array<uint32_t, 1> kAll{520};
  for (size_t i = 0; i < edges().size(); ++i) {
    const std::vector<Job> before = jobs_of(kAll, kSmallVocabulary, 100 + i);
    lab->run(before);
    const std::vector<Record> records = lab->run({&edges()[i], 1});
    expect_equal({&expected[i], 1}, records, {&edges()[i], 1});
  }
  // Each of the two in turn wrote the pages that all of them used.
  EXPECT_GE(writers.at(PageId(1)).size(), 2 * edges().size());
}

TEST_F(Pages, PagesOfThoseThatEndGoToOthersWhoAreNotDisturbed) {
  const std::vector<Record> expected = fresh(edges());
  // About two of the longest at a time: the rest waits for pages.
  const auto lab = open(3 * kLongestPages);
  std::map<PageId, std::vector<SequenceId>> writers;
  watch(*lab, writers);
  std::vector<Job> jobs = edges();
  for (size_t i = 0; i < jobs.size(); ++i) jobs[i].arrive_step = static_cast<uint32_t>(3 * i);
  expect_equal(expected, lab->run(jobs), jobs);
  size_t reused = 0;
  for (const auto& [page, sequences] : writers) reused += sequences.size() > 1 ? 1 : 0;
  EXPECT_GE(reused, 30u);
}

TEST_F(Pages, ThoseWhoLetGoOfTheirPagesComputeTheSameAgain) {
  std::vector<Job> jobs = edges();
  for (Job& job : jobs) job.max_tokens += 100;
  // The youngest are those who let go: small ones, so that one after the other has to.
  std::reverse(jobs.begin(), jobs.end());
  const std::vector<Record> expected = fresh(jobs);
  // Room for their prompts, but not for what they all generate.
  uint32_t pages = 0;
  for (const uint32_t length : kEdges) pages += memory::pages_for_tokens(length).value + 1;
  const auto lab = open(pages + 2);
  const std::vector<Record> records = lab->run(jobs);
  expect_equal(expected, records, jobs);
  uint32_t preemptions = 0;
  for (const Record& record : records) preemptions += record.preemptions;
  EXPECT_GE(preemptions, 3u);
}

TEST_F(Pages, ACancelledPrefillDisturbsNobody) {
  const std::vector<Record> expected = fresh(edges());
  std::vector<Job> jobs = edges();
  // Beside each, one that is cancelled in mid-prompt: before a step, or while it is computed.
  constexpr std::array<uint32_t, 15> kCancelled{600, 601, 602, 603, 604, 605, 606, 607,
                                                608, 609, 610, 611, 612, 613, 614};
  std::vector<Job> cancelled = jobs_of(kCancelled, kSmallVocabulary, 12);
  for (size_t i = 0; i < cancelled.size(); ++i) {
    cancelled[i].score = true;
    cancelled[i].arrive_step = static_cast<uint32_t>(2 * i);
    cancelled[i].cancel_step = cancelled[i].arrive_step + 3 + static_cast<uint32_t>(i);
    cancelled[i].cancel_in_flight = i % 2 == 0;
    jobs[i].arrive_step = cancelled[i].cancel_step;  // comes as its pages are free
  }
  const std::vector<Record> whole = fresh([&] {
    std::vector<Job> uncancelled = cancelled;
    for (Job& job : uncancelled) job.arrive_step = 0, job.cancel_step = kNever;
    return uncancelled;
  }());
  jobs.insert(jobs.end(), cancelled.begin(), cancelled.end());
  const auto lab = open(0, 7);
  std::map<PageId, std::vector<SequenceId>> writers;
  watch(*lab, writers);
  const std::vector<Record> records = lab->run(jobs);
  expect_equal(expected, records, jobs);
  // What a cancelled one had computed until then was right too.
  for (size_t i = 0; i < cancelled.size(); ++i) {
    const Record& record = records[edges().size() + i];
    EXPECT_EQ(record.finish, scheduler::FinishReason::kCancelled);
    EXPECT_GE(record.rows.size(), 14u);
    ASSERT_LT(record.rows.size(), whole[i].rows.size());
    EXPECT_TRUE(std::equal(record.rows.begin(), record.rows.end(), whole[i].rows.begin())) << i;
  }
  size_t reused = 0;
  for (const auto& [page, sequences] : writers) reused += sequences.size() > 1 ? 1 : 0;
  EXPECT_GE(reused, 10u);
}

TEST_F(Pages, GivenBackToTheSystemTheyComeAsNew) {
  const std::vector<Record> expected = fresh(edges());
  const auto lab = open(0);
  expect_equal(expected, lab->run(edges()), edges());
  EXPECT_GT(lab->pool().counts().idle.value, 0u);
  lab->refresh_pages();
  EXPECT_EQ(lab->pool().counts().idle.value, 0u);
  expect_equal(expected, lab->run(edges()), edges());
}

}  // namespace
}  // namespace inferd::isolation
