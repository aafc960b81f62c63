#include "memory/page_pool.h"

#include <utility>

namespace inferd::memory {

namespace {

constexpr uint64_t kPoolMagic = 0x6c6f6f7065676170;  // "pagepool", little-endian
constexpr uint32_t kPoolVersion = 4;

struct PoolLayout {
  size_t header_bytes_offset = 0;
  size_t records_offset = 0;
  size_t taken_offset = 0;
  size_t charges_offset = 0;
  size_t bytes = 0;
};

PoolLayout layout_of(uint32_t pages, uint32_t charge_entries) {
  LayoutBuilder builder;
  PoolLayout layout;
  layout.header_bytes_offset = builder.place<PoolHeader>(1);
  layout.records_offset = builder.place<PageRecord>(pages);
  layout.taken_offset = builder.place<PageId>(pages);
  layout.charges_offset = builder.place<UserCharge>(charge_entries);
  layout.bytes = builder.bytes();
  return layout;
}

// Edges of the page's life. Every one but "none" is used by exactly one kind of event:
//   free -> owned take, owned -> shared and back by a second reference or the prefix index, owned ->
//   free the last release; shared -> cached the last release of an indexed page, and back when it is
//   found again; cached -> free when the index drops it.
constexpr bool kEdges[kPageStates][kPageStates] = {
    // to: free   owned  shared cached
    {false, true, false, false},  // from free
    {true, false, true, false},   // from owned
    {false, true, false, true},   // from shared
    {true, false, true, false},   // from cached
};

}  // namespace

std::string_view page_state_name(PageState state) noexcept {
  switch (state) {
    case PageState::kFree:
      return "free";
    case PageState::kOwned:
      return "owned";
    case PageState::kShared:
      return "shared";
    case PageState::kCached:
      return "cached";
  }
  return "unknown";
}

Reservation::Reservation(Reservation&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), count_(std::exchange(other.count_, {})) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  INFERD_CHECK(count_.value == 0);
  pool_ = std::exchange(other.pool_, nullptr);
  count_ = std::exchange(other.count_, {});
  return *this;
}

size_t PagePool::layout_bytes(PageCount pages, uint32_t users_max) {
  return layout_of(pages.value, ChargeTable::entries_for(users_max)).bytes;
}

size_t PagePool::layout_bytes() const {
  return layout_of(header_->pages, header_->charge_entries).bytes;
}

PagePool::PagePool(std::span<std::byte> region, PageCount pages, uint32_t users_max) {
  INFERD_CHECK(pages.value > 0 && pages.value < kNoIndex);
  INFERD_CHECK(region.size() >= layout_bytes(pages, users_max));
  header_ = new (array_at<PoolHeader>(region, 0, 1).data()) PoolHeader;
  header_->magic = kPoolMagic;
  header_->version = kPoolVersion;
  header_->pages = pages.value;
  header_->charge_entries = ChargeTable::entries_for(users_max);
  header_->states[static_cast<uint32_t>(PageState::kFree)] = pages.value;
  map_arrays(region);
  // Pushed from the last to the first, so that the first page is taken first.
  for (uint32_t index = pages.value; index-- > 0;) {
    records_[index] = PageRecord{};
    push_bare(PageId(index));
  }
}

PagePool::PagePool(std::span<std::byte> region, AttachTag) {
  header_ = array_at<PoolHeader>(region, 0, 1).data();
  map_arrays(region);
  header_->reserved = 0;
}

Result<std::unique_ptr<PagePool>> PagePool::attach(std::span<std::byte> region) {
  if (region.size() < sizeof(PoolHeader)) {
    return Error(ErrorCode::kDataCorrupt, "the region is too small to hold a page pool");
  }
  const PoolHeader& header = *array_at<PoolHeader>(region, 0, 1).data();
  const uint32_t entries = header.charge_entries;
  if (header.magic != kPoolMagic || header.version != kPoolVersion || header.pages == 0 ||
      header.pages == kNoIndex || entries == 0 || (entries & (entries - 1)) != 0) {
    return Error(ErrorCode::kDataCorrupt, "the region does not hold a page pool of this version");
  }
  if (layout_of(header.pages, entries).bytes > region.size()) {
    return Error(ErrorCode::kDataCorrupt, "the region is smaller than the page pool it names");
  }
  return std::unique_ptr<PagePool>(new PagePool(region, AttachTag{}));
}

