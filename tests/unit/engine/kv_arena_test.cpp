// Pages on the CPU: what a page held is gone when it is taken again, and its memory goes back when
// it is given back.
#include "engine/cpu/kv_arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>

namespace inferd::engine::cpu {
namespace {

constexpr KvLayout kLayout{2, 3, 32};

// All values of a page, layer after layer.
std::span<uint16_t> values_of(KvArena& arena, PageId page) {
  return {arena.keys(page, 0, 0), kLayout.layers * kLayout.layer_values()};
}

bool is_zero(std::span<const uint16_t> values) {
  return std::all_of(values.begin(), values.end(), [](uint16_t value) { return value == 0; });
}

KvArena made(uint32_t pages) {
  Result<KvArena> arena = KvArena::create(kLayout, PageCount(pages));
  EXPECT_TRUE(arena.ok());
  return std::move(arena).value();
}

TEST(KvArena, ATakenPageHoldsNothingOfItsLastOwner) {
  KvArena arena = made(4);
  for (int round = 0; round < 3; ++round) {
    arena.take(PageId(2));
    EXPECT_TRUE(is_zero(values_of(arena, PageId(2)))) << round;
    std::ranges::fill(values_of(arena, PageId(2)), uint16_t{0x7bff});
    if (round == 1) arena.give_back(PageId(2));
  }
  // Its neighbours were never touched.
  EXPECT_TRUE(is_zero(values_of(arena, PageId(1))) && is_zero(values_of(arena, PageId(3))));
}

TEST(KvArena, APageGivenBackHoldsNothing) {
  KvArena arena = made(2);
  arena.take(PageId(0));
  std::ranges::fill(values_of(arena, PageId(0)), uint16_t{1});
  arena.give_back(PageId(0));
  EXPECT_TRUE(is_zero(values_of(arena, PageId(0))));
}

TEST(KvArena, ACopiedPageIsWholeAndItsTargetIsZeroedLater) {
  KvArena arena = made(2);
  arena.take(PageId(0));
  uint16_t next = 0;
  for (uint16_t& value : values_of(arena, PageId(0))) value = ++next;
  arena.copy(PageId(0), PageId(1));
  EXPECT_TRUE(std::ranges::equal(values_of(arena, PageId(0)), values_of(arena, PageId(1))));
  arena.take(PageId(1));
  EXPECT_TRUE(is_zero(values_of(arena, PageId(1))));
}

TEST(KvArena, LayersAndHeadsDoNotOverlap) {
  KvArena arena = made(1);
  arena.take(PageId(0));
  const size_t head_values = kLayout.head_values();
  uint16_t mark = 0;
  for (uint32_t layer = 0; layer < kLayout.layers; ++layer) {
    for (uint32_t head = 0; head < kLayout.kv_heads; ++head) {
      for (uint16_t* at :
           {arena.keys(PageId(0), layer, head), arena.values(PageId(0), layer, head)}) {
        EXPECT_TRUE(is_zero({at, head_values}));
        std::fill(at, at + head_values, ++mark);
      }
    }
  }
  EXPECT_EQ(mark, 12);
}

}  // namespace
}  // namespace inferd::engine::cpu
