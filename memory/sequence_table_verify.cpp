// SequenceTable::verify(): every invariant of the page tables and of who holds what, walked.
#include <string>
#include <vector>

#include "memory/sequence_table.h"

namespace inferd::memory {

namespace {

Error violation(std::string message) {
  return Error(ErrorCode::kInternal, "page tables: " + std::move(message));
}

std::string page_text(PageId page) { return "page " + std::to_string(page.value); }

}  // namespace

Result<void> SequenceTable::verify() const {
  INFERD_TRY(verify_slots());
  return verify_rings();
}

// Open slots have as many pages as their tokens need; free slots are empty and all in the free
// list.
Result<void> SequenceTable::verify_slots() const {
  uint32_t open = 0;
  for (uint32_t slot = 0; slot < records_.size(); ++slot) {
    const SequenceRecord& sequence = records_[slot];
    if (sequence.id.value != 0) ++open;
    if (sequence.tokens > sequence_tokens_max() ||
        sequence.pages != pages_for_tokens(sequence.tokens).value) {
      return violation("sequence " + std::to_string(sequence.id.value) + " has " +
                       std::to_string(sequence.pages) + " pages for " +
                       std::to_string(sequence.tokens) + " tokens");
    }
    if (sequence.id.value == 0 && sequence.pages != 0) {
      return violation("free slot " + std::to_string(slot) + " holds pages");
    }
    for (PageId page : pages_of_slot(slot)) {
      if (page.value >= first_holder_.size()) {
        return violation("sequence " + std::to_string(sequence.id.value) + " names " +
                         page_text(page) + ", beyond the pool");
      }
    }
  }
  if (open != header_->open_count) {
    return violation("the header counts " + std::to_string(header_->open_count) +
                     " open sequences, there are " + std::to_string(open));
  }
  uint32_t free = 0;
  for (uint32_t slot = header_->free_first; slot != kNoIndex; slot = records_[slot].next) {
    if (slot >= records_.size() || records_[slot].id.value != 0 || free >= records_.size()) {
      return violation("the list of free slots is broken at slot " + std::to_string(slot));
    }
    ++free;
  }
  if (free + open != records_.size()) {
    return violation("the list of free slots has " + std::to_string(free) + " slots instead of " +
                     std::to_string(records_.size() - open));
  }
  return {};
}

// References found in tables equal the pool's counts, and each page's ring is exactly its holders.
Result<void> SequenceTable::verify_rings() const {
  std::vector<uint32_t> found(first_holder_.size(), 0);
  for (uint32_t slot = 0; slot < records_.size(); ++slot) {
    for (PageId page : pages_of_slot(slot)) ++found[page.value];
  }
  for (uint32_t index = 0; index < found.size(); ++index) {
    const PageId page(index);
    if (pool_.references(page) != found[index]) {
      return violation(page_text(page) + " counts " + std::to_string(pool_.references(page)) +
                       " references, but " + std::to_string(found[index]) + " are found");
    }
    if ((first_holder_[index] != 0) != (found[index] != 0)) {
      return violation(page_text(page) + " has holders without a ring, or a ring without holders");
    }
    if (found[index] != 0) INFERD_TRY(verify_ring(page));
  }
  return {};
}

// Closed, as long as the page has references, through entries in use that name the page; the page
// is charged to the first one's user.
Result<void> SequenceTable::verify_ring(PageId page) const {
  const uint32_t first = first_holder_[page.value] - 1;
  const uint32_t stride = header_->sequence_pages_max;
  uint32_t length = 0;
  uint32_t entry = first;
  do {
    if (entry >= entries_.size() || entry % stride >= records_[entry / stride].pages ||
        entries_[entry] != page) {
      return violation(page_text(page) + " has a holder that does not hold it");
    }
    const uint32_t next = links_[entry].next;
    if (next >= entries_.size() || links_[next].previous != entry) {
      return violation(page_text(page) + " has a broken ring of holders");
    }
    entry = next;
    ++length;
  } while (entry != first && length <= pool_.references(page));
  if (entry != first || length != pool_.references(page)) {
    return violation(page_text(page) + " has another number of holders than references");
  }
  if (pool_.charged_to(page) != user_of_entry(first)) {
    return violation(page_text(page) + " is charged to user " +
                     std::to_string(pool_.charged_to(page).value) + ", but held first by user " +
                     std::to_string(user_of_entry(first).value));
  }
  return {};
}

}  // namespace inferd::memory
