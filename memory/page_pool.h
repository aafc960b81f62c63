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
// operating system. A bare page has none: it is used when no idle page is left. Cached pages lie in two as
// well: those that are pinned go after all others.
//
// All metadata is a view over one span of bytes (see PoolHeader, PageRecord): indices, no pointers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
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
  // Cached pages; first those that go first, then those that are pinned.
  struct CachedList {
    uint32_t first = kNoIndex;  // cached last
    uint32_t last = kNoIndex;   // cached first: the next to go
  };
  std::array<CachedList, 2> cached{};
};

struct PageRecord {
  uint32_t references = 0;
  UserId user;               // charged to; meaningless while free
  uint32_t next = kNoIndex;  // in a free list, or in the list of cached pages
  uint32_t previous = kNoIndex;
  uint32_t cached_at_s = 0;  // when it became cached, by set_now()
  PageState state = PageState::kFree;
  uint8_t idle = 0;       // free, with memory behind it
  uint8_t announced = 1;  // 0: in the list of pages to announce
  // 1: in the prefix index: the last release makes it cached instead of free. 2: and pinned there.
  uint8_t indexed = 0;
};
static_assert(sizeof(PageRecord) == 24);

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
  void set_indexed(PageId page);
  void clear_indexed(PageId page);
  bool is_indexed(PageId page) const { return record(page).indexed != 0; }
  // A pinned page goes after all that are not. A cached one counts as let go now.
  void set_pinned(PageId page, bool pinned);
  bool is_pinned(PageId page) const { return record(page).indexed == kPinned; }
  // Cached pages in the order in which they were let go, pinned ones after all others; kNoPage at the end.
  PageId oldest_cached() const;
  PageId newer_cached(PageId page) const;
  PageId newest_cached() const;
  PageId older_cached(PageId page) const;
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
  static constexpr uint8_t kPinned = 2;
  PagePool(std::span<std::byte> region, AttachTag);

  PageRecord& record(PageId page) const;
  void map_arrays(std::span<std::byte> region);
  // The only place that changes a page's state. Checks that the edge exists.
  void transition(PageId page, PageState from, PageState to);
  void push_idle(PageId page);
  void push_bare(PageId page);
  PageId pop_free();
  void unlink_idle(PageId page);
  PoolHeader::CachedList& cached_list(const PageRecord& page_record) const {
    return header_->cached[page_record.indexed == kPinned ? 1 : 0];
  }
  void push_cached(PageId page);
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

}  // namespace inferd::memory
