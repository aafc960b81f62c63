// Every open sequence's page table: token positions to pages, and who holds which page.
// Owner: PagedMemory. Engine thread only. Must not know token ids, requests, or bytes of a page.
//
// Page i of a sequence holds its positions 16 i .. 16 i + 15. A page may stand in several tables
// (fork, prefix index); then nobody writes it until make_writable() has given the writer
// a copy of its own.
//
// Each page's holders form a ring of table entries. The first is the one that the page is charged
// to; when it lets go, the charge stays with its user if that user holds the page elsewhere, and
// else moves to the next holder. So at any time a page is charged to exactly one user, who holds
// it.
//
// All metadata is a view over one span of bytes: indices, no pointers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/ids.h"
#include "base/result.h"
#include "memory/layout.h"
#include "memory/page_copy.h"
#include "memory/page_pool.h"
#include "memory/page_table.h"

namespace inferd::memory {

// The layout in bytes, for those who store it or break it on purpose. Never renumbered, only grown.
struct SequenceTableHeader {
  uint64_t magic = 0;
  uint32_t version = 0;
  uint32_t pages = 0;  // of the pool
  uint32_t sequences_max = 0;
  uint32_t sequence_pages_max = 0;  // entries of one page table
  uint32_t free_first = kNoIndex;   // slots without a sequence
  uint32_t open_count = 0;
};

struct SequenceRecord {
  SequenceId id;  // 0: the slot is free
  UserId user;    // whom its pages are charged to
  uint32_t tokens = 0;
  uint32_t pages = 0;        // ceil(tokens / 16)
  uint32_t next = kNoIndex;  // next free slot
};
static_assert(sizeof(SequenceRecord) == 24);

// Neighbours of a table entry in the ring of its page's holders.
struct HolderLinks {
  uint32_t next = kNoIndex;
  uint32_t previous = kNoIndex;
};

class SequenceTable {
 public:
  static size_t layout_bytes(PageCount pages, uint32_t sequences_max, uint32_t sequence_pages_max);

  // A new table in `region` (aligned, zero, of layout_bytes()) over `pool`; both outlive it.
  SequenceTable(std::span<std::byte> region, PagePool& pool, uint32_t sequences_max,
                uint32_t sequence_pages_max);
  // A view of the table that lies in `region`. Errors: kDataCorrupt if it holds none for this pool.
  static Result<std::unique_ptr<SequenceTable>> attach(std::span<std::byte> region, PagePool& pool);

  SequenceTable(const SequenceTable&) = delete;
  SequenceTable& operator=(const SequenceTable&) = delete;

  // Bytes of its region that this table uses.
  size_t layout_bytes() const;
  uint32_t sequences_max() const { return header_->sequences_max; }
  uint32_t open_count() const { return header_->open_count; }
  bool full() const { return header_->free_first == kNoIndex; }
  uint32_t sequence_tokens_max() const { return header_->sequence_pages_max * kPageTokens; }

  // An empty sequence. The table must not be full(), and `id` must be new.
  PageTable open(SequenceId id, UserId user);
  // A second sequence with the same content: every page shared, none copied. O(pages of the
  // parent). The table must not be full(). Neither may have pages that a step in flight is writing.
  PageTable fork(const PageTable& parent, SequenceId id, UserId user);
  // Gives an empty sequence its first `tokens` positions from pages that hold them already, as
  // PrefixIndex::lookup() found them: ceil(tokens / 16) pages, all held or cached. None is copied
  // now; a part-filled last page is when the sequence grows (see PageTable::append).
  void attach_prefix(PageTable& table, std::span<const PageId> pages, uint32_t tokens);
  // Puts `page`, which has the same content, in the place of the sequence's page `index`, and lets
  // go of that one.
  void replace(PageTable& table, uint32_t index, PageId page);
  // Takes hold again of a sequence that was open when the region was left behind (takeover).
  // A closed handle if there is none of that id. At most one handle per sequence may exist.
  PageTable adopt(SequenceId id);
  // Releases every page at once and empties the handle.
  void close(PageTable& table);

  // Records of all slots, free ones (id 0) included, for those who list or check them.
  std::span<const SequenceRecord> records() const { return records_; }
  // The page table in a slot. Valid until the table changes.
  std::span<const PageId> pages_of_slot(uint32_t slot) const;

  // Walks every table and ring: references found equal the pool's counts, charges equal the
  // holders', free slots hold nothing. The first violation in words, kInternal. O(entries + pages).
  Result<void> verify() const;

 private:
  friend class PageTable;
  struct AttachTag {};
  SequenceTable(std::span<std::byte> region, PagePool& pool, AttachTag);

  void map_arrays(std::span<std::byte> region);
  SequenceRecord& record(uint32_t slot) const;
  uint32_t entry_of(uint32_t slot, uint32_t index) const;
  UserId user_of_entry(uint32_t entry) const;
  // Puts `page`, already referenced on the entry's behalf, into the entry, and joins its ring.
  void bind(uint32_t entry, PageId page);
  // Leaves the ring, passes the charge on, drops the reference.
  void unbind(uint32_t entry);
  uint32_t next_charged(uint32_t leaving_entry) const;
  Result<void> verify_slots() const;
  Result<void> verify_rings() const;
  Result<void> verify_ring(PageId page) const;

  // What PageTable's functions do, by slot.
  PageCount pages_needed(uint32_t slot, uint32_t tokens) const;
  std::optional<PageCopy> append(uint32_t slot, uint32_t tokens, Reservation& reservation);
  void truncate(uint32_t slot, uint32_t tokens);
  std::optional<PageCopy> make_writable(uint32_t slot, uint32_t index, Reservation& reservation);

  PagePool& pool_;
  SequenceTableHeader* header_ = nullptr;  // borrowed, in the region
  std::span<SequenceRecord> records_;      // [sequences_max]
  std::span<PageId> entries_;              // [sequences_max, sequence_pages_max]
  std::span<HolderLinks> links_;           // [sequences_max, sequence_pages_max]
  // [pages] index + 1 of the first holder's entry; 0: none, so that a zeroed region is an empty
  // table.
  std::span<uint32_t> first_holder_;
};

}  // namespace inferd::memory
