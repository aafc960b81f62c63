#include "memory/sequence_table.h"

#include <new>

#include "base/check.h"

namespace inferd::memory {

namespace {

constexpr uint64_t kTableMagic = 0x656c626174716573;  // "seqtable", little-endian
constexpr uint32_t kTableVersion = 1;

struct TableLayout {
  size_t records_offset = 0;
  size_t first_holder_offset = 0;
  size_t entries_offset = 0;
  size_t links_offset = 0;
  size_t bytes = 0;
};

TableLayout layout_of(uint32_t pages, uint32_t sequences_max, uint32_t sequence_pages_max) {
  const size_t entries = size_t{sequences_max} * sequence_pages_max;
  LayoutBuilder builder;
  TableLayout layout;
  builder.place<SequenceTableHeader>(1);
  layout.records_offset = builder.place<SequenceRecord>(sequences_max);
  layout.first_holder_offset = builder.place<uint32_t>(pages);
  layout.entries_offset = builder.place<PageId>(entries);
  layout.links_offset = builder.place<HolderLinks>(entries);
  layout.bytes = builder.bytes();
  return layout;
}

// Entries are numbered by 32 bits, and entry + 1 is stored.
bool entries_fit(uint32_t sequences_max, uint32_t sequence_pages_max) {
  return uint64_t{sequences_max} * sequence_pages_max < kNoIndex - 1;
}

}  // namespace

size_t SequenceTable::layout_bytes(PageCount pages, uint32_t sequences_max,
                                   uint32_t sequence_pages_max) {
  return layout_of(pages.value, sequences_max, sequence_pages_max).bytes;
}

size_t SequenceTable::layout_bytes() const {
  return layout_of(header_->pages, header_->sequences_max, header_->sequence_pages_max).bytes;
}

SequenceTable::SequenceTable(std::span<std::byte> region, PagePool& pool, uint32_t sequences_max,
                             uint32_t sequence_pages_max)
    : pool_(pool) {
  INFERD_CHECK(sequences_max > 0 && sequence_pages_max > 0);
  INFERD_CHECK(entries_fit(sequences_max, sequence_pages_max));
  const PageCount pages = pool.counts().total;
  INFERD_CHECK(region.size() >= layout_bytes(pages, sequences_max, sequence_pages_max));
  header_ = new (array_at<SequenceTableHeader>(region, 0, 1).data()) SequenceTableHeader;
  header_->magic = kTableMagic;
  header_->version = kTableVersion;
  header_->pages = pages.value;
  header_->sequences_max = sequences_max;
  header_->sequence_pages_max = sequence_pages_max;
  map_arrays(region);
  for (uint32_t slot = sequences_max; slot-- > 0;) {
    records_[slot] = SequenceRecord{};
    records_[slot].next = header_->free_first;
    header_->free_first = slot;
  }
}

SequenceTable::SequenceTable(std::span<std::byte> region, PagePool& pool, AttachTag) : pool_(pool) {
  header_ = array_at<SequenceTableHeader>(region, 0, 1).data();
  map_arrays(region);
}

Result<std::unique_ptr<SequenceTable>> SequenceTable::attach(std::span<std::byte> region,
                                                             PagePool& pool) {
  if (region.size() < sizeof(SequenceTableHeader)) {
    return Error(ErrorCode::kDataCorrupt, "the region is too small to hold page tables");
  }
  const SequenceTableHeader& header = *array_at<SequenceTableHeader>(region, 0, 1).data();
  if (header.magic != kTableMagic || header.version != kTableVersion || header.sequences_max == 0 ||
      header.sequence_pages_max == 0 ||
      !entries_fit(header.sequences_max, header.sequence_pages_max)) {
    return Error(ErrorCode::kDataCorrupt, "the region does not hold page tables of this version");
  }
  if (PageCount(header.pages) != pool.counts().total) {
    return Error(ErrorCode::kDataCorrupt, "the page tables in the region are of another page pool");
  }
  const TableLayout layout =
      layout_of(header.pages, header.sequences_max, header.sequence_pages_max);
  if (layout.bytes > region.size()) {
    return Error(ErrorCode::kDataCorrupt, "the region is smaller than the page tables it names");
  }
  return std::unique_ptr<SequenceTable>(new SequenceTable(region, pool, AttachTag{}));
}

void SequenceTable::map_arrays(std::span<std::byte> region) {
  const size_t entries = size_t{header_->sequences_max} * header_->sequence_pages_max;
  const TableLayout layout =
      layout_of(header_->pages, header_->sequences_max, header_->sequence_pages_max);
  records_ = array_at<SequenceRecord>(region, layout.records_offset, header_->sequences_max);
  first_holder_ = array_at<uint32_t>(region, layout.first_holder_offset, header_->pages);
  entries_ = array_at<PageId>(region, layout.entries_offset, entries);
  links_ = array_at<HolderLinks>(region, layout.links_offset, entries);
}

SequenceRecord& SequenceTable::record(uint32_t slot) const {
  INFERD_CHECK(slot < records_.size());
  return records_[slot];
}

uint32_t SequenceTable::entry_of(uint32_t slot, uint32_t index) const {
  INFERD_CHECK(index < header_->sequence_pages_max);
  return slot * header_->sequence_pages_max + index;
}

UserId SequenceTable::user_of_entry(uint32_t entry) const {
  return record(entry / header_->sequence_pages_max).user;
}

std::span<const PageId> SequenceTable::pages_of_slot(uint32_t slot) const {
  return entries_.subspan(entry_of(slot, 0), record(slot).pages);
}

PageTable SequenceTable::open(SequenceId id, UserId user) {
  INFERD_CHECK(!full());
  INFERD_CHECK(id.value != 0);
  const uint32_t slot = header_->free_first;
  SequenceRecord& sequence = record(slot);
  INFERD_CHECK(sequence.id.value == 0);
  header_->free_first = sequence.next;
  ++header_->open_count;
  sequence = SequenceRecord{};
  sequence.id = id;
  sequence.user = user;
  return PageTable(this, slot);
}

PageTable SequenceTable::fork(const PageTable& parent, SequenceId id, UserId user) {
  INFERD_CHECK(parent.table_ == this);
  PageTable child = open(id, user);
  const SequenceRecord& from = record(parent.slot_);
  SequenceRecord& to = record(child.slot_);
  for (uint32_t index = 0; index < from.pages; ++index) {
    const PageId page = entries_[entry_of(parent.slot_, index)];
    pool_.retain(page);
    bind(entry_of(child.slot_, index), page);
  }
  to.tokens = from.tokens;
  to.pages = from.pages;
  return child;
}

void SequenceTable::attach_prefix(PageTable& table, std::span<const PageId> pages,
                                  uint32_t tokens) {
  INFERD_CHECK(table.table_ == this);
  SequenceRecord& sequence = record(table.slot_);
  INFERD_CHECK(sequence.tokens == 0 && tokens <= sequence_tokens_max());
  INFERD_CHECK(PageCount(static_cast<uint32_t>(pages.size())) == pages_for_tokens(tokens));
  for (const PageId page : pages) {
    pool_.retain(page);
    bind(entry_of(table.slot_, sequence.pages), page);
    ++sequence.pages;
  }
  sequence.tokens = tokens;
}

void SequenceTable::replace(PageTable& table, uint32_t index, PageId page) {
  INFERD_CHECK(table.table_ == this && index < record(table.slot_).pages);
  const uint32_t entry = entry_of(table.slot_, index);
  INFERD_CHECK(entries_[entry] != page);
  pool_.retain(page);
  unbind(entry);
  bind(entry, page);
}

PageTable SequenceTable::adopt(SequenceId id) {
  INFERD_CHECK(id.value != 0);
  for (uint32_t slot = 0; slot < records_.size(); ++slot) {
    if (records_[slot].id == id) return PageTable(this, slot);
  }
  return PageTable();
}

void SequenceTable::close(PageTable& table) {
  INFERD_CHECK(table.table_ == this);
  truncate(table.slot_, 0);
  SequenceRecord& sequence = record(table.slot_);
  INFERD_CHECK(sequence.id.value != 0 && header_->open_count > 0);
  sequence = SequenceRecord{};
  sequence.next = header_->free_first;
  header_->free_first = table.slot_;
  --header_->open_count;
  table.table_ = nullptr;
}

void SequenceTable::bind(uint32_t entry, PageId page) {
  entries_[entry] = page;
  uint32_t& first = first_holder_[page.value];
  if (first == 0) {
    links_[entry] = HolderLinks{entry, entry};
    first = entry + 1;
    pool_.recharge(page, user_of_entry(entry));  // a cached page was charged to its last holder
    return;
  }
  // Beside the charged holder if it is the same user's, which keeps next_charged() short; else at
  // the end of the ring.
  const uint32_t head = first - 1;
  const uint32_t before =
      user_of_entry(entry) == user_of_entry(head) ? head : links_[head].previous;
  const uint32_t after = links_[before].next;
  links_[entry] = HolderLinks{after, before};
  links_[before].next = entry;
  links_[after].previous = entry;
}

uint32_t SequenceTable::next_charged(uint32_t leaving_entry) const {
  const UserId user = user_of_entry(leaving_entry);
  for (uint32_t entry = links_[leaving_entry].next; entry != leaving_entry;
       entry = links_[entry].next) {
    if (user_of_entry(entry) == user) return entry;
  }
  return links_[leaving_entry].next;
}

void SequenceTable::unbind(uint32_t entry) {
  const PageId page = entries_[entry];
  INFERD_CHECK(page.value < first_holder_.size());
  uint32_t& first = first_holder_[page.value];
  INFERD_CHECK(first != 0);
  const HolderLinks links = links_[entry];
  if (links.next == entry) {
    INFERD_CHECK(first == entry + 1);
    first = 0;
  } else {
    if (first == entry + 1) {
      const uint32_t heir = next_charged(entry);
      pool_.recharge(page, user_of_entry(heir));
      first = heir + 1;
    }
    links_[links.previous].next = links.next;
    links_[links.next].previous = links.previous;
  }
  pool_.release(page);
}

PageCount SequenceTable::pages_needed(uint32_t slot, uint32_t tokens) const {
  const SequenceRecord& sequence = record(slot);
  INFERD_CHECK(tokens <= sequence_tokens_max() - sequence.tokens);
  PageCount needed = pages_for_tokens(sequence.tokens + tokens) - PageCount(sequence.pages);
  if (tokens > 0 && sequence.tokens % kPageTokens != 0) {
    const PageId last = entries_[entry_of(slot, sequence.pages - 1)];
    if (pool_.state(last) == PageState::kShared) ++needed;
  }
  return needed;
}

std::optional<PageCopy> SequenceTable::append(uint32_t slot, uint32_t tokens,
                                              Reservation& reservation) {
  SequenceRecord& sequence = record(slot);
  INFERD_CHECK(tokens > 0);
  INFERD_CHECK(reservation.count() >= pages_needed(slot, tokens));
  std::optional<PageCopy> copy;
  if (sequence.tokens % kPageTokens != 0) {
    copy = make_writable(slot, sequence.pages - 1, reservation);
  }
  sequence.tokens += tokens;
  while (sequence.pages < pages_for_tokens(sequence.tokens).value) {
    bind(entry_of(slot, sequence.pages), pool_.take(reservation, sequence.user));
    ++sequence.pages;
  }
  return copy;
}

void SequenceTable::truncate(uint32_t slot, uint32_t tokens) {
  SequenceRecord& sequence = record(slot);
  INFERD_CHECK(tokens <= sequence.tokens);
  sequence.tokens = tokens;
  const uint32_t pages_kept = pages_for_tokens(tokens).value;
  // From the end, so that a later taker gets the first pages first.
  while (sequence.pages > pages_kept) {
    --sequence.pages;
    unbind(entry_of(slot, sequence.pages));
  }
}

std::optional<PageCopy> SequenceTable::make_writable(uint32_t slot, uint32_t index,
                                                     Reservation& reservation) {
  const SequenceRecord& sequence = record(slot);
  INFERD_CHECK(index < sequence.pages);
  const uint32_t entry = entry_of(slot, index);
  const PageId from = entries_[entry];
  if (pool_.state(from) != PageState::kShared) return std::nullopt;
  const PageId to = pool_.take(reservation, sequence.user);
  unbind(entry);
  bind(entry, to);
  return PageCopy{from, to};
}

}  // namespace inferd::memory
