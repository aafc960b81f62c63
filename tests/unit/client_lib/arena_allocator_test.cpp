#include "client_lib/arena_allocator.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/prng.h"

namespace inferd::client_lib {
namespace {

TEST(ArenaAllocator, WholeArenaCanBeOneBlockAgainAndAgain) {
  ArenaAllocator arena(4096);
  for (int i = 0; i < 3; ++i) {
    const auto block = arena.acquire(4096);
    ASSERT_TRUE(block);
    EXPECT_EQ(block->offset, 0u);
    EXPECT_FALSE(arena.acquire(1));
    arena.release(*block);
  }
  EXPECT_FALSE(arena.acquire(4097));
  EXPECT_FALSE(arena.acquire(UINT64_MAX));
}

// Against a naive map of granules.
TEST(ArenaAllocator, BlocksNeverOverlapAndEverythingComesBack) {
  constexpr uint32_t kBytes = 64 * 100;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Prng random(seed);
    ArenaAllocator arena(kBytes);
    std::vector<bool> used(kBytes / ArenaAllocator::kGranuleBytes);
    std::vector<ArenaBlock> blocks;
    const auto mark = [&](ArenaBlock b, bool value) {
      for (uint32_t g = b.offset / 64; g < (b.offset + b.bytes) / 64; ++g) {
        ASSERT_NE(used[g], value);
        used[g] = value;
      }
    };
    for (int step = 0; step < 2000; ++step) {
      if (random.below(2) == 0) {
        const uint64_t bytes = 1 + random.below(1500);
        if (const auto block = arena.acquire(bytes)) {
          ASSERT_GE(block->bytes, bytes);
          ASSERT_LE(block->offset + block->bytes, kBytes);
          mark(*block, true);
          blocks.push_back(*block);
        }
      } else if (!blocks.empty()) {
        const size_t i = random.below(blocks.size());
        mark(blocks[i], false);
        arena.release(blocks[i]);
        blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(i));
      }
      uint64_t free = kBytes;
      for (const ArenaBlock& b : blocks) free -= b.bytes;
      ASSERT_EQ(arena.free_bytes(), free);
    }
    for (const ArenaBlock& b : blocks) arena.release(b);
    EXPECT_TRUE(arena.acquire(kBytes)) << "free extents must have grown together";
  }
}

}  // namespace
}  // namespace inferd::client_lib
