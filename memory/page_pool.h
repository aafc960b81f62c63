// The physical pages: who may have one, how many hold it, whom it is charged to.
// Owner: PagedMemory. Engine thread only.
// Must not know sequences, tokens, bytes of a page, or engines.
//
// A page is in one of the states below, and every change of state goes through transition().
// A reservation is only a number: reserved pages are interchangeable, so they stay in the free
// lists. Reserve first; then taking cannot fail. After every call
//   free + reserved + owned + shared + cached = total.
//
// Free pages lie in two lists. An idle page still has memory behind it from its last use: it is
// reused first (the latest freed first, while it is warm), and the coldest are given back to the
// operating system. A bare page has none: it is used when no idle page is left.
//
// Cached pages lie in a list for each class of what computing them again would cost, by age. The one for which age
// over the square root of cost is largest goes first: a cache of things of unlike cost (Blankstein et al. 2017,
// "Hyperbolic Caching"), whose choice among the ends of a few lists is exact up to the width of a class. Age counts pages that
// were let go since, not seconds. Pinned pages have a list of their own and go after all others.
//
// All metadata is a view over one span of bytes (see PoolHeader, PageRecord): indices, no pointers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/check.h"
#include "base/ids.h"
#include "base/result.h"
#include "memory/charge_table.h"
#include "memory/layout.h"

namespace inferd::memory {

enum class PageState : uint8_t {
  kFree = 0,    // no references; in a free list
  kOwned = 1,   // one reference: its holder may write it
  kShared = 2,  // several references, or one and the prefix index: nobody may write it
  kCached = 3,  // no references, kept by the prefix index for its content
};
inline constexpr uint32_t kPageStates = 4;

// "free", "owned", "shared", "cached"; a static string.
std::string_view page_state_name(PageState state) noexcept;

// Pages by state; the five always sum to total.
struct PageCounts {
  PageCount total;
  PageCount free;      // neither held nor promised
  PageCount reserved;  // promised to a Reservation, not yet taken
  PageCount owned;
  PageCount shared;
  PageCount cached;
  PageCount idle;  // of free + reserved: those with memory behind them

  PageCount live() const { return owned + shared; }
};

enum class ReserveStatus : uint8_t {
  kReserved,
  kShouldWait,  // enough pages exist, but others hold them: wait, or make some let go
  kNeverFits,   // more than the whole pool
};

class PagePool;

// Pages promised to its holder. Move-only; must be empty (all taken, or forfeited) when destroyed.
class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;  // the target must be empty
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() { INFERD_CHECK(count_.value == 0); }

  PageCount count() const { return count_; }

 private:
  friend class PagePool;
  PagePool* pool_ = nullptr;
  PageCount count_;
};

// Classes of what computing a page again costs; a class costs half again as much as the one before (by
// the square root of 2), the last one that or more.
inline constexpr uint32_t kCostClasses = 8;

// The layout in bytes, for those who store it or break it on purpose. Never renumbered, only grown.
struct PoolHeader {
  uint64_t magic = 0;
  uint32_t version = 0;
  uint32_t pages = 0;
  uint32_t charge_entries = 0;
  uint32_t reserved = 0;                       // dies with its process: attach() sets it to 0
  std::array<uint32_t, kPageStates> states{};  // pages by state
  uint32_t idle_first = kNoIndex;              // latest freed
  uint32_t idle_last = kNoIndex;               // coldest
  uint32_t idle_count = 0;
  uint32_t bare_first = kNoIndex;
  uint32_t bare_count = 0;
  uint32_t taken_count = 0;  // entries in use of the list of pages to announce
  uint32_t let_go_count = 0;  // pages that became cached so far; wraps
  // Cached pages, by class of cost, then those that are pinned.
  struct CachedList {
    uint32_t first = kNoIndex;  // let go last
    uint32_t last = kNoIndex;   // let go first: of these the next to go
  };
  std::array<CachedList, kCostClasses + 1> cached{};
};

struct PageRecord {
  uint32_t references = 0;
  UserId user;               // charged to; meaningless while free
  uint32_t next = kNoIndex;  // in a free list, or in the list of cached pages
  uint32_t previous = kNoIndex;
  uint32_t cached_at_s = 0;  // when it became cached, by set_now()
  uint32_t let_go = 0;       // and as which one, by PoolHeader::let_go_count
  PageState state = PageState::kFree;
  uint8_t idle = 0;       // free, with memory behind it
  uint8_t announced = 1;  // 0: in the list of pages to announce
  // In the prefix index, so that the last release makes it cached instead of free: 1 + its class of cost, and 128
  // more if it is pinned there. 0: it is not.
  uint8_t indexed = 0;
};
static_assert(sizeof(PageRecord) == 28);

class PagePool {
 public:
  // Bytes of metadata for `pages` pages charged to at most `users_max` users at a time.
  static size_t layout_bytes(PageCount pages, uint32_t users_max);

  // A new pool in `region`, which is aligned to kLayoutAlignment, zero, of layout_bytes(), and
  // outlives it.
  PagePool(std::span<std::byte> region, PageCount pages, uint32_t users_max);
  // A view of the pool that already lies in `region`, at whatever address it now is. Reservations
  // of its former process are gone. Errors: kDataCorrupt if the region does not hold such a pool.
  static Result<std::unique_ptr<PagePool>> attach(std::span<std::byte> region);

  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // Adds `count` pages to `reservation`, all of them or none. O(1).
  [[nodiscard]] ReserveStatus reserve(PageCount count, Reservation& reservation);
  // Returns what is left of it. Does nothing to an empty one.
  void forfeit(Reservation& reservation);