void PagePool::map_arrays(std::span<std::byte> region) {
  const PoolLayout layout = layout_of(header_->pages, header_->charge_entries);
  INFERD_CHECK(layout.header_bytes_offset == 0);
  records_ = array_at<PageRecord>(region, layout.records_offset, header_->pages);
  taken_ = array_at<PageId>(region, layout.taken_offset, header_->pages);
  charges_ =
      ChargeTable(array_at<UserCharge>(region, layout.charges_offset, header_->charge_entries));
}

PageRecord& PagePool::record(PageId page) const {
  INFERD_CHECK(page.value < records_.size());
  return records_[page.value];
}

void PagePool::transition(PageId page, PageState from, PageState to) {
  PageRecord& page_record = record(page);
  INFERD_CHECK(page_record.state == from);
  INFERD_CHECK(kEdges[static_cast<uint32_t>(from)][static_cast<uint32_t>(to)]);
  page_record.state = to;
  --header_->states[static_cast<uint32_t>(from)];
  ++header_->states[static_cast<uint32_t>(to)];
}

ReserveStatus PagePool::reserve(PageCount count, Reservation& reservation) {
  INFERD_CHECK(reservation.pool_ == this || reservation.count_.value == 0);
  if (count.value > header_->pages) return ReserveStatus::kNeverFits;
  if (count > counts().free) return ReserveStatus::kShouldWait;
  header_->reserved += count.value;
  reservation.pool_ = this;
  reservation.count_ += count;
  return ReserveStatus::kReserved;
}

void PagePool::forfeit(Reservation& reservation) {
  if (reservation.count_.value == 0) return;
  INFERD_CHECK(reservation.pool_ == this);
  INFERD_CHECK(header_->reserved >= reservation.count_.value);
  header_->reserved -= reservation.count_.value;
  reservation.count_ = PageCount(0);
}

PageId PagePool::take(Reservation& reservation, UserId user) {
  INFERD_CHECK(reservation.pool_ == this && reservation.count_.value > 0);
  INFERD_CHECK(header_->reserved > 0);
  --reservation.count_;
  --header_->reserved;
  const PageId page = pop_free();
  PageRecord& page_record = record(page);
  INFERD_CHECK(page_record.references == 0);
  transition(page, PageState::kFree, PageState::kOwned);
  page_record.references = 1;
  page_record.user = user;
  charges_.add(user);
  if (page_record.announced != 0) {
    INFERD_CHECK(header_->taken_count < taken_.size());
    page_record.announced = 0;
    taken_[header_->taken_count++] = page;
  }
  return page;
}

void PagePool::retain(PageId page) {
  PageRecord& page_record = record(page);
  INFERD_CHECK(page_record.references < kNoIndex);
  ++page_record.references;
  if (page_record.references == 1) {
    unlink_cached(page);
    transition(page, PageState::kCached, PageState::kShared);
  } else if (page_record.references == 2 && page_record.indexed == 0) {
    transition(page, PageState::kOwned, PageState::kShared);
  }
}

void PagePool::release(PageId page) {
  PageRecord& page_record = record(page);
  INFERD_CHECK(page_record.references > 0);
  --page_record.references;
  if (page_record.indexed != 0) {
    if (page_record.references > 0) return;
    // It keeps its charge: it still is memory that its last user's work takes.
    transition(page, PageState::kShared, PageState::kCached);
    push_cached(page);
    return;
  }
  if (page_record.references == 1) transition(page, PageState::kShared, PageState::kOwned);
  if (page_record.references > 0) return;
  charges_.subtract(page_record.user);
  transition(page, PageState::kOwned, PageState::kFree);
  push_idle(page);
}

