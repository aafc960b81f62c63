// The prefix index against a naive model, and each of its promises alone.
#include "memory/prefix_index.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/prng.h"
#include "memory/paged_memory.h"

namespace inferd::memory {
namespace {

constexpr UserId kUser{1000};
constexpr CacheDomain kDomain{1};
constexpr CacheDomain kOther{2};

using Tokens = std::vector<TokenId>;

Tokens counted(uint32_t count, TokenId first = 0) {
  Tokens tokens(count);
  for (uint32_t i = 0; i < count; ++i) tokens[i] = first + static_cast<TokenId>(i);
  return tokens;
}

class PrefixIndexTest : public testing::Test {
 protected:
  explicit PrefixIndexTest(MemoryConfig config = {.pages = PageCount(64),
                                                  .sequences_max = 8,
                                                  .sequence_tokens_max = 512,
                                                  .cache_domains_max = 4})
      : memory_(config) {}
  ~PrefixIndexTest() override { EXPECT_TRUE(memory_.verify().ok()); }

  // A sequence that computed `tokens` after what the cache had, and offered its whole pages.
  PageTable compute(const Tokens& tokens, CacheDomain domain = kDomain, UserId user = kUser) {
    const uint32_t cached = memory_.prefixes().lookup(domain, tokens, pages_);
    PageTable table = memory_.sequences().open(SequenceId(++sequences_), user);
    memory_.sequences().attach_prefix(table, pages_, cached);
    const auto left = static_cast<uint32_t>(tokens.size()) - cached;
    if (left > 0) {
      Reservation reservation;
      EXPECT_EQ(memory_.reserve(table.pages_needed(left), reservation), ReserveStatus::kReserved);
      table.append(left, reservation);
      memory_.pool().forfeit(reservation);
    }
    offer(table, tokens, domain);
    return table;
  }

  void offer(PageTable& table, const Tokens& tokens, CacheDomain domain = kDomain) {
    for (uint32_t i = 0; (i + 1) * kPageTokens <= tokens.size(); ++i) {
      const PageId page = table.pages()[i];
      const PageId kept = memory_.prefixes().insert(
          domain, i == 0 ? kNoPage : table.pages()[i - 1], page,
          std::span<const TokenId>(tokens).subspan(i * kPageTokens, kPageTokens));
      if (kept == kNoPage) return;
      if (kept != page) memory_.sequences().replace(table, i, kept);
    }
  }

  uint32_t found(const Tokens& tokens, CacheDomain domain = kDomain) {
    return memory_.prefixes().lookup(domain, tokens, pages_);
  }

  void close(PageTable& table) { memory_.sequences().close(table); }

