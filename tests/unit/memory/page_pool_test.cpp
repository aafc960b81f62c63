// PagePool: reservations that cannot fail later, states, references, charges, pages given back.
#include "memory/page_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/memory/memory_test_util.h"

namespace inferd::memory {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

constexpr UserId kAnn{1000};
constexpr UserId kBob{1001};

// Each test has a small pool of its own.
class PagePoolTest : public testing::Test {
 protected:
  static constexpr uint32_t kPages = 8;
  static constexpr uint32_t kUsers = 4;

  ~PagePoolTest() override { EXPECT_EQ(verdict(pool_.verify()), ""); }

  std::vector<PageId> drain() {
    std::vector<PageId> pages(kPages);
    pages.resize(pool_.drain_taken(pages));
    return pages;
  }
  std::vector<PageId> give_back(uint32_t idle_keep) {
    std::vector<PageId> pages(kPages);
    pages.resize(pool_.give_back(PageCount(idle_keep), pages));
    return pages;
  }

  TestRegion region_{PagePool::layout_bytes(PageCount(kPages), kUsers)};
  PagePool pool_{region_.span(), PageCount(kPages), kUsers};
};

TEST_F(PagePoolTest, ANewPoolIsFreeAndBare) {
  const PageCounts counts = pool_.counts();
  EXPECT_EQ(counts.total.value, kPages);
  EXPECT_EQ(counts.free.value, kPages);
  EXPECT_EQ(counts.idle.value, 0u);
  EXPECT_EQ(counts.live().value, 0u);
}

TEST_F(PagePoolTest, ReserveBeyondFreeIsRefusedWithoutEffect) {
  Reservation most;
  ASSERT_EQ(pool_.reserve(PageCount(6), most), ReserveStatus::kReserved);
  Reservation more;
  EXPECT_EQ(pool_.reserve(PageCount(3), more), ReserveStatus::kShouldWait);
  EXPECT_EQ(more.count().value, 0u);
  EXPECT_EQ(pool_.counts().reserved.value, 6u);
  EXPECT_EQ(pool_.reserve(PageCount(2), more), ReserveStatus::kReserved);
  EXPECT_EQ(pool_.counts().free.value, 0u);
  pool_.forfeit(most);
  pool_.forfeit(more);
  EXPECT_EQ(pool_.counts().free.value, kPages);
}

TEST_F(PagePoolTest, MoreThanThePoolIsToldApartFromMoreThanIsFree) {
  Reservation reservation;
  EXPECT_EQ(pool_.reserve(PageCount(kPages + 1), reservation), ReserveStatus::kNeverFits);
  EXPECT_EQ(pool_.reserve(PageCount(kPages), reservation), ReserveStatus::kReserved);
  pool_.forfeit(reservation);
}

TEST_F(PagePoolTest, AReservationGivesEveryPageItPromisedAndTheRestBack) {
  Reservation reservation;
  ASSERT_EQ(pool_.reserve(PageCount(5), reservation), ReserveStatus::kReserved);
  std::vector<PageId> pages;
  for (int i = 0; i < 3; ++i) pages.push_back(pool_.take(reservation, kAnn));
  EXPECT_THAT(pages, ElementsAre(PageId(0), PageId(1), PageId(2)));
  EXPECT_EQ(reservation.count().value, 2u);
  EXPECT_EQ(pool_.counts().owned.value, 3u);
  EXPECT_EQ(pool_.counts().reserved.value, 2u);
  Reservation moved = std::move(reservation);
  EXPECT_EQ(reservation.count().value, 0u);
  pool_.forfeit(moved);
  EXPECT_EQ(pool_.counts().free.value, kPages - 3);
  for (PageId page : pages) pool_.release(page);
}

TEST_F(PagePoolTest, AReservationGrows) {
  Reservation reservation;
  ASSERT_EQ(pool_.reserve(PageCount(2), reservation), ReserveStatus::kReserved);
  ASSERT_EQ(pool_.reserve(PageCount(3), reservation), ReserveStatus::kReserved);
  EXPECT_EQ(reservation.count().value, 5u);
  pool_.forfeit(reservation);
}

TEST_F(PagePoolTest, ReferencesDecideOwnedAndShared) {
  const PageId page = take_one(pool_, kAnn);
  EXPECT_EQ(pool_.state(page), PageState::kOwned);
  pool_.retain(page);
  pool_.retain(page);
  EXPECT_EQ(pool_.state(page), PageState::kShared);
  EXPECT_EQ(pool_.references(page), 3u);
  pool_.release(page);
  EXPECT_EQ(pool_.state(page), PageState::kShared);
  pool_.release(page);
  EXPECT_EQ(pool_.state(page), PageState::kOwned);
  pool_.release(page);
  EXPECT_EQ(pool_.state(page), PageState::kFree);
}

TEST_F(PagePoolTest, ChargesFollowTheUser) {
  const PageId page = take_one(pool_, kAnn);
  const PageId other = take_one(pool_, kAnn);
  EXPECT_EQ(pool_.charged_pages(kAnn).value, 2u);
  pool_.recharge(page, kBob);
  EXPECT_EQ(pool_.charged_pages(kAnn).value, 1u);
  EXPECT_EQ(pool_.charged_pages(kBob).value, 1u);
  EXPECT_EQ(pool_.charged_to(page), kBob);
  pool_.release(page);
  pool_.release(other);
  EXPECT_EQ(pool_.charged_pages(kAnn).value + pool_.charged_pages(kBob).value, 0u);
}

TEST_F(PagePoolTest, AFreedPageIsReusedBeforeABareOne) {
  const PageId first = take_one(pool_, kAnn);
  const PageId second = take_one(pool_, kAnn);
  pool_.release(first);
  pool_.release(second);
  EXPECT_EQ(pool_.counts().idle.value, 2u);
  EXPECT_EQ(take_one(pool_, kAnn), second);  // the latest freed is the warmest
  EXPECT_EQ(take_one(pool_, kAnn), first);
  EXPECT_EQ(take_one(pool_, kAnn), PageId(2));
  for (PageId page : {first, second, PageId(2)}) pool_.release(page);
}

TEST_F(PagePoolTest, ATakenPageIsAnnouncedOnceAndAgainWhenTakenAgain) {
  const PageId kept = take_one(pool_, kAnn);
  const PageId gone = take_one(pool_, kAnn);
  pool_.release(gone);
  EXPECT_THAT(drain(), ElementsAre(kept));  // the one that was freed meanwhile is not
  EXPECT_THAT(drain(), ElementsAre());
  EXPECT_EQ(take_one(pool_, kBob), gone);
  EXPECT_THAT(drain(), ElementsAre(gone));
  pool_.release(gone);
  EXPECT_EQ(take_one(pool_, kBob), gone);  // between two drains
  EXPECT_THAT(drain(), ElementsAre(gone));
  pool_.release(kept);
  pool_.release(gone);
}

TEST_F(PagePoolTest, DrainingIntoASmallArrayGoesOnWhereItStopped) {
  std::vector<PageId> taken;
  for (int i = 0; i < 5; ++i) taken.push_back(take_one(pool_, kAnn));
  std::vector<PageId> found;
  std::array<PageId, 2> some;
  for (size_t count = some.size(); count == some.size();) {
    count = pool_.drain_taken(some);
    found.insert(found.end(), some.begin(), some.begin() + count);
  }
  EXPECT_THAT(found, UnorderedElementsAre(taken[0], taken[1], taken[2], taken[3], taken[4]));
  for (PageId page : taken) pool_.release(page);
}

TEST_F(PagePoolTest, TheColdestIdlePagesAreGivenBackFirst) {
  std::vector<PageId> pages;
  for (int i = 0; i < 4; ++i) pages.push_back(take_one(pool_, kAnn));
  for (PageId page : pages) pool_.release(page);
  EXPECT_THAT(give_back(2), ElementsAre(pages[0], pages[1]));
  EXPECT_THAT(give_back(2), ElementsAre());
  EXPECT_EQ(pool_.counts().idle.value, 2u);
  EXPECT_EQ(pool_.counts().free.value, kPages);
  EXPECT_THAT(give_back(0), ElementsAre(pages[2], pages[3]));
}

TEST_F(PagePoolTest, MovedBytesAreTheSamePool) {
  const PageId page = take_one(pool_, kAnn);
  pool_.retain(page);
  Reservation lost;
  ASSERT_EQ(pool_.reserve(PageCount(2), lost), ReserveStatus::kReserved);

  TestRegion moved(region_.span().size());
  std::copy(region_.span().begin(), region_.span().end(), moved.span().begin());
  Result<std::unique_ptr<PagePool>> attached = PagePool::attach(moved.span());
  ASSERT_TRUE(attached.ok());
  PagePool& pool = **attached;
  EXPECT_EQ(verdict(pool.verify()), "");
  EXPECT_EQ(pool.references(page), 2u);
  EXPECT_EQ(pool.charged_pages(kAnn).value, 1u);
  EXPECT_EQ(pool.counts().reserved.value, 0u);  // died with its process
  EXPECT_EQ(pool.counts().free.value, kPages - 1);
  pool.release(page);
  EXPECT_EQ(pool_.references(page), 2u);

  pool_.forfeit(lost);
  pool_.release(page);
  pool_.release(page);
}

TEST_F(PagePoolTest, BytesThatAreNoPoolAreRefused) {
  TestRegion other(region_.span().size());
  EXPECT_FALSE(PagePool::attach(other.span()).ok());
  EXPECT_FALSE(PagePool::attach(other.span().first(8)).ok());
  std::copy(region_.span().begin(), region_.span().end(), other.span().begin());
  EXPECT_FALSE(PagePool::attach(other.span().first(region_.span().size() - 64)).ok());
  EXPECT_TRUE(PagePool::attach(other.span()).ok());
  pool_header(other.span()).charge_entries = 3;
  EXPECT_FALSE(PagePool::attach(other.span()).ok());
}

// verify() must say what is wrong, for everything that can be.
class PagePoolVerifyTest : public PagePoolTest {
 protected:
  void SetUp() override {
    owned_ = take_one(pool_, kAnn);
    shared_ = take_one(pool_, kBob);
    pool_.retain(shared_);
    idle_ = take_one(pool_, kBob);
    pool_.release(idle_);
    intact_.assign(region_.span().begin(), region_.span().end());
  }
  void TearDown() override {
    repair();
    pool_.release(owned_);
    pool_.release(shared_);
    pool_.release(shared_);
  }
  void repair() { std::copy(intact_.begin(), intact_.end(), region_.span().begin()); }
  std::string verdict_then_repair() {
    const std::string text = verdict(pool_.verify());
    repair();
    return text;
  }
  PageRecord& record(PageId page) { return page_record(region_.span(), page); }
  PoolHeader& header() { return pool_header(region_.span()); }

