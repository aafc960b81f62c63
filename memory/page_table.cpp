#include "memory/page_table.h"

#include <utility>

#include "memory/sequence_table.h"

namespace inferd::memory {

PageTable::PageTable(PageTable&& other) noexcept
    : table_(std::exchange(other.table_, nullptr)), slot_(other.slot_) {}

PageTable& PageTable::operator=(PageTable&& other) noexcept {
  INFERD_CHECK(table_ == nullptr);
  table_ = std::exchange(other.table_, nullptr);
  slot_ = other.slot_;
  return *this;
}

SequenceId PageTable::id() const {
  INFERD_CHECK(is_open());
  return table_->record(slot_).id;
}

UserId PageTable::user() const {
  INFERD_CHECK(is_open());
  return table_->record(slot_).user;
}

uint32_t PageTable::tokens() const {
  INFERD_CHECK(is_open());
  return table_->record(slot_).tokens;
}

std::span<const PageId> PageTable::pages() const {
  INFERD_CHECK(is_open());
  return table_->pages_of_slot(slot_);
}

PageCount PageTable::pages_needed(uint32_t tokens) const {
  INFERD_CHECK(is_open());
  return table_->pages_needed(slot_, tokens);
}

std::optional<PageCopy> PageTable::append(uint32_t tokens, Reservation& reservation) {
  INFERD_CHECK(is_open());
  return table_->append(slot_, tokens, reservation);
}

void PageTable::truncate(uint32_t tokens) {
  INFERD_CHECK(is_open());
  table_->truncate(slot_, tokens);
}

std::optional<PageCopy> PageTable::make_writable(uint32_t index, Reservation& reservation) {
  INFERD_CHECK(is_open());
  return table_->make_writable(slot_, index, reservation);
}

}  // namespace inferd::memory
