// PageTable and SequenceTable: growing, shrinking, fork, copy-on-write, who is charged.
#include "memory/page_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "memory/paged_memory.h"
#include "tests/unit/memory/memory_test_util.h"

namespace inferd::memory {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr UserId kAnn{1000};
constexpr UserId kBob{1001};

class PageTableTest : public testing::Test {
 protected:
  static constexpr MemoryConfig kConfig{PageCount(16), 4, 100};

  ~PageTableTest() override {
    EXPECT_EQ(verdict(memory_.verify()), "");
    EXPECT_EQ(memory_.pool().counts().free.value, 16u);
  }

  PageTable open(uint64_t id, UserId user) { return tables_.open(SequenceId(id), user); }
  std::optional<PageCopy> append(PageTable& table, uint32_t tokens) {
    Reservation reservation;
    const ReserveStatus status = memory_.pool().reserve(table.pages_needed(tokens), reservation);
    EXPECT_EQ(status, ReserveStatus::kReserved);
    const std::optional<PageCopy> copy = table.append(tokens, reservation);
    EXPECT_EQ(reservation.count().value, 0u) << "pages_needed() is exact";
    memory_.pool().forfeit(reservation);
    return copy;
  }
  std::vector<PageId> pages(const PageTable& table) {
    return {table.pages().begin(), table.pages().end()};
  }