  PagedMemory memory_;
  std::vector<PageId> pages_;
  uint64_t sequences_ = 0;
};

TEST_F(PrefixIndexTest, WhatIsComputedIsFoundWhileItsSequenceStillRuns) {
  const Tokens tokens = counted(40);
  PageTable table = compute(tokens);
  EXPECT_EQ(found(tokens), 32u);  // whole pages
  EXPECT_EQ(pages_, (std::vector<PageId>{table.pages()[0], table.pages()[1]}));
  close(table);
  EXPECT_EQ(found(tokens), 32u);
  EXPECT_EQ(memory_.pool().counts().cached, PageCount(2));
  EXPECT_EQ(memory_.available(), PageCount(64));
}

TEST_F(PrefixIndexTest, ReuseIsByTokenAndAPartlyMatchingPageIsCopied) {
  const Tokens tokens = counted(48);
  PageTable first = compute(tokens);
  Tokens other = counted(37);
  other.push_back(999);
  EXPECT_EQ(found(other), 37u);
  EXPECT_EQ(pages_.size(), 3u);
  PageTable second = memory_.sequences().open(SequenceId(100), kUser);
  memory_.sequences().attach_prefix(second, pages_, 37);
  Reservation reservation;
  EXPECT_EQ(second.pages_needed(1), PageCount(1));
  ASSERT_EQ(memory_.reserve(PageCount(1), reservation), ReserveStatus::kReserved);
  const std::optional<PageCopy> copy = second.append(1, reservation);
  ASSERT_TRUE(copy.has_value());
  EXPECT_EQ(copy->from, first.pages()[2]);
  EXPECT_EQ(second.pages()[2], copy->to);
  EXPECT_EQ(memory_.pool().state(copy->to), PageState::kOwned);
  EXPECT_EQ(second.pages()[1], first.pages()[1]);
  close(first);
  close(second);
}

TEST_F(PrefixIndexTest, APageOfTheIndexIsNotWrittenByItsOnlyHolder) {
  const Tokens tokens = counted(32);
  PageTable table = compute(tokens);
  EXPECT_EQ(memory_.pool().state(table.pages()[1]), PageState::kShared);
  table.truncate(20);
  Reservation reservation;
  ASSERT_EQ(memory_.reserve(table.pages_needed(1), reservation), ReserveStatus::kReserved);
  EXPECT_EQ(reservation.count(), PageCount(1));
  EXPECT_TRUE(table.append(1, reservation).has_value());
  EXPECT_EQ(found(tokens), 32u);  // the copy was written, not the page
  close(table);
}

TEST_F(PrefixIndexTest, TwoThatComputedTheSameKeepOnePage) {
  const Tokens tokens = counted(32);
  PageTable first = memory_.sequences().open(SequenceId(50), kUser);
  PageTable second = memory_.sequences().open(SequenceId(51), kUser);
  for (PageTable* table : {&first, &second}) {
    Reservation reservation;
    ASSERT_EQ(memory_.reserve(PageCount(2), reservation), ReserveStatus::kReserved);
    table->append(32, reservation);
  }
  EXPECT_EQ(memory_.pool().counts().owned, PageCount(4));
  offer(first, tokens);
  offer(second, tokens);
  EXPECT_EQ(memory_.pool().counts().live(), PageCount(2));
  EXPECT_EQ(first.pages()[1], second.pages()[1]);
  close(first);
  EXPECT_EQ(memory_.pool().counts().cached, PageCount(0));
  close(second);
  EXPECT_EQ(memory_.pool().counts().cached, PageCount(2));
}

TEST_F(PrefixIndexTest, DomainsDoNotSeeEachOther) {
  const Tokens tokens = counted(32);
  PageTable table = compute(tokens, kDomain);
  EXPECT_EQ(found(tokens, kOther), 0u);
  PageTable other = compute(tokens, kOther);
  EXPECT_NE(table.pages()[0], other.pages()[0]);
  EXPECT_EQ(found(tokens, kOther), 32u);
  EXPECT_EQ(memory_.prefixes().flush(kOther), 2u);
  EXPECT_EQ(found(tokens, kOther), 0u);
  EXPECT_EQ(found(tokens, kDomain), 32u);
  close(table);
  close(other);
  EXPECT_EQ(memory_.pool().counts().cached, PageCount(2));
}

TEST_F(PrefixIndexTest, WithTooManyDomainsOneMoreGoesWithout) {
  std::vector<PageTable> tables;
  for (uint64_t domain = 1; domain <= 5; ++domain) {
    tables.push_back(compute(counted(16), CacheDomain(domain)));
    EXPECT_EQ(found(counted(16), CacheDomain(domain)), domain <= 4 ? 16u : 0u);
  }
  memory_.prefixes().flush(CacheDomain(2));
  offer(tables[4], counted(16), CacheDomain(5));
  EXPECT_EQ(found(counted(16), CacheDomain(5)), 16u);
  for (PageTable& table : tables) close(table);
}

TEST_F(PrefixIndexTest, TheOldestGoFirstAndFromTheEnd) {
  const Tokens old_tokens = counted(48), new_tokens = counted(48, 500);
  PageTable old_table = compute(old_tokens), new_table = compute(new_tokens);
  close(old_table);
  close(new_table);
  EXPECT_TRUE(memory_.prefixes().drop_next());
  EXPECT_EQ(found(old_tokens), 32u);
  EXPECT_EQ(found(new_tokens), 48u);
  // Used again, it is the younger one.
  PageTable again = compute(counted(32));
  close(again);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(memory_.prefixes().drop_next());
  EXPECT_EQ(found(new_tokens), 0u);
  EXPECT_EQ(found(old_tokens), 32u);
  EXPECT_TRUE(memory_.prefixes().drop_next() && memory_.prefixes().drop_next());
  EXPECT_FALSE(memory_.prefixes().drop_next());
  EXPECT_EQ(memory_.pool().counts().free, PageCount(64));
}

TEST_F(PrefixIndexTest, WhatCostsFourTimesAsMuchToComputeAgainStaysTwiceAsLong) {
  // 19 pages deep, a page costs 4.3 times what a first one does.
  for (int i = 0; i < 2000; ++i) memory_.prefixes().note_costs(16, 0.176);
  const Tokens deep = counted(20 * 16);
  PageTable table = compute(deep);
  close(table);
  for (int32_t k = 0; k < 40; ++k) {
    PageTable one = compute(counted(16, 1000 * (k + 1)));
    close(one);
  }
  const auto short_ones = [&] {
    uint32_t count = 0;
    for (int32_t k = 0; k < 40; ++k) count += found(counted(16, 1000 * (k + 1))) == 16 ? 1 : 0;
    return count;
  };
  // The last page of the deep one was let go 60 pages ago: it goes when a first one of half that age would.
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(memory_.prefixes().drop_next());
  EXPECT_EQ(found(deep), deep.size());
  EXPECT_EQ(short_ones(), 30u);
  while (found(deep) == deep.size()) EXPECT_TRUE(memory_.prefixes().drop_next());
  EXPECT_NEAR(short_ones(), 29, 2);
  // Its beginning costs no more than theirs, and is older: it goes from the end, ever more easily.
  while (found(deep) > 16) EXPECT_TRUE(memory_.prefixes().drop_next());
  EXPECT_GE(short_ones(), 20u);
  EXPECT_TRUE(memory_.verify().ok());
  while (memory_.prefixes().drop_next()) {
  }
  EXPECT_EQ(memory_.pool().counts().free, PageCount(64));
}

TEST_F(PrefixIndexTest, ABeginningStaysAsLongAsWhatFollowsItHoweverCheapItIs) {
  for (int i = 0; i < 2000; ++i) memory_.prefixes().note_costs(16, 0.11);
  PageTable deep = compute(counted(31 * 16));
  close(deep);
  // Only the first page, used again: it is younger now than all that follow it.
  PageTable first = compute(counted(16));
  close(first);
  EXPECT_TRUE(memory_.verify().ok());
  for (uint32_t pages = 31; pages-- > 0;) {
    EXPECT_TRUE(memory_.prefixes().drop_next());
    EXPECT_EQ(found(counted(31 * 16)), pages * 16);
  }
}

TEST_F(PrefixIndexTest, AllThatIsCachedOfAUserGoesThoughPagesChangeTheirClassMeanwhile) {
  // The 28th page costs less than four times what a first one does, the 29th more: a class more.
  for (int i = 0; i < 2000; ++i) memory_.prefixes().note_costs(16, 0.11);
  PageTable one = compute(counted(29 * 16));
  close(one);
  PageTable other = compute(counted(29 * 16, 500));
  close(other);
  // Used again, all but the last page of the first one is younger than the other one.
  PageTable again = compute(counted(28 * 16));
  close(again);
  EXPECT_EQ(memory_.drop_cached_of(kUser, PageCount(50)), 8u);
  EXPECT_EQ(memory_.drop_cached_of(kUser, PageCount(0)), 50u);
  EXPECT_EQ(memory_.pool().counts().free, PageCount(64));
}

TEST_F(PrefixIndexTest, WhoeverNeedsPagesGetsTheCachedOnes) {
  PageTable table = compute(counted(512));  // 32 pages
  close(table);
  EXPECT_EQ(memory_.pool().counts().cached, PageCount(32));
  Reservation reservation;
  EXPECT_EQ(memory_.reserve(PageCount(65), reservation), ReserveStatus::kNeverFits);
  EXPECT_EQ(memory_.reserve(PageCount(60), reservation), ReserveStatus::kReserved);
  EXPECT_EQ(found(counted(512)), 64u);
  EXPECT_EQ(memory_.reserve(PageCount(5), reservation), ReserveStatus::kShouldWait);
  memory_.pool().forfeit(reservation);
}

TEST_F(PrefixIndexTest, CachedPagesGoByAge) {
  memory_.pool().set_now(10);
  PageTable early = compute(counted(32));
  close(early);
  memory_.pool().set_now(20);
  PageTable late = compute(counted(32, 300));
  close(late);
  EXPECT_EQ(memory_.drop_cached(10, 100), 0u);
  EXPECT_EQ(memory_.drop_cached(11, 1), 1u);
  EXPECT_EQ(memory_.drop_cached(20, 100), 1u);
  EXPECT_EQ(memory_.pool().counts().cached, PageCount(2));
}

TEST_F(PrefixIndexTest, FlushLeavesHoldersAlone) {
  const Tokens tokens = counted(64);
  PageTable table = compute(tokens);
  EXPECT_EQ(memory_.prefixes().flush_all(), 4u);
  EXPECT_EQ(memory_.prefixes().nodes(), 0u);
  EXPECT_EQ(memory_.pool().state(table.pages()[0]), PageState::kOwned);
  // Its next page has no place to go: its parent is not there.
  EXPECT_EQ(memory_.prefixes().insert(kDomain, table.pages()[2], table.pages()[3],
                                      std::span<const TokenId>(tokens).subspan(48, 16)),
            kNoPage);
  close(table);
  EXPECT_EQ(memory_.pool().counts().free, PageCount(64));
}

TEST_F(PrefixIndexTest, ItsChargeStaysWithWhoUsedItLast) {
  const UserId second{2000};
  PageTable table = compute(counted(32));
  close(table);
  EXPECT_EQ(memory_.pool().charged_pages(kUser), PageCount(2));
  PageTable other = compute(counted(40), kDomain, second);
  EXPECT_EQ(memory_.pool().charged_pages(kUser), PageCount(0));
  EXPECT_EQ(memory_.pool().charged_pages(second), PageCount(3));
  close(other);
  EXPECT_EQ(memory_.pool().charged_pages(second), PageCount(2));
}

TEST(PrefixIndexRegion, IsFoundAgainAtAnotherAddress) {
  const MemoryConfig config{.pages = PageCount(16), .sequences_max = 2, .sequence_tokens_max = 64};
  const size_t bytes = PagedMemory::layout_bytes(config);
  std::vector<std::byte> storage(2 * bytes + 3 * kLayoutAlignment);
  const auto aligned = [&](size_t at) {
    const auto address = reinterpret_cast<uintptr_t>(storage.data() + at);
    return std::span(storage).subspan(
        at + (kLayoutAlignment - address % kLayoutAlignment) % kLayoutAlignment, bytes);
  };
  const std::span<std::byte> first = aligned(0), second = aligned(bytes + kLayoutAlignment);
  const Tokens tokens = counted(16);
  {
    PagedMemory memory(config, first);
    PageTable table = memory.sequences().open(SequenceId(1), kUser);
    Reservation reservation;
    ASSERT_EQ(memory.reserve(PageCount(1), reservation), ReserveStatus::kReserved);
    table.append(16, reservation);
    ASSERT_EQ(memory.prefixes().insert(kDomain, kNoPage, table.pages()[0], tokens), table.pages()[0]);
    memory.sequences().close(table);
  }
  std::copy(first.begin(), first.end(), second.begin());
  std::fill(first.begin(), first.end(), std::byte{0xee});
  Result<std::unique_ptr<PagedMemory>> memory = PagedMemory::attach(second);
  ASSERT_TRUE(memory.ok());
  EXPECT_TRUE((*memory)->verify().ok());
  std::vector<PageId> pages;
  EXPECT_EQ((*memory)->prefixes().lookup(kDomain, tokens, pages), 16u);
}

// Four pages have four buckets, so among a few hundred texts many collide, whatever the hash.
TEST(PrefixIndexIncident, ACollisionOfHashesGivesNobodyAnothersPrefix) {
  PagedMemory memory({.pages = PageCount(4), .sequences_max = 4, .sequence_tokens_max = 32});
  std::vector<PageTable> tables;
  for (TokenId text = 0; text < 4; ++text) {
    PageTable& table = tables.emplace_back(memory.sequences().open(SequenceId(1 + tables.size()), kUser));
    Reservation reservation;
    ASSERT_EQ(memory.reserve(PageCount(1), reservation), ReserveStatus::kReserved);
    table.append(16, reservation);
    Tokens tokens(16, 7);
    tokens[15] = text;
    ASSERT_EQ(memory.prefixes().insert(kDomain, kNoPage, table.pages()[0], tokens), table.pages()[0]);
  }
  std::vector<PageId> pages;
  for (TokenId text = 0; text < 400; ++text) {
    Tokens tokens(16, 7);
    tokens[15] = text;
    const uint32_t matched = memory.prefixes().lookup(kDomain, tokens, pages);
    ASSERT_EQ(matched, text < 4 ? 16u : 15u) << text;
    if (text >= 4) continue;
    EXPECT_EQ(pages[0], tables[static_cast<size_t>(text)].pages()[0]);
  }
  for (PageTable& table : tables) memory.sequences().close(table);
}

TEST_F(PrefixIndexTest, PinnedPagesGoLastAndOnlyWhenNeeded) {
  const Tokens pinned = counted(64), other = counted(64, 500);
  PageTable first = compute(pinned);
  close(first);
  PageTable second = compute(other);
  close(second);
  const PrefixIndex::Pinned done = memory_.prefixes().pin(kDomain, pinned, kUser, 3);
  EXPECT_EQ(done.found, 4u);
  EXPECT_EQ(done.of_user, 4u);
  EXPECT_EQ(memory_.prefixes().pinned_pages(kUser), 0u);  // more than the limit
  EXPECT_EQ(memory_.prefixes().pin(kDomain, pinned, kUser, 4).of_user, 4u);
  EXPECT_EQ(memory_.prefixes().pin(kDomain, pinned, kUser, 4).of_user, 4u);
  ASSERT_TRUE(memory_.verify().ok()) << memory_.verify().error().message();
  EXPECT_EQ(memory_.drop_cached(UINT32_MAX, 100), 4u);
  EXPECT_EQ(found(pinned), 64u);
  PageTable third = compute(counted(40, 900));
  close(third);
  Reservation reservation;
  EXPECT_EQ(memory_.reserve(PageCount(60), reservation), ReserveStatus::kReserved);
  EXPECT_EQ(found(pinned), 64u);
  EXPECT_EQ(found(counted(40, 900)), 0u);
  EXPECT_EQ(memory_.reserve(PageCount(2), reservation), ReserveStatus::kReserved);  // now they must
  EXPECT_EQ(found(pinned), 32u);
  memory_.pool().forfeit(reservation);
  EXPECT_EQ(memory_.prefixes().pinned_pages(kUser), 2u);
  EXPECT_EQ(memory_.prefixes().unpin(kUser), 2u);
  EXPECT_EQ(memory_.drop_cached(UINT32_MAX, 100), 2u);
}

TEST_F(PrefixIndexTest, PinsThatLeaveTheIndexAreNoLongerCounted) {
  PageTable table = compute(counted(64));
  EXPECT_EQ(memory_.prefixes().pin(kDomain, counted(64), kUser, 10).of_user, 4u);
  EXPECT_EQ(memory_.prefixes().flush(kDomain), 4u);
  EXPECT_EQ(memory_.prefixes().pinned_pages(kUser), 0u);
  EXPECT_EQ(memory_.prefixes().unpin(kUser), 0u);
  close(table);
}

TEST_F(PrefixIndexTest, APinStaysWhereAnothersStandsBehindIt) {
  const UserId other{2000};
  PageTable table = compute(counted(64));
  EXPECT_EQ(memory_.prefixes().pin(kDomain, counted(32), kUser, 10).of_user, 2u);
  EXPECT_EQ(memory_.prefixes().pin(kDomain, counted(64), other, 10).of_user, 2u);
  EXPECT_EQ(memory_.prefixes().unpin(kUser), 0u);
  EXPECT_EQ(memory_.prefixes().unpin(other), 2u);
  EXPECT_EQ(memory_.prefixes().unpin(kUser), 2u);
  EXPECT_EQ(memory_.prefixes().pin(kDomain, counted(64, 700), kUser, 10).found, 0u);
  close(table);
}

TEST_F(PrefixIndexTest, AUsersCachedPagesGoFromTheirEndsAndNobodyElses) {
  const UserId other{2000};
  PageTable mine = compute(counted(80)), theirs = compute(counted(64, 500), kDomain, other);
  close(theirs);
  close(mine);
  EXPECT_EQ(memory_.drop_cached_of(kUser, PageCount(5)), 0u);
  EXPECT_EQ(memory_.drop_cached_of(kUser, PageCount(2)), 3u);
  EXPECT_EQ(found(counted(80)), 32u);
  EXPECT_EQ(found(counted(64, 500)), 64u);
  PageTable again = compute(counted(32));  // held: it stays
  EXPECT_EQ(memory_.drop_cached_of(kUser, PageCount(0)), 0u);
  close(again);
  EXPECT_EQ(memory_.drop_cached_of(kUser, PageCount(0)), 2u);
}

// What the index should have, kept the plain way: every whole-page beginning that was offered and not
// lost since.
class NaiveIndex {
 public:
  void add(CacheDomain domain, const Tokens& tokens) {
    for (size_t length = kPageTokens; length <= tokens.size(); length += kPageTokens) {
      kept_[domain].insert({Tokens(tokens.begin(), tokens.begin() + static_cast<long>(length)), 0});
    }
  }
  uint32_t longest(CacheDomain domain, const Tokens& tokens) const {
    size_t best = 0;
    const auto found = kept_.find(domain);
    if (found == kept_.end()) return 0;
    for (const auto& [kept, unused] : found->second) {
      const size_t limit = std::min(kept.size(), tokens.size());
      size_t common = 0;
      while (common < limit && kept[common] == tokens[common]) ++common;
      best = std::max(best, common);
    }
    return static_cast<uint32_t>(best);
  }