void PagePool::recharge(PageId page, UserId user) {
  PageRecord& page_record = record(page);
  INFERD_CHECK(page_record.references > 0);
  if (page_record.user == user) return;
  charges_.subtract(page_record.user);
  page_record.user = user;
  charges_.add(user);
}

UserId PagePool::charged_to(PageId page) const {
  INFERD_CHECK(record(page).state != PageState::kFree);
  return record(page).user;
}

PageCounts PagePool::counts() const {
  PageCounts counts;
  const uint32_t in_lists = header_->states[static_cast<uint32_t>(PageState::kFree)];
  INFERD_DCHECK(in_lists >= header_->reserved);
  counts.total = PageCount(header_->pages);
  counts.free = PageCount(in_lists - header_->reserved);
  counts.reserved = PageCount(header_->reserved);
  counts.owned = PageCount(header_->states[static_cast<uint32_t>(PageState::kOwned)]);
  counts.shared = PageCount(header_->states[static_cast<uint32_t>(PageState::kShared)]);
  counts.cached = PageCount(header_->states[static_cast<uint32_t>(PageState::kCached)]);
  counts.idle = PageCount(header_->idle_count);
  return counts;
}

size_t PagePool::drain_taken(std::span<PageId> out) {
  // From the end, so that what does not fit in `out` stays where it is.
  size_t count = 0;
  while (header_->taken_count > 0 && count < out.size()) {
    const PageId page = taken_[--header_->taken_count];
    PageRecord& page_record = record(page);
    INFERD_CHECK(page_record.announced == 0);
    page_record.announced = 1;
    // One that was freed meanwhile is announced when it is taken again.
    if (page_record.state != PageState::kFree) out[count++] = page;
  }
  return count;
}

size_t PagePool::give_back(PageCount idle_keep, std::span<PageId> out) {
  size_t count = 0;
  while (header_->idle_count > idle_keep.value && count < out.size()) {
    const PageId page(header_->idle_last);
    unlink_idle(page);
    push_bare(page);
    out[count++] = page;
  }
  return count;
}

void PagePool::push_idle(PageId page) {
  PageRecord& page_record = record(page);
  INFERD_CHECK(page_record.state == PageState::kFree);
  page_record.idle = 1;
  page_record.previous = kNoIndex;
  page_record.next = header_->idle_first;
  if (header_->idle_first != kNoIndex) records_[header_->idle_first].previous = page.value;
  header_->idle_first = page.value;
  if (header_->idle_last == kNoIndex) header_->idle_last = page.value;
  ++header_->idle_count;
}

void PagePool::push_bare(PageId page) {
  PageRecord& page_record = record(page);
  INFERD_CHECK(page_record.state == PageState::kFree);
  page_record.idle = 0;
  page_record.previous = kNoIndex;
  page_record.next = header_->bare_first;
  header_->bare_first = page.value;
  ++header_->bare_count;
}

PageId PagePool::pop_free() {
  if (header_->idle_count > 0) {
    const PageId page(header_->idle_first);
    unlink_idle(page);
    return page;
  }
  INFERD_CHECK(header_->bare_count > 0);
  const PageId page(header_->bare_first);
  PageRecord& page_record = record(page);
  header_->bare_first = page_record.next;
  --header_->bare_count;
  page_record.next = kNoIndex;
  return page;
}

void PagePool::unlink_idle(PageId page) {
  PageRecord& page_record = record(page);
  INFERD_CHECK(page_record.idle == 1 && header_->idle_count > 0);
  if (page_record.previous != kNoIndex) records_[page_record.previous].next = page_record.next;
  if (page_record.next != kNoIndex) records_[page_record.next].previous = page_record.previous;
  if (header_->idle_first == page.value) header_->idle_first = page_record.next;
  if (header_->idle_last == page.value) header_->idle_last = page_record.previous;
  page_record.idle = 0;
  page_record.next = kNoIndex;
  page_record.previous = kNoIndex;
  --header_->idle_count;
}

}  // namespace inferd::memory
