#include "memory/paged_memory.h"

#include <cstdlib>

#include "base/check.h"

namespace inferd::memory {

namespace {

uint32_t sequence_pages(const MemoryConfig& config) {
  return pages_for_tokens(config.sequence_tokens_max).value;
}

// Every user with a charge holds a page through an open sequence, so there are no more users than
// sequences. Place of the prefix index: a cached page's user has none, and needs an entry too.
size_t pool_bytes(const MemoryConfig& config) {
  return PagePool::layout_bytes(config.pages, config.sequences_max);
}

}  // namespace

void PagedMemory::FreeDeleter::operator()(std::byte* bytes) const { std::free(bytes); }

size_t PagedMemory::layout_bytes(const MemoryConfig& config) {
  return pool_bytes(config) +
         SequenceTable::layout_bytes(config.pages, config.sequences_max, sequence_pages(config));
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
  pool_ = std::make_unique<PagePool>(region_, config.pages, config.sequences_max);
  sequences_ = std::make_unique<SequenceTable>(region_.subspan(pool_bytes(config)), *pool_,
                                               config.sequences_max, sequence_pages(config));
}

Result<std::unique_ptr<PagedMemory>> PagedMemory::attach(std::span<std::byte> region) {
  std::unique_ptr<PagedMemory> memory(new PagedMemory);
  memory->region_ = region;
  INFERD_ASSIGN(memory->pool_, PagePool::attach(region));
  INFERD_ASSIGN(
      memory->sequences_,
      SequenceTable::attach(region.subspan(memory->pool_->layout_bytes()), *memory->pool_));
  return memory;
}

Result<void> PagedMemory::verify() const {
  INFERD_TRY(pool_->verify());
  return sequences_->verify();
}

}  // namespace inferd::memory