  PagedMemory memory_{kConfig};
  SequenceTable& tables_ = memory_.sequences();
};

TEST_F(PageTableTest, PositionsRoundUpToPages) {
  EXPECT_EQ(pages_for_tokens(0).value, 0u);
  EXPECT_EQ(pages_for_tokens(1).value, 1u);
  EXPECT_EQ(pages_for_tokens(16).value, 1u);
  EXPECT_EQ(pages_for_tokens(17).value, 2u);
  EXPECT_EQ(tables_.sequence_tokens_max(), 112u);  // 100 in whole pages
}

TEST_F(PageTableTest, AppendTakesAPageOnlyAtItsFirstPosition) {
  PageTable table = open(1, kAnn);
  EXPECT_EQ(table.pages_needed(1).value, 1u);
  append(table, 1);
  EXPECT_EQ(table.pages_needed(15).value, 0u);
  append(table, 15);
  EXPECT_EQ(pages(table), std::vector<PageId>{PageId(0)});
  EXPECT_EQ(table.pages_needed(33).value, 3u);
  append(table, 33);
  EXPECT_EQ(table.tokens(), 49u);
  EXPECT_THAT(pages(table), ElementsAre(PageId(0), PageId(1), PageId(2), PageId(3)));
  EXPECT_EQ(memory_.pool().charged_pages(kAnn).value, 4u);
  tables_.close(table);
}

TEST_F(PageTableTest, TruncateReleasesWholePagesBehindTheEnd) {
  PageTable table = open(1, kAnn);
  append(table, 50);
  table.truncate(33);
  EXPECT_EQ(table.pages().size(), 3u);
  table.truncate(32);
  EXPECT_EQ(table.pages().size(), 2u);
  table.truncate(0);
  EXPECT_EQ(memory_.pool().counts().free.value, 16u);
  append(table, 5);
  tables_.close(table);
}

TEST_F(PageTableTest, AForkCostsNoPageUntilOneSideWrites) {
  PageTable parent = open(1, kAnn);
  append(parent, 40);
  PageTable child = tables_.fork(parent, SequenceId(2), kAnn);
  EXPECT_EQ(memory_.pool().counts().shared.value, 3u);
  EXPECT_EQ(memory_.pool().counts().live().value, 3u);
  EXPECT_EQ(pages(child), pages(parent));
  EXPECT_EQ(child.tokens(), 40u);

  const PageId last = parent.pages()[2];
  EXPECT_EQ(child.pages_needed(1).value, 1u);
  const std::optional<PageCopy> copy = append(child, 1);
  ASSERT_TRUE(copy.has_value());
  EXPECT_EQ(copy->from, last);
  EXPECT_EQ(copy->to, child.pages()[2]);
  EXPECT_EQ(parent.pages()[2], last);
  // The other side is alone with it now, and writes in place.
  EXPECT_EQ(parent.pages_needed(1).value, 0u);
  EXPECT_FALSE(append(parent, 1).has_value());
  tables_.close(parent);
  tables_.close(child);
}

TEST_F(PageTableTest, AForkAtAPageBoundaryCopiesNothing) {
  PageTable parent = open(1, kAnn);
  append(parent, 32);
  PageTable child = tables_.fork(parent, SequenceId(2), kAnn);
  EXPECT_FALSE(append(child, 1).has_value());
  EXPECT_FALSE(append(parent, 1).has_value());
  EXPECT_EQ(memory_.pool().counts().shared.value, 2u);
  tables_.close(parent);
  tables_.close(child);
}

TEST_F(PageTableTest, MakeWritableGivesTheWriterAPageOfItsOwn) {
  PageTable parent = open(1, kAnn);
  append(parent, 48);
  PageTable child = tables_.fork(parent, SequenceId(2), kBob);
  Reservation reservation;
  ASSERT_EQ(memory_.pool().reserve(PageCount(2), reservation), ReserveStatus::kReserved);
  const std::optional<PageCopy> copy = parent.make_writable(1, reservation);
  ASSERT_TRUE(copy.has_value());
  EXPECT_EQ(copy->from, child.pages()[1]);
  EXPECT_EQ(copy->to, parent.pages()[1]);
  EXPECT_FALSE(parent.make_writable(1, reservation).has_value());
  EXPECT_FALSE(child.make_writable(1, reservation).has_value());
  EXPECT_EQ(reservation.count().value, 1u);
  memory_.pool().forfeit(reservation);
  // Ann made both pages, but only Bob still holds the first.
  EXPECT_EQ(memory_.pool().charged_to(copy->from), kBob);
  EXPECT_EQ(memory_.pool().charged_to(copy->to), kAnn);
  tables_.close(parent);
  tables_.close(child);
}

TEST_F(PageTableTest, TheChargeGoesToTheNextHolderWhenItsUserLetsGo) {
  PageTable made = open(1, kAnn);
  append(made, 16);
  const PageId page = made.pages()[0];
  PageTable bobs = tables_.fork(made, SequenceId(2), kBob);
  PageTable anns = tables_.fork(made, SequenceId(3), kAnn);
  EXPECT_EQ(memory_.pool().charged_to(page), kAnn);
  tables_.close(made);
  EXPECT_EQ(memory_.pool().charged_to(page), kAnn) << "Ann holds it still, by another sequence";
  tables_.close(anns);
  EXPECT_EQ(memory_.pool().charged_to(page), kBob);
  EXPECT_EQ(memory_.pool().charged_pages(kAnn).value, 0u);
  EXPECT_EQ(memory_.pool().charged_pages(kBob).value, 1u);
  tables_.close(bobs);
}

TEST_F(PageTableTest, SlotsAreReusedAndFullIsKnown) {
  std::vector<PageTable> open_tables;
  for (uint64_t id = 1; id <= 4; ++id) open_tables.push_back(open(id, kAnn));
  EXPECT_TRUE(tables_.full());
  tables_.close(open_tables[2]);
  EXPECT_FALSE(tables_.full());
  open_tables[2] = open(9, kBob);
  EXPECT_EQ(open_tables[2].id(), SequenceId(9));
  EXPECT_EQ(open_tables[2].user(), kBob);
  for (PageTable& table : open_tables) tables_.close(table);
}

TEST_F(PageTableTest, ABorrowedRegionIsTakenOverWhereverItLies) {
  TestRegion region(PagedMemory::layout_bytes(kConfig));
  TestRegion moved(region.span().size());
  PagedMemory before(kConfig, region.span());
  PageTable table = before.sequences().open(SequenceId(7), kAnn);
  Reservation reservation;
  ASSERT_EQ(before.pool().reserve(PageCount(3), reservation), ReserveStatus::kReserved);
  table.append(40, reservation);
  PageTable child = before.sequences().fork(table, SequenceId(8), kBob);
  std::copy(region.span().begin(), region.span().end(), moved.span().begin());

  Result<std::unique_ptr<PagedMemory>> after = PagedMemory::attach(moved.span());
  ASSERT_TRUE(after.ok()) << after.error().message();
  PagedMemory& memory = **after;
  EXPECT_EQ(verdict(memory.verify()), "");
  PageTable adopted = memory.sequences().adopt(SequenceId(7));
  ASSERT_TRUE(adopted.is_open());
  EXPECT_EQ(adopted.tokens(), 40u);
  EXPECT_EQ(pages(adopted), pages(table));
  EXPECT_FALSE(memory.sequences().adopt(SequenceId(9)).is_open());
  PageTable adopted_child = memory.sequences().adopt(SequenceId(8));
  memory.sequences().close(adopted);
  memory.sequences().close(adopted_child);
  EXPECT_EQ(memory.pool().counts().free.value, 16u);
  EXPECT_EQ(verdict(memory.verify()), "");
  EXPECT_FALSE(PagedMemory::attach(moved.span().first(moved.span().size() - 64)).ok());

  before.sequences().close(child);
  before.sequences().close(table);
}

TEST_F(PageTableTest, VerifyFindsReferencesThatNobodyHolds) {
  PageTable table = open(1, kAnn);
  append(table, 20);
  memory_.pool().retain(table.pages()[0]);
  EXPECT_THAT(verdict(memory_.verify()), HasSubstr("counts 2 references, but 1 are found"));
  memory_.pool().release(table.pages()[0]);
  const PageId leaked = take_one(memory_.pool(), kAnn);
  EXPECT_THAT(verdict(memory_.verify()), HasSubstr("counts 1 references, but 0 are found"));
  memory_.pool().release(leaked);
  memory_.pool().recharge(table.pages()[0], kBob);
  EXPECT_THAT(verdict(memory_.verify()), HasSubstr("is charged to user 1001, but held first by"));
  memory_.pool().recharge(table.pages()[0], kAnn);
  tables_.close(table);
}

using PageTableDeathTest = PageTableTest;

TEST_F(PageTableDeathTest, AHandleThatDisappearsWithItsSequenceOpenAborts) {
  EXPECT_DEATH({ PageTable table = open(1, kAnn); }, "check failed");
}

TEST_F(PageTableDeathTest, GrowingBeyondTheLongestSequenceAborts) {
  PageTable table = open(1, kAnn);
  EXPECT_DEATH((void)table.pages_needed(113), "check failed");
  tables_.close(table);
}

TEST_F(PageTableDeathTest, AppendingWithoutEnoughReservedAborts) {
  PageTable table = open(1, kAnn);
  Reservation empty;
  EXPECT_DEATH(table.append(1, empty), "check failed");
  tables_.close(table);
}

TEST_F(PageTableDeathTest, OpeningBeyondTheLimitAborts) {
  std::vector<PageTable> tables;
  for (uint64_t id = 1; id <= 4; ++id) tables.push_back(open(id, kAnn));
  EXPECT_DEATH((void)open(5, kAnn), "check failed");
  for (PageTable& table : tables) tables_.close(table);
}

}  // namespace
}  // namespace inferd::memory
