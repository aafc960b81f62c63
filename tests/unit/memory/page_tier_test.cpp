// Two tiers: content that leaves the pool for the next tier is found there, comes back, or is lost
// cleanly. A plain map stands for the bytes; what a page holds is the whole path of tokens up to
// it.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/prng.h"
#include "memory/paged_memory.h"

namespace inferd::memory {
namespace {

constexpr CacheDomain kDomain{1};
constexpr UserId kUser{1000};

using Tokens = std::vector<TokenId>;

Tokens counted(uint32_t count, TokenId first = 0) {
  Tokens tokens(count);
  for (uint32_t i = 0; i < count; ++i) tokens[i] = first + static_cast<TokenId>(i);
  return tokens;
}

class FakeTier final : public PageTier {
 public:
  uint32_t stores_free() const override { return stores_free_; }
  FetchState fetch(SlotRef) override { return FetchState::kHere; }
  double fetch_ns() const override { return 0; }

  uint32_t stores_free_ = 1000;
};

// Memory with two tiers, and bytes for both.
class TwoTiers {
 public:
  explicit TwoTiers(uint32_t pages, uint32_t slots)
      : memory({.pages = PageCount(pages),
                .sequences_max = 8,
                .sequence_tokens_max = 256,
                .cache_domains_max = 4,
                .tier_slots = slots}) {
    memory.set_tier(&tier);
  }

  // What a step loop does with stores before anything else happens to the pages.
  void make_stores() {
    for (const PageStore& store : memory.stores()) {
      in_slots[store.slot.slot] = {store.slot.generation, in_pages.at(store.page)};
    }
    memory.stores().clear();
  }

  // Runs a sequence over `tokens`: attaches what pages have, loads what slots have, computes the
  // rest. Returns how many tokens it loaded; the table is left open.
  PageTable run(const Tokens& tokens, uint64_t id, uint32_t& loaded, CacheDomain domain = kDomain) {
    std::vector<PageId> pages;
    std::vector<SlotRef> stored;
    uint32_t cached = memory.prefixes().lookup(domain, tokens, pages, &stored);
    if (cached % kPageTokens != 0) {
      pages.pop_back();
      cached -= cached % kPageTokens;
    }
    for (size_t i = 0; i < pages.size(); ++i) expect_content(in_pages.at(pages[i]), tokens, i);
    PageTable table = memory.sequences().open(SequenceId(id), kUser);
    memory.sequences().attach_prefix(table, pages, cached);
    loaded = 0;
    while (table.tokens() < tokens.size()) {
      const uint32_t done = table.tokens();
      const uint32_t more =
          std::min<uint32_t>(kPageTokens, static_cast<uint32_t>(tokens.size()) - done);
      Reservation reservation;
      if (memory.reserve(table.pages_needed(more), reservation) != ReserveStatus::kReserved) break;
      table.append(more, reservation);
      make_stores();
      const uint32_t index = done / kPageTokens;
      const PageId page = table.pages()[index];
      const PageId parent = index == 0 ? kNoPage : table.pages()[index - 1];
      if (more < kPageTokens) break;
      const auto rest = std::span<const TokenId>(tokens).subspan(done);
      SlotRef slot;
      if (memory.prefixes().stored_after(domain, parent, rest, std::span(&slot, 1)) == 1 &&
          in_slots.at(slot.slot).first == slot.generation) {
        in_pages[page] = in_slots.at(slot.slot).second;
        expect_content(in_pages.at(page), tokens, index);
        loaded += kPageTokens;
      } else {
        in_pages[page] = Tokens(tokens.begin(), tokens.begin() + done + kPageTokens);
      }
      const PageId kept = memory.prefixes().insert(domain, parent, page, rest.first(kPageTokens));
      if (kept != kNoPage && kept != page) memory.sequences().replace(table, index, kept);
    }
    return table;
  }

  // Runs a sequence to its end and lets go of it; returns how many tokens it loaded.
  uint32_t run_and_close(const Tokens& tokens, uint64_t id, CacheDomain domain = kDomain) {
    uint32_t loaded = 0;
    PageTable table = run(tokens, id, loaded, domain);
    memory.sequences().close(table);
    return loaded;
  }

  static void expect_content(const Tokens& content, const Tokens& tokens, size_t page) {
    const size_t end = (page + 1) * kPageTokens;
    ASSERT_EQ(content.size(), end);
    EXPECT_TRUE(std::equal(content.begin(), content.end(), tokens.begin()));
  }

