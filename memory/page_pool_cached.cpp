// PagePool: pages of the prefix index, and the order in which those go that nobody holds.
#include <algorithm>

#include "memory/page_pool.h"

namespace inferd::memory {

namespace {

// By what a class's age is divided: the square root of its cost, so powers of the fourth root of 2. The cost itself,
// which would be right if deep pages were asked for again as often as others, keeps ended conversations for too long:
// of agents' traces that want more pages than there are (inferd-bench sim), 4 % more time than by age alone, where
// the root takes 3 to 5 % less.
constexpr std::array<uint64_t, kCostClasses> kClassWeight = {256, 304, 362, 431, 512, 609, 724, 861};
// How far from a list's end the place of a page that changes lists is looked for.
constexpr uint32_t kLookedAtMax = 32;

}  // namespace

void PagePool::set_indexed(PageId page, uint32_t cost_class) {
  PageRecord& page_record = record(page);
  INFERD_CHECK(page_record.references > 0 && page_record.indexed == 0);
  INFERD_CHECK(cost_class < kCostClasses);
  page_record.indexed = static_cast<uint8_t>(1 + cost_class);
  if (page_record.references == 1) transition(page, PageState::kOwned, PageState::kShared);
}

void PagePool::clear_indexed(PageId page) {
  PageRecord& page_record = record(page);
  INFERD_CHECK(page_record.indexed != 0);
  if (page_record.references == 0) unlink_cached(page);
  page_record.indexed = 0;
  if (page_record.references == 1) transition(page, PageState::kShared, PageState::kOwned);
  if (page_record.references > 0) return;
  charges_.subtract(page_record.user);
  transition(page, PageState::kCached, PageState::kFree);
  push_idle(page);
}

void PagePool::raise_cost_class(PageId page, uint32_t cost_class) {
  PageRecord& page_record = record(page);
  INFERD_CHECK(page_record.references > 0 && page_record.indexed != 0);
  INFERD_CHECK(cost_class < kCostClasses && cost_class >= this->cost_class(page));
  page_record.indexed = static_cast<uint8_t>((page_record.indexed & kPinned) | (1 + cost_class));
}

void PagePool::lower_cost_class(PageId page, uint32_t cost_class) {
  PageRecord& page_record = record(page);
  INFERD_CHECK(page_record.indexed != 0);
  if (cost_class >= this->cost_class(page)) return;
  const auto indexed = static_cast<uint8_t>((page_record.indexed & kPinned) | (1 + cost_class));
  if (page_record.state != PageState::kCached || is_pinned(page)) {
    page_record.indexed = indexed;
    return;
  }
  uint32_t newer = header_->cached[cost_class].last;
  uint32_t older = kNoIndex;
  for (uint32_t i = 0; newer != kNoIndex && age(newer) > age(page.value); ++i) {
    if (i == kLookedAtMax) return;
    older = newer;
    newer = records_[newer].previous;
  }
  unlink_cached(page);
  page_record.indexed = indexed;
  insert_cached(page, newer, older);
}

void PagePool::set_pinned(PageId page, bool pinned) {
  PageRecord& page_record = record(page);
  INFERD_CHECK(page_record.indexed != 0);
  const bool cached = page_record.state == PageState::kCached;
  if (cached) unlink_cached(page);
  const uint8_t others = page_record.indexed & static_cast<uint8_t>(~kPinned);
  page_record.indexed = pinned ? static_cast<uint8_t>(others | kPinned) : others;
  if (cached) push_cached(page);
}

PageId PagePool::first_cached() const {
  for (const PoolHeader::CachedList& list : header_->cached) {
    if (list.last != kNoIndex) return PageId(list.last);
  }
  return kNoPage;
}

PageId PagePool::cached_after(PageId page) const {
  const PageRecord& page_record = record(page);
  if (page_record.previous != kNoIndex) return PageId(page_record.previous);
  for (uint32_t list = list_of(page_record) + 1; list < header_->cached.size(); ++list) {
    if (header_->cached[list].last != kNoIndex) return PageId(header_->cached[list].last);
  }
  return kNoPage;
}

PageId PagePool::last_cached() const {
  for (size_t list = header_->cached.size(); list-- > 0;) {
    if (header_->cached[list].first != kNoIndex) return PageId(header_->cached[list].first);
  }
  return kNoPage;
}

PageId PagePool::cached_before(PageId page) const {
  const PageRecord& page_record = record(page);
  if (page_record.next != kNoIndex) return PageId(page_record.next);
  for (uint32_t list = list_of(page_record); list-- > 0;) {
    if (header_->cached[list].first != kNoIndex) return PageId(header_->cached[list].first);
  }
  return kNoPage;
}

PageId PagePool::next_to_go() const { return GoingOrder(*this).next(); }

std::optional<uint32_t> PagePool::oldest_cached_s() const {
  std::optional<uint32_t> oldest_s;
  for (uint32_t cost_class = 0; cost_class < kCostClasses; ++cost_class) {
    const PageId page = oldest_of_class(cost_class);
    if (page != kNoPage) oldest_s = std::min(oldest_s.value_or(UINT32_MAX), cached_at_s(page));
  }
  return oldest_s;
}

void PagePool::push_cached(PageId page) {
  PageRecord& page_record = record(page);
  page_record.cached_at_s = now_s_;
  page_record.let_go = header_->let_go_count++;
  insert_cached(page, kNoIndex, header_->cached[list_of(page_record)].first);
}

// Into its list, between two neighbours there (kNoIndex: none).
void PagePool::insert_cached(PageId page, uint32_t newer, uint32_t older) {
  PageRecord& page_record = record(page);
  PoolHeader::CachedList& list = header_->cached[list_of(page_record)];
  page_record.previous = newer;
  page_record.next = older;
  (newer == kNoIndex ? list.first : records_[newer].next) = page.value;
  (older == kNoIndex ? list.last : records_[older].previous) = page.value;
}

void PagePool::unlink_cached(PageId page) {
  PageRecord& page_record = record(page);
  INFERD_CHECK(page_record.state == PageState::kCached);
  PoolHeader::CachedList& list = header_->cached[list_of(page_record)];
  const uint32_t newer = page_record.previous;
  const uint32_t older = page_record.next;
  (newer == kNoIndex ? list.first : records_[newer].next) = older;
  (older == kNoIndex ? list.last : records_[older].previous) = newer;
  page_record.next = kNoIndex;
  page_record.previous = kNoIndex;
}

GoingOrder::GoingOrder(const PagePool& pool) : pool_(pool), oldest_{} {
  for (size_t list = 0; list < oldest_.size(); ++list) oldest_[list] = pool.header_->cached[list].last;
}

PageId GoingOrder::next() {
  size_t best = kCostClasses;
  uint64_t best_age = 0;
  for (size_t list = 0; list < kCostClasses; ++list) {
    if (oldest_[list] == kNoIndex) continue;
    // Of two that are equal the cheaper one, which may be what follows the other.
    const uint64_t age = pool_.age(oldest_[list]);
    if (best == kCostClasses || age * kClassWeight[best] > best_age * kClassWeight[list]) {
      best = list;
      best_age = age;
    }
  }
  const uint32_t page = oldest_[best];
  if (page != kNoIndex) oldest_[best] = pool_.records_[page].previous;
  return PageId(page);
}

}  // namespace inferd::memory
