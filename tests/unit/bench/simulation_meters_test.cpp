#include "bench/simulation_meters.h"

#include <gtest/gtest.h>

#include <map>

#include "base/prng.h"

namespace inferd::bench {
namespace {

using scheduler::PriorityClass;

constexpr auto kInteractive = PriorityClass::kInteractive;

// Counted page by page: a place holds a token if any holder of the page has come that far, or if
// the page is in the index, which has whole pages.
double naive_share(const memory::PagedMemory& memory, uint32_t& pages) {
  std::map<PageId, uint32_t> filled;
  const auto records = memory.sequences().records();
  for (uint32_t slot = 0; slot < records.size(); ++slot) {
    if (records[slot].id.value == 0) continue;
    uint32_t position = 0;
    for (PageId page : memory.sequences().pages_of_slot(slot)) {
      const uint32_t here = std::min(records[slot].tokens - position, kPageTokens);
      const bool whole = memory.pool().is_indexed(page);
      filled[page] = std::max(filled[page], whole ? kPageTokens : here);
      position += kPageTokens;
    }
  }
  uint64_t held = 0;
  for (const auto& [page, tokens] : filled) held += tokens;
  pages = static_cast<uint32_t>(filled.size());
  return 1 - static_cast<double>(held) / (16.0 * static_cast<double>(filled.size()));
}

void compare_with_pages_one_by_one(uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Prng prng(seed);
  memory::PagedMemory memory(
      {.pages = PageCount(400), .sequences_max = 20, .sequence_tokens_max = 400});
  constexpr CacheDomain kDomain{1};
  std::vector<TokenId> common;
  for (uint32_t i = 0; i < 160; ++i) common.push_back(static_cast<TokenId>(i));
  std::vector<memory::PageTable> tables;
  std::vector<PageId> found;
  for (uint64_t id = 1; id <= 16; ++id) {
    // Some begin with what the first one has put into the index, in whole pages or in part.
    tables.push_back(memory.sequences().open(SequenceId(id), UserId(1)));
    memory::PageTable& table = tables.back();
    if (id > 1 && prng.below(2) == 0) {
      const auto wanted = static_cast<uint32_t>(1 + prng.below(common.size()));
      const uint32_t tokens =
          memory.prefixes().lookup(kDomain, std::span(common).first(wanted), found);
      memory.sequences().attach_prefix(table, found, tokens);
    }
    if (id == 1 || prng.below(2) == 0) {
      const auto more = id == 1 ? 165 : static_cast<uint32_t>(1 + prng.below(100));
      memory::Reservation reservation;
      ASSERT_EQ(memory.reserve(table.pages_needed(more), reservation),
                memory::ReserveStatus::kReserved);
      table.append(more, reservation);
      memory.pool().forfeit(reservation);
    }
    for (uint32_t page = 0; id == 1 && page < 10; ++page) {
      memory.prefixes().insert(kDomain, page == 0 ? kNoPage : table.pages()[page - 1],
                               table.pages()[page], std::span(common).subspan(page * 16, 16));
    }
    WasteMeter meter;
    meter.add(memory, 1000);
    uint32_t pages = 0;
    EXPECT_NEAR(meter.share(), naive_share(memory, pages), 1e-12) << "after sequence " << id;
    EXPECT_EQ(meter.pages_max(), pages);
    EXPECT_LT(meter.sequence_tokens_max(), 16u);
  }
  for (memory::PageTable& table : tables) memory.sequences().close(table);
}

TEST(WasteMeter, CountsEachHeldPageOnceAndOnlyItsEmptyPlaces) {
  for (uint64_t seed = 1; seed <= 20; ++seed) compare_with_pages_one_by_one(seed);
}

TEST(WasteMeter, WeighsByTime) {
  memory::PagedMemory memory(
      {.pages = PageCount(40), .sequences_max = 2, .sequence_tokens_max = 400});
  memory::PageTable table = memory.sequences().open(SequenceId(1), UserId(1));
  memory::Reservation reservation;
  ASSERT_EQ(memory.reserve(PageCount(10), reservation), memory::ReserveStatus::kReserved);
  WasteMeter meter;
  meter.add(memory, 5000);  // nothing is held: no waste, and no part in the mean
  EXPECT_EQ(meter.share(), 0);
  table.append(8, reservation);  // one page, half full
  meter.add(memory, 3000);
  table.append(24 + 128, reservation);  // ten pages, full
  meter.add(memory, 1000);
  EXPECT_DOUBLE_EQ(meter.share(), 8.0 * 3 / (16.0 * 3 + 160.0 * 1));
  EXPECT_DOUBLE_EQ(meter.time_mean_share(), 0.5 * 3 / 4);
  EXPECT_DOUBLE_EQ(meter.pages_mean(), (1.0 * 3 + 10.0 * 1) / 4);
  EXPECT_EQ(meter.sequence_tokens_max(), 8u);
  memory.pool().forfeit(reservation);
  memory.sequences().close(table);
}

TEST(FairnessMeter, MeasuresHowFarApartTwoGetWhileBothLack) {
  FairnessMeter meter(3);
  const auto step = [&meter](std::vector<uint64_t> cost, std::vector<uint32_t> lacking) {
    for (uint32_t user = 0; user < cost.size(); ++user) {
      meter.serve(kInteractive, user, cost[user], user == 2 ? 200 : 100);
    }
    for (uint32_t user : lacking) meter.note_lacking(kInteractive, user);
    meter.end_step();
  };
  step({1000, 0, 0}, {0});  // nobody else wanted anything
  EXPECT_EQ(meter.apart_max(), 0);
  step({0, 0, 0}, {0, 1});
  step({50, 0, 0}, {0, 1});
  EXPECT_EQ(meter.apart_max(), 50);
  step({0, 80, 0}, {0, 1});  // 50 ahead, then 30 behind
  EXPECT_EQ(meter.apart_max(), 80);
  step({500, 0, 0}, {0});  // the other lacks nothing: the next span begins anew
  step({0, 0, 0}, {0, 1});
  EXPECT_EQ(meter.apart_max(), 80);
  step({0, 0, 0}, {1, 2});
  step({0, 100, 400}, {1, 2});  // at twice the weight: 200 to 100
  EXPECT_EQ(meter.apart_max(), 100);
  EXPECT_EQ(meter.contended_steps(), 6u);
  EXPECT_EQ(meter.service(2), 200);
  EXPECT_EQ(fair_bound(1000, 100), 2 * 1000 + 200);
  EXPECT_EQ(fair_bound(100, 100), 2 * 200 + 200);
}

TEST(FairnessMeter, ClassesAreApart) {
  FairnessMeter meter(2);
  for (int i = 0; i < 2; ++i) {
    meter.serve(PriorityClass::kInteractive, 0, 100, 100);
    meter.note_lacking(PriorityClass::kInteractive, 0);
    meter.note_lacking(PriorityClass::kBatch, 1);
    meter.end_step();
  }
  EXPECT_EQ(meter.apart_max(), 0);
  EXPECT_EQ(meter.contended_steps(), 0u);
}

TEST(MomentLog, StaysBoundedAndEven) {
  MomentLog log;
  for (uint32_t i = 0; i < 200'000; ++i) {
    const double time_s = i * 0.013;
    if (log.due(time_s)) log.add({.time_s = time_s});
  }
  const auto moments = log.moments();
  EXPECT_LE(moments.size(), MomentLog::kMomentsMax);
  EXPECT_GT(moments.size(), MomentLog::kMomentsMax / 3);
  EXPECT_EQ(moments.front().time_s, 0);
  EXPECT_GT(moments.back().time_s, 2590);
  double longest = 0, shortest = 1e9;
  for (size_t i = 1; i + 1 < moments.size(); ++i) {
    longest = std::max(longest, moments[i].time_s - moments[i - 1].time_s);
    shortest = std::min(shortest, moments[i].time_s - moments[i - 1].time_s);
  }
  EXPECT_LT(longest, 3 * shortest);
}

}  // namespace
}  // namespace inferd::bench
