// One sequence's page table: the handle through which its owner grows, shrinks and reads it.
// Owner: whoever opened the sequence (the scheduler's request). Engine thread only.
// Must not know token ids.
//
// Move-only. SequenceTable::close() must have emptied it before it is destroyed: a handle that
// disappears with pages in it is a leak, and aborts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/check.h"
#include "base/ids.h"
#include "memory/page_copy.h"
#include "memory/page_pool.h"

namespace inferd::memory {

class SequenceTable;

// Pages that `tokens` positions take.
constexpr PageCount pages_for_tokens(uint32_t tokens) {
  return PageCount(tokens / kPageTokens + (tokens % kPageTokens != 0 ? 1 : 0));
}

class PageTable {
 public:
  PageTable() = default;
  PageTable(PageTable&& other) noexcept;
  PageTable& operator=(PageTable&& other) noexcept;  // the target must be closed
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;
  ~PageTable() { INFERD_CHECK(table_ == nullptr); }

  // False for a closed handle; then nothing else may be called.
  bool is_open() const { return table_ != nullptr; }

  SequenceId id() const;
  UserId user() const;
  // Positions that it covers.
  uint32_t tokens() const;
  // Page i holds positions 16 i .. 16 i + 15. Valid until the table changes.
  std::span<const PageId> pages() const;

  // Pages to reserve so that append(tokens) succeeds: the new ones, and one more if the last page
  // is part-filled and shared.
  PageCount pages_needed(uint32_t tokens) const;
  // Makes the next `tokens` positions writable, out of the reservation, which holds pages_needed().
  // If the last page was shared, returns the copy to be made before they are written.
  std::optional<PageCopy> append(uint32_t tokens, Reservation& reservation);
  // Shortens to `tokens` positions, at most as many as there are, and releases the pages behind
  // them.
  void truncate(uint32_t tokens);
  // Makes page `index` this sequence's own. If it was shared, a page leaves the reservation and the
  // copy to be made is returned.
  std::optional<PageCopy> make_writable(uint32_t index, Reservation& reservation);

 private:
  friend class SequenceTable;
  PageTable(SequenceTable* table, uint32_t slot) : table_(table), slot_(slot) {}

  SequenceTable* table_ = nullptr;
  uint32_t slot_ = 0;
};

}  // namespace inferd::memory