  PagedMemory memory;
  FakeTier tier;
  std::map<PageId, Tokens> in_pages;
  std::map<uint32_t, std::pair<uint32_t, Tokens>> in_slots;
};

TEST(PageTier, ContentThatLeavesThePoolComesBack) {
  TwoTiers tiers(8, 16);
  EXPECT_EQ(tiers.run_and_close(counted(100), 1), 0u);  // 7 pages, 6 of them whole
  EXPECT_EQ(tiers.run_and_close(counted(128, 500), 2), 0u);
  EXPECT_EQ(tiers.memory.prefixes().slots_used(), 6u);
  EXPECT_EQ(tiers.run_and_close(counted(100), 3), 96u);
  // It leaves again without being stored again.
  tiers.tier.stores_free_ = 0;
  tiers.run_and_close(counted(120, 900), 4);
  EXPECT_EQ(tiers.run_and_close(counted(100), 5), 96u);
  EXPECT_TRUE(tiers.memory.verify().ok());
}

TEST(PageTier, WhatIsLostTakesWhatComesAfterItAlong) {
  TwoTiers tiers(8, 16);
  uint32_t loaded = 0;
  PageTable table = tiers.run(counted(100), 1, loaded);
  tiers.memory.sequences().close(table);
  tiers.memory.drop_cached(UINT32_MAX, 100);
  tiers.make_stores();
  std::vector<PageId> pages;
  std::vector<SlotRef> stored;
  EXPECT_EQ(tiers.memory.prefixes().lookup(kDomain, counted(100), pages, &stored), 0u);
  ASSERT_EQ(stored.size(), 6u);
  tiers.memory.prefixes().lose(stored[2]);
  EXPECT_EQ(tiers.memory.prefixes().lookup(kDomain, counted(100), pages, &stored), 0u);
  EXPECT_EQ(stored.size(), 2u);
  EXPECT_TRUE(tiers.memory.verify().ok());
  // A slot that was used again meanwhile is not the one that was lost.
  const SlotRef old = stored[1];
  tiers.memory.prefixes().flush_all();
  table = tiers.run(counted(100, 300), 2, loaded);
  tiers.memory.sequences().close(table);
  tiers.memory.drop_cached(UINT32_MAX, 100);
  const uint32_t nodes = tiers.memory.prefixes().nodes();
  tiers.memory.prefixes().lose(old);
  EXPECT_EQ(tiers.memory.prefixes().nodes(), nodes);
  tiers.memory.stores().clear();
}

TEST(PageTier, NobodyElsesDomainFindsIt) {
  TwoTiers tiers(8, 16);
  uint32_t loaded = 0;
  PageTable table = tiers.run(counted(100), 1, loaded);
  tiers.memory.sequences().close(table);
  tiers.memory.drop_cached(UINT32_MAX, 100);
  tiers.make_stores();
  table = tiers.run(counted(100), 2, loaded, CacheDomain(2));
  EXPECT_EQ(loaded, 0u);
  tiers.memory.sequences().close(table);
}

TEST(PageTier, StoringAheadMakesLeavingFree) {
  TwoTiers tiers(8, 16);
  uint32_t loaded = 0;
  PageTable table = tiers.run(counted(112), 1, loaded);
  tiers.memory.sequences().close(table);
  const auto store = [&](uint32_t low, uint32_t high, uint32_t count_max) {
    return tiers.memory.store_ahead({PageCount(low), PageCount(high)}, count_max);
  };
  EXPECT_EQ(store(1, 8, 100), 0u);  // one page is free: the low watermark is not reached
  EXPECT_EQ(store(2, 4, 2), 2u);    // it is, so on to the high one, over several calls
  EXPECT_EQ(store(2, 4, 2), 1u);
  EXPECT_EQ(store(2, 4, 2), 0u);
  EXPECT_EQ(store(4, 8, 2), 0u);  // and no further until it is reached again
  EXPECT_EQ(store(5, 6, 100), 2u);
  tiers.make_stores();
  EXPECT_EQ(tiers.memory.pool().counts().cached, PageCount(7));
  tiers.tier.stores_free_ = 0;
  tiers.memory.drop_cached(UINT32_MAX, 5);
  EXPECT_EQ(tiers.memory.prefixes().nodes(), 7u);
  EXPECT_TRUE(tiers.memory.verify().ok());
}

TEST(PageTier, RestoredContentIsFoundAndLeavesFromTheEnd) {
  TwoTiers tiers(8, 4);
  const Tokens tokens = counted(64);
  uint32_t parent = kNoIndex;
  for (uint32_t i = 0; i < 4; ++i) {
    parent = tiers.memory.prefixes().restore(
        kDomain, parent, std::span<const TokenId>(tokens).subspan(i * kPageTokens, kPageTokens));
    ASSERT_NE(parent, kNoIndex);
    const SlotRef slot = tiers.memory.prefixes().slot_of_node(parent);
    tiers.in_slots[slot.slot] = {slot.generation,
                                 Tokens(tokens.begin(), tokens.begin() + (i + 1) * kPageTokens)};
  }
  tiers.memory.prefixes().order_restored();
  EXPECT_EQ(tiers.memory.prefixes().restore(kDomain, kNoIndex, counted(16, 99)), kNoIndex);
  ASSERT_TRUE(tiers.memory.verify().ok()) << tiers.memory.verify().error().message();
  uint32_t seen = 0;
  tiers.memory.prefixes().visit_stored(
      [&](uint32_t, uint32_t above, CacheDomain domain, SlotRef, std::span<const TokenId> page) {
        EXPECT_EQ(domain, kDomain);
        EXPECT_EQ(above == kNoIndex, seen == 0);
        EXPECT_EQ(page[0], static_cast<TokenId>(seen * kPageTokens));
        ++seen;
      });
  EXPECT_EQ(seen, 4u);
  uint32_t loaded = 0;
  PageTable table = tiers.run(counted(32, 700), 1, loaded);
  tiers.memory.sequences().close(table);
  tiers.memory.drop_cached(UINT32_MAX, 100);  // two more for four slots
  tiers.make_stores();
  EXPECT_TRUE(tiers.memory.verify().ok());
  table = tiers.run(tokens, 2, loaded);
  EXPECT_EQ(loaded, 32u);
  tiers.memory.sequences().close(table);
}

// Random prompts with few different beginnings through small tiers; whatever a page is said to
// hold, it does, and the lists stay in order.
TEST(PageTier, NoContentIsEverTakenForAnother) {
  uint64_t loaded_sum = 0;
  uint32_t lost = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Prng prng(seed);
    TwoTiers tiers(12 + static_cast<uint32_t>(prng.below(20)),
                   static_cast<uint32_t>(prng.below(40)));
    std::vector<PageTable> open;
    for (uint64_t round = 1; round <= 120; ++round) {
      Tokens tokens(1 + prng.below(160));
      for (TokenId& token : tokens) token = static_cast<TokenId>(prng.below(40) == 0);
      // What depth costs changes all the while.
      const double position = 0.02 * static_cast<double>(prng.below(8));
      for (int i = 0; i < 20; ++i) tiers.memory.prefixes().note_costs(1, position);
      tiers.tier.stores_free_ = prng.below(4) == 0 ? static_cast<uint32_t>(prng.below(3)) : 1000;
      uint32_t loaded = 0;
      open.push_back(tiers.run(tokens, round, loaded, CacheDomain(1 + prng.below(2))));
      loaded_sum += loaded;
      while (open.size() > prng.below(3)) {
        const size_t which = prng.below(open.size());
        tiers.memory.sequences().close(open[which]);
        std::swap(open[which], open.back());
        open.pop_back();
      }
      const uint64_t dice = prng.below(12);
      if (dice == 0) tiers.memory.drop_cached(UINT32_MAX, 1 + static_cast<uint32_t>(prng.below(5)));
      if (dice == 1)
        tiers.memory.store_ahead({PageCount(10), PageCount(20)}, 1 + static_cast<uint32_t>(prng.below(5)));
      if (dice == 2) tiers.memory.prefixes().flush(CacheDomain(1));
      if (dice == 4)
        tiers.memory.prefixes().pin(CacheDomain(1), tokens,
                                    UserId(1 + static_cast<uint32_t>(prng.below(2))), 12);
      if (dice == 5)
        tiers.memory.prefixes().unpin(UserId(1 + static_cast<uint32_t>(prng.below(2))));
      tiers.make_stores();
      if (dice == 3 && !tiers.in_slots.empty()) {
        auto unlucky = tiers.in_slots.begin();
        std::advance(unlucky, static_cast<long>(prng.below(tiers.in_slots.size())));
        tiers.memory.prefixes().lose({unlucky->first, unlucky->second.first});
        ++lost;
      }
      const Result<void> verdict = tiers.memory.verify();
      ASSERT_TRUE(verdict.ok()) << "seed " << seed << " round " << round << ": "
                                << verdict.error().message();
    }
    for (PageTable& table : open) tiers.memory.sequences().close(table);
  }
  EXPECT_GT(loaded_sum, 10'000u);
  EXPECT_GT(lost, 100u);
}

}  // namespace
}  // namespace inferd::memory
