// Which bytes of the prompt arena are in use: first fit over a sorted list of free extents.
// Owner: client_lib (Connection, under its lock). Must not know what lies in the arena.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace inferd::client_lib {

// A piece of the arena; offsets and sizes are multiples of 64.
struct ArenaBlock {
  uint32_t offset = 0;
  uint32_t bytes = 0;
};

class ArenaAllocator {
 public:
  static constexpr uint32_t kGranuleBytes = 64;

  ArenaAllocator() = default;
  explicit ArenaAllocator(uint32_t arena_bytes);

  // A block of at least `bytes` (more than 0) bytes, or nothing if no free extent is as long.
  std::optional<ArenaBlock> acquire(uint64_t bytes);
  // Gives back a block that acquire() returned.
  void release(ArenaBlock block);

  uint64_t free_bytes() const;

 private:
  std::vector<ArenaBlock> free_;  // ascending, no two adjacent
};

}  // namespace inferd::client_lib