  // One page out of the reservation, which must not be empty: owned, one reference, charged to
  // `user`. Its content is undefined until it was announced (drain_taken) or copied to.
  PageId take(Reservation& reservation, UserId user);
  // One reference more, one less. The page must be held, or for retain() cached. The last release
  // frees it, or leaves it cached if it is in the prefix index.
  void retain(PageId page);
  void release(PageId page);
  // Charges a held page to another user.
  void recharge(PageId page, UserId user);

  // Bytes of its region that this pool uses.
  size_t layout_bytes() const;

  // For the prefix index alone. A held page enters it and is read-only from then on; one that leaves
  // is its holder's again, or free if nobody holds it.
  void set_indexed(PageId page, uint32_t cost_class);
  void clear_indexed(PageId page);
  bool is_indexed(PageId page) const { return record(page).indexed != 0; }
  // Of an indexed page. The index sees to it that a page's class is no lower than that of a cached page that
  // follows it: then that one, which was let go before, also goes before.
  uint32_t cost_class(PageId page) const { return (record(page).indexed & ~kPinned) - 1u; }
  // Only of a page that somebody holds.
  void raise_cost_class(PageId page, uint32_t cost_class);
  // Of a page behind which none follows any more. Does nothing to a cached one whose place by age in
  // the other list is not near that list's end.
  void lower_cost_class(PageId page, uint32_t cost_class);
  // A pinned page goes after all that are not. A cached one counts as let go now.
  void set_pinned(PageId page, bool pinned);
  bool is_pinned(PageId page) const { return (record(page).indexed & kPinned) != 0; }

  // All cached pages, those that follow others before them, pinned ones last; kNoPage at the end. And back.
  PageId first_cached() const;
  PageId cached_after(PageId page) const;
  PageId last_cached() const;
  PageId cached_before(PageId page) const;
  // The cached page that is the next to go; kNoPage if none is cached.
  PageId next_to_go() const;
  // The cached page of a class that was let go first; kNoPage if the class has none.
  PageId oldest_of_class(uint32_t cost_class) const { return PageId(header_->cached[cost_class].last); }
  // When the cached page was let go that has been there longest, pinned ones aside; nothing without one.
  std::optional<uint32_t> oldest_cached_s() const;
  // When a cached page was let go, in seconds of set_now()'s clock.
  uint32_t cached_at_s(PageId page) const { return record(page).cached_at_s; }
  // The time that pages becoming cached are stamped with.
  void set_now(uint32_t now_s) { now_s_ = now_s; }

  PageState state(PageId page) const { return record(page).state; }
  uint32_t references(PageId page) const { return record(page).references; }
  UserId charged_to(PageId page) const;
  PageCount charged_pages(UserId user) const { return charges_.pages(user); }
  // One entry per user with a charge, empty entries (pages == 0) between them.
  std::span<const UserCharge> charges() const { return charges_.entries(); }

  PageCounts counts() const;

  // Pages that were taken since they were last listed here and are still held: each is announced to
  // the engine before a step writes it. Fills `out`, returns how many; call until it returns less
  // than out.size().
  size_t drain_taken(std::span<PageId> out);
  // Free pages whose memory goes back to the operating system: the coldest idle ones, until
  // `idle_keep` idle pages are left or `out` is full. Returns how many; they are bare from now on.
  size_t give_back(PageCount idle_keep, std::span<PageId> out);

  // Walks every invariant; the first violation in words, kInternal. O(pages), allocates.
  Result<void> verify() const;

 private:
  struct AttachTag {};
  friend class GoingOrder;
  static constexpr uint8_t kPinned = 128;
  PagePool(std::span<std::byte> region, AttachTag);

  PageRecord& record(PageId page) const;
  void map_arrays(std::span<std::byte> region);
  // The only place that changes a page's state. Checks that the edge exists.
  void transition(PageId page, PageState from, PageState to);
  void push_idle(PageId page);
  void push_bare(PageId page);
  PageId pop_free();
  void unlink_idle(PageId page);
  static uint32_t list_of(const PageRecord& page_record) {
    return (page_record.indexed & kPinned) != 0 ? kCostClasses : page_record.indexed - 1u;
  }
  uint32_t age(uint32_t index) const { return header_->let_go_count - records_[index].let_go; }
  void push_cached(PageId page);
  void insert_cached(PageId page, uint32_t newer, uint32_t older);
  void unlink_cached(PageId page);
  Result<void> verify_records() const;
  Result<void> verify_free_lists() const;
  Result<void> verify_cached_lists() const;
  Result<void> verify_charges() const;

  PoolHeader* header_ = nullptr;  // borrowed, in the region
  std::span<PageRecord> records_;
  std::span<PageId> taken_;  // [header_->taken_count of pages], each page at most once
  ChargeTable charges_;
  uint32_t now_s_ = 0;
};

// Cached pages in the order in which they would go if no more were let go meanwhile.
// Lives as long as nothing changes the pool. O(kCostClasses) a page.
class GoingOrder {
 public:
  explicit GoingOrder(const PagePool& pool);
  PageId next();  // kNoPage at the end

 private:
  const PagePool& pool_;
  std::array<uint32_t, kCostClasses + 1> oldest_;
};

}  // namespace inferd::memory
