#include "client_lib/arena_allocator.h"

#include <algorithm>

#include "base/check.h"

namespace inferd::client_lib {

ArenaAllocator::ArenaAllocator(uint32_t arena_bytes) {
  INFERD_CHECK(arena_bytes % kGranuleBytes == 0);
  if (arena_bytes > 0) free_.push_back({0, arena_bytes});
}

std::optional<ArenaBlock> ArenaAllocator::acquire(uint64_t bytes) {
  INFERD_CHECK(bytes > 0);
  if (bytes > UINT32_MAX - kGranuleBytes) return std::nullopt;
  const auto rounded =
      static_cast<uint32_t>((bytes + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes);
  const auto fit = std::find_if(free_.begin(), free_.end(),
                                [&](const ArenaBlock& extent) { return extent.bytes >= rounded; });
  if (fit == free_.end()) return std::nullopt;
  const ArenaBlock block = {fit->offset, rounded};
  fit->offset += rounded;
  fit->bytes -= rounded;
  if (fit->bytes == 0) free_.erase(fit);
  return block;
}

void ArenaAllocator::release(ArenaBlock block) {
  auto next = std::find_if(free_.begin(), free_.end(),
                           [&](const ArenaBlock& extent) { return extent.offset > block.offset; });
  INFERD_CHECK(next == free_.end() || block.offset + block.bytes <= next->offset);
  if (next != free_.end() && block.offset + block.bytes == next->offset) {
    next->offset = block.offset;
    next->bytes += block.bytes;
  } else {
    next = free_.insert(next, block);
  }
  if (next == free_.begin()) return;
  const auto previous = next - 1;
  INFERD_CHECK(previous->offset + previous->bytes <= next->offset);
  if (previous->offset + previous->bytes == next->offset) {
    previous->bytes += next->bytes;
    free_.erase(next);
  }
}

uint64_t ArenaAllocator::free_bytes() const {
  uint64_t bytes = 0;
  for (const ArenaBlock& extent : free_) bytes += extent.bytes;
  return bytes;
}

}  // namespace inferd::client_lib
