#include "memory/paged_memory.h"

#include <cstdlib>

#include "base/check.h"

namespace inferd::memory {

namespace {

uint32_t sequence_pages(const MemoryConfig& config) {
  return pages_for_tokens(config.sequence_tokens_max).value;
}

// Every user with a charge has a page, held or cached, so there are no more users than pages.
size_t pool_bytes(const MemoryConfig& config) {
  return PagePool::layout_bytes(config.pages, config.pages.value);
}

size_t table_bytes(const MemoryConfig& config) {
  return SequenceTable::layout_bytes(config.pages, config.sequences_max, sequence_pages(config));
}

}  // namespace

void PagedMemory::FreeDeleter::operator()(std::byte* bytes) const { std::free(bytes); }

size_t PagedMemory::layout_bytes(const MemoryConfig& config) {
  return pool_bytes(config) + table_bytes(config) +
         PrefixIndex::layout_bytes(config.pages, config.tier_slots, config.cache_domains_max);
}

PagedMemory::PagedMemory(const MemoryConfig& config) {
  // calloc and not a vector: large zeroed blocks come from the kernel untouched, so the page
  // tables' reserve of entries costs address space until it is used. Aligned by hand.
  const size_t bytes = layout_bytes(config);
  owned_.reset(static_cast<std::byte*>(std::calloc(bytes + kLayoutAlignment, 1)));
  INFERD_CHECK(owned_ != nullptr);
  const size_t misaligned = reinterpret_cast<uintptr_t>(owned_.get()) % kLayoutAlignment;
  region_ = {owned_.get() + (kLayoutAlignment - misaligned) % kLayoutAlignment, bytes};
  format(config);
}

PagedMemory::PagedMemory(const MemoryConfig& config, std::span<std::byte> region)
    : region_(region) {
  format(config);
}

void PagedMemory::format(const MemoryConfig& config) {
  INFERD_CHECK(config.sequences_max > 0 && config.sequence_tokens_max > 0);
  INFERD_CHECK(region_.size() >= layout_bytes(config));
  INFERD_CHECK(reinterpret_cast<uintptr_t>(region_.data()) % kLayoutAlignment == 0);
  pool_ = std::make_unique<PagePool>(region_, config.pages, config.pages.value);
  sequences_ = std::make_unique<SequenceTable>(region_.subspan(pool_bytes(config)), *pool_,
                                               config.sequences_max, sequence_pages(config));
  prefixes_ = std::make_unique<PrefixIndex>(
      region_.subspan(pool_bytes(config) + table_bytes(config)), *pool_, config.tier_slots,
      config.cache_domains_max, config.hash_seed);
}

Result<std::unique_ptr<PagedMemory>> PagedMemory::attach(std::span<std::byte> region) {
  std::unique_ptr<PagedMemory> memory(new PagedMemory);
  memory->region_ = region;
  INFERD_ASSIGN(memory->pool_, PagePool::attach(region));
  const size_t tables = memory->pool_->layout_bytes();
  INFERD_ASSIGN(memory->sequences_, SequenceTable::attach(region.subspan(tables), *memory->pool_));
  const size_t index = tables + memory->sequences_->layout_bytes();
  INFERD_ASSIGN(memory->prefixes_, PrefixIndex::attach(region.subspan(index), *memory->pool_));
  return memory;
}

ReserveStatus PagedMemory::reserve(PageCount count, Reservation& reservation) {
  if (count > pool_->counts().total) return ReserveStatus::kNeverFits;
  if (count > available()) return ReserveStatus::kShouldWait;
  while (pool_->counts().free < count) INFERD_CHECK(evict());
  return pool_->reserve(count, reservation);
}

PageCount PagedMemory::available() const {
  const PageCounts counts = pool_->counts();
  return counts.free + counts.cached;
}

uint32_t PagedMemory::drop_cached(uint32_t before_s, uint32_t count_max) {
  uint32_t count = 0;
  while (count < count_max) {
    PageId page = pool_->next_to_go();
    // Nothing but need lets a pinned page go.
    if (page == kNoPage || pool_->is_pinned(page)) break;
    if (pool_->cached_at_s(page) >= before_s) page = oldest_before(before_s);
    if (page == kNoPage) break;
    INFERD_CHECK(evict(page));
    ++count;
  }
  return count;
}

// A page that was let go before then, of the lowest class that has one: none follows it that is still here.
PageId PagedMemory::oldest_before(uint32_t before_s) const {
  for (uint32_t cost_class = 0; cost_class < kCostClasses; ++cost_class) {
    const PageId oldest = pool_->oldest_of_class(cost_class);
    if (oldest != kNoPage && pool_->cached_at_s(oldest) < before_s) return oldest;
  }
  return kNoPage;
}

// The cached page that is the next to go becomes free; its content moves on if there is a place for it.
bool PagedMemory::evict() {
  const PageId next = pool_->next_to_go();
  return next != kNoPage && evict(next);
}

bool PagedMemory::evict(PageId page) {
  const bool store = tier_ != nullptr && keep_evicted_ && tier_->stores_free() > stores_.size();
  const std::optional<PrefixIndex::Evicted> evicted = prefixes_->evict(page, store);
  if (!evicted) return false;
  if (evicted->store) stores_.push_back({evicted->page, *evicted->store});
  return true;
}

uint32_t PagedMemory::drop_cached_of(UserId user, PageCount pages) {
  constexpr uint32_t kLookedAtMax = 4096;
  uint32_t count = 0;
  uint32_t looked_at = 0;
  // A page before one that went may be in an earlier list now: then there is another round.
  for (uint32_t before = kNoIndex; before != count;) {
    before = count;
    PageId page = pool_->first_cached();
    while (page != kNoPage && pool_->charged_pages(user) > pages && looked_at++ < kLookedAtMax) {
      const PageId after = pool_->cached_after(page);
      if (pool_->charged_to(page) == user && !pool_->is_pinned(page) && evict(page)) ++count;
      page = after;
    }
  }
  return count;
}

uint32_t PagedMemory::store_ahead(Watermarks marks, uint32_t count_max) {
  INFERD_CHECK(marks.low <= marks.high);
  if (tier_ == nullptr || !keep_evicted_) return 0;
  PageCount at_once = pool_->counts().free;
  GoingOrder order(*pool_);
  PageId page = order.next();
  const auto next_unstored = [&](PageCount mark) {
    for (; page != kNoPage && at_once < mark && prefixes_->is_stored(page); page = order.next()) {
      ++at_once;
    }
    return page != kNoPage && at_once < mark;
  };
  if (next_unstored(marks.low)) storing_ahead_ = true;
  uint32_t count = 0;
  while (storing_ahead_ && next_unstored(marks.high) && count < count_max) {
    if (tier_->stores_free() <= stores_.size()) return count;
    const std::optional<SlotRef> slot = prefixes_->store_beside(page);
    if (!slot) return count;
    stores_.push_back({page, *slot});
    ++count;
  }
  if (count < count_max) storing_ahead_ = false;
  return count;
}

Result<void> PagedMemory::verify() const {
  INFERD_TRY(pool_->verify());
  INFERD_TRY(sequences_->verify());
  return prefixes_->verify();
}

}  // namespace inferd::memory
