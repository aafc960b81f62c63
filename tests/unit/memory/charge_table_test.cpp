// ChargeTable: pages per user, against a map.
#include "memory/charge_table.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/prng.h"

namespace inferd::memory {
namespace {

TEST(ChargeTable, HoldsTwiceAsManyEntriesAsUsers) {
  EXPECT_EQ(ChargeTable::entries_for(1), 2u);
  EXPECT_EQ(ChargeTable::entries_for(3), 8u);
  EXPECT_EQ(ChargeTable::entries_for(32), 64u);
}

TEST(ChargeTable, CountsEveryUserAsAMapDoes) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Prng prng(seed);
    constexpr uint32_t kUsers = 8;
    std::vector<UserCharge> entries(ChargeTable::entries_for(kUsers));
    ChargeTable table(entries);
    std::map<uint32_t, uint32_t> model;
    for (int step = 0; step < 400; ++step) {
      // Far more user ids than entries, so that homes collide and gaps are closed.
      const UserId user(static_cast<uint32_t>(prng.below(40)) * 0x10000u);
      const bool known = model.contains(user.value);
      if (prng.below(2) == 0 && (known || model.size() < kUsers)) {
        table.add(user);
        ++model[user.value];
      } else if (known) {
        table.subtract(user);
        if (--model[user.value] == 0) model.erase(user.value);
      }
      ASSERT_TRUE(table.verify().ok());
      for (uint32_t id = 0; id < 40; ++id) {
        const auto found = model.find(id * 0x10000u);
        ASSERT_EQ(table.pages(UserId(id * 0x10000u)).value,
                  found == model.end() ? 0u : found->second);
      }
    }
  }
}

TEST(ChargeTableDeathTest, SubtractingFromAUserWithoutAChargeAborts) {
  std::vector<UserCharge> entries(ChargeTable::entries_for(2));
  ChargeTable table(entries);
  table.add(UserId(1000));
  EXPECT_DEATH(table.subtract(UserId(1001)), "check failed");
}

}  // namespace
}  // namespace inferd::memory
