// The memory of one model: a page pool, the page tables over it and the index of what is kept, in one
// region of bytes.
// Owner: daemon/ (or a test), which passes it to the scheduler. Engine thread only.
// Must not know engines: the daemon carries what drain_taken() and give_back() list to the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "memory/page_pool.h"
#include "memory/page_tier.h"
#include "memory/prefix_index.h"
#include "memory/sequence_table.h"

namespace inferd::memory {

struct MemoryConfig {
  PageCount pages{0};                // of the pool; at least 1
  uint32_t sequences_max = 0;        // open at the same time; at least 1
  uint32_t sequence_tokens_max = 0;  // longest sequence; at least 1, rounded up to whole pages
  uint32_t cache_domains_max = 1024;  // users and shared domains with cached prefixes at a time
  uint32_t tier_slots = 0;            // pages that the next tier has room for; 0: there is none
  uint64_t hash_seed = 0;             // of the prefix index; random where clients are not trusted
};

// Of pages that are free, or would be at once since their content is in the next tier as well.
struct Watermarks {
  PageCount low;
  PageCount high;  // not below low
};

class PagedMemory {
 public:
  static size_t layout_bytes(const MemoryConfig& config);

  // Over memory of its own, of which only what is used becomes resident.
  explicit PagedMemory(const MemoryConfig& config);
  // A new memory over a region that outlives it: zero, aligned to kLayoutAlignment, of
  // layout_bytes().
  PagedMemory(const MemoryConfig& config, std::span<std::byte> region);
  // A view of the memory that already lies in the region. Errors: kDataCorrupt.
  static Result<std::unique_ptr<PagedMemory>> attach(std::span<std::byte> region);

  PagePool& pool() { return *pool_; }
  const PagePool& pool() const { return *pool_; }
  SequenceTable& sequences() { return *sequences_; }
  const SequenceTable& sequences() const { return *sequences_; }

  PrefixIndex& prefixes() { return *prefixes_; }
  const PrefixIndex& prefixes() const { return *prefixes_; }

  // Where content goes that the pool has no room for; null: nowhere. Borrowed; outlives this object.
  void set_tier(PageTier* tier) { tier_ = tier; }
  PageTier* tier() const { return tier_; }
  // Whether content that leaves the pool is worth a place in the next tier. True until told otherwise.
  void set_keep_evicted(bool keep) { keep_evicted_ = keep; }
  // Pages whose content left the pool since the last call and has a slot now, to be copied there before
  // anybody writes or gives back any page. The caller empties it.
  std::vector<PageStore>& stores() { return stores_; }

  // As PagePool::reserve, but drops cached pages, by age and cost, before anyone waits.
  [[nodiscard]] ReserveStatus reserve(PageCount count, Reservation& reservation);
  // Pages that reserve() can give: free ones, and cached ones that would go.
  PageCount available() const;
  // Stores cached pages that are in no slot yet, those first that are next to go; they stay where they are. Begins once
  // fewer than marks.low pages are free or would be free at once, and goes on, over as many calls as it takes,
  // until marks.high are. Returns how many, at most `count_max`. O(marks.high).
  uint32_t store_ahead(Watermarks marks, uint32_t count_max);
  // Frees cached pages that were let go before `before_s` (of PagePool::set_now's clock), those first that are
  // next to go, at most `count_max`; returns how many.
  uint32_t drop_cached(uint32_t before_s, uint32_t count_max);

  // Frees cached pages that are charged to `user`, the cheapest and oldest first, from the ends of their prefixes, until
  // no more than `pages` in all are charged to it. Returns how many. O(cached pages), with a bound: what a large
  // cache hides from it goes another time.
  uint32_t drop_cached_of(UserId user, PageCount pages);

  std::span<std::byte> region() const { return region_; }

  // Every invariant of pool, tables and index, and that they agree. The first violation in words,
  // kInternal.
  Result<void> verify() const;

 private:
  struct FreeDeleter {
    void operator()(std::byte* bytes) const;
  };

  PagedMemory() = default;
  PageId oldest_before(uint32_t before_s) const;
  bool evict();
  bool evict(PageId page);
  void format(const MemoryConfig& config);

  std::unique_ptr<std::byte, FreeDeleter> owned_;  // empty over a borrowed region
  std::span<std::byte> region_;
  std::unique_ptr<PagePool> pool_;
  std::unique_ptr<SequenceTable> sequences_;
  std::unique_ptr<PrefixIndex> prefixes_;
  PageTier* tier_ = nullptr;
  bool keep_evicted_ = true;
  bool storing_ahead_ = false;  // the low watermark was reached, and the high one not yet again
  std::vector<PageStore> stores_;
};

}  // namespace inferd::memory