  PageId owned_, shared_, idle_;
  std::vector<std::byte> intact_;
};

TEST_F(PagePoolVerifyTest, FindsEveryKindOfDamage) {
  EXPECT_EQ(verdict_then_repair(), "");
  record(owned_).references = 2;
  EXPECT_THAT(verdict_then_repair(), HasSubstr("page 0 is owned with 2 references"));
  record(shared_).references = 1;
  EXPECT_THAT(verdict_then_repair(), HasSubstr("page 1 is shared with 1 references"));
  record(idle_).references = 1;
  EXPECT_THAT(verdict_then_repair(), HasSubstr("page 2 is free with 1 references"));
  record(owned_).state = static_cast<PageState>(9);
  EXPECT_THAT(verdict_then_repair(), HasSubstr("has state 9"));
  ++header().states[1];
  EXPECT_THAT(verdict_then_repair(), HasSubstr("the header counts 2 owned pages, there are 1"));
  header().reserved = 7;
  EXPECT_THAT(verdict_then_repair(), HasSubstr("7 pages are reserved, but only 6 are free"));
  record(owned_).announced = 1;
  EXPECT_THAT(verdict_then_repair(), HasSubstr("unannounced"));
  record(idle_).next = 5;
  EXPECT_THAT(verdict_then_repair(), HasSubstr("page 5 is in the idle list, but not idle"));
  record(PageId(7)).next = 3;
  EXPECT_THAT(verdict_then_repair(), HasSubstr("page 3 is in the free lists twice"));
  record(PageId(5)).next = kNoIndex;
  EXPECT_THAT(verdict_then_repair(), HasSubstr("the bare list has 3 pages instead of 5"));
  record(PageId(5)).next = 100;
  EXPECT_THAT(verdict_then_repair(), HasSubstr("the bare list leaves the pool"));
  header().idle_last = kNoIndex;
  EXPECT_THAT(verdict_then_repair(), HasSubstr("another end"));
  record(owned_).user = kBob;
  EXPECT_THAT(verdict_then_repair(), HasSubstr("is charged"));
  record(owned_).user = UserId(77);
  EXPECT_THAT(verdict_then_repair(), HasSubstr("charged to user 77, who has no charge"));
}

using PagePoolDeathTest = PagePoolTest;

TEST_F(PagePoolDeathTest, ADoubleReleaseAborts) {
  const PageId page = take_one(pool_, kAnn);
  pool_.release(page);
  EXPECT_DEATH(pool_.release(page), "check failed");
}

TEST_F(PagePoolDeathTest, AReservationThatIsForgottenAborts) {
  EXPECT_DEATH(
      {
        Reservation reservation;
        (void)pool_.reserve(PageCount(1), reservation);
      },
      "check failed");
}

TEST_F(PagePoolDeathTest, TakingWithoutAReservationAborts) {
  Reservation empty;
  EXPECT_DEATH(pool_.take(empty, kAnn), "check failed");
}

TEST_F(PagePoolDeathTest, RetainingAFreePageAborts) {
  EXPECT_DEATH(pool_.retain(PageId(3)), "check failed");
}

TEST_F(PagePoolDeathTest, APageBeyondThePoolAborts) {
  EXPECT_DEATH(pool_.release(PageId(kPages)), "check failed");
}

}  // namespace
}  // namespace inferd::memory