 private:
  std::map<CacheDomain, std::map<Tokens, int>> kept_;
};

// Nothing is dropped here (the pool is large), so both must agree to the token.
TEST(PrefixIndexProperty, FindsWhatANaiveIndexFinds) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Prng prng(seed);
    PagedMemory memory({.pages = PageCount(4096), .sequences_max = 4, .sequence_tokens_max = 128});
    NaiveIndex naive;
    std::vector<PageId> pages;
    for (uint64_t round = 1; round <= 60; ++round) {
      const CacheDomain domain(1 + prng.below(2));
      Tokens tokens(1 + prng.below(100));
      // Few different tokens, mostly runs of one: many prompts begin alike.
      for (TokenId& token : tokens) token = static_cast<TokenId>(prng.below(12) == 0);
      ASSERT_EQ(memory.prefixes().lookup(domain, tokens, pages), naive.longest(domain, tokens))
          << "seed " << seed << " round " << round;
      const uint32_t cached = memory.prefixes().lookup(domain, tokens, pages);
      PageTable table = memory.sequences().open(SequenceId(round), UserId(5));
      memory.sequences().attach_prefix(table, pages, cached);
      Reservation reservation;
      const auto left = static_cast<uint32_t>(tokens.size()) - cached;
      if (left > 0) {
        ASSERT_EQ(memory.reserve(table.pages_needed(left), reservation), ReserveStatus::kReserved);
        table.append(left, reservation);
      }
      for (uint32_t i = 0; (i + 1) * kPageTokens <= tokens.size(); ++i) {
        const PageId kept = memory.prefixes().insert(
            domain, i == 0 ? kNoPage : table.pages()[i - 1], table.pages()[i],
            std::span<const TokenId>(tokens).subspan(i * kPageTokens, kPageTokens));
        ASSERT_NE(kept, kNoPage);
        if (kept != table.pages()[i]) memory.sequences().replace(table, i, kept);
      }
      naive.add(domain, tokens);
      memory.sequences().close(table);
      ASSERT_TRUE(memory.verify().ok()) << memory.verify().error().message();
    }
  }
}

}  // namespace
}  // namespace inferd::memory
