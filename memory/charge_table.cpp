#include "memory/charge_table.h"

#include <bit>
#include <string>

#include "base/check.h"

namespace inferd::memory {

uint32_t ChargeTable::entries_for(uint32_t users_max) {
  INFERD_CHECK(users_max > 0);
  INFERD_CHECK(users_max <= (1u << 30));
  return std::bit_ceil(users_max * 2);
}

ChargeTable::ChargeTable(std::span<UserCharge> entries) : entries_(entries) {
  INFERD_CHECK(std::has_single_bit(entries.size()));
}

uint32_t ChargeTable::home(UserId user) const {
  // Fibonacci hashing (Knuth, TAOCP 6.4): the high bits of a product with 2^32 / golden ratio.
  const uint32_t hash = user.value * 2654435769u;
  return static_cast<uint32_t>((uint64_t{hash} * entries_.size()) >> 32);
}

uint32_t ChargeTable::find(UserId user) const {
  const uint32_t mask = static_cast<uint32_t>(entries_.size()) - 1;
  uint32_t index = home(user);
  // Ends: at most half of the entries are used.
  while (entries_[index].pages.value != 0 && entries_[index].user != user) {
    index = (index + 1) & mask;
  }
  return index;
}

void ChargeTable::add(UserId user) {
  UserCharge& entry = entries_[find(user)];
  entry.user = user;
  ++entry.pages;
}

void ChargeTable::subtract(UserId user) {
  uint32_t hole = find(user);
  INFERD_CHECK(entries_[hole].pages.value > 0);
  --entries_[hole].pages;
  if (entries_[hole].pages.value > 0) return;

  // Closes the gap (Knuth, TAOCP 6.4, algorithm R): an entry further on moves into the hole unless
  // its home lies cyclically behind the hole, where it would no longer be found.
  const uint32_t mask = static_cast<uint32_t>(entries_.size()) - 1;
  for (uint32_t index = (hole + 1) & mask; entries_[index].pages.value != 0;
       index = (index + 1) & mask) {
    const uint32_t distance_from_home = (index - home(entries_[index].user)) & mask;
    const uint32_t distance_from_hole = (index - hole) & mask;
    if (distance_from_home < distance_from_hole) continue;
    entries_[hole] = entries_[index];
    entries_[index] = UserCharge{};
    hole = index;
  }
  entries_[hole] = UserCharge{};
}

PageCount ChargeTable::pages(UserId user) const { return entries_[find(user)].pages; }

Result<void> ChargeTable::verify() const {
  uint32_t used = 0;
  for (uint32_t index = 0; index < entries_.size(); ++index) {
    if (entries_[index].pages.value != 0) ++used;
  }
  if (used * 2 > entries_.size()) {
    return Error(ErrorCode::kInternal, "charge table: " + std::to_string(used) + " users in " +
                                           std::to_string(entries_.size()) + " entries");
  }
  for (uint32_t index = 0; index < entries_.size(); ++index) {
    if (entries_[index].pages.value != 0 && find(entries_[index].user) != index) {
      return Error(ErrorCode::kInternal, "charge table: the entry of user " +
                                             std::to_string(entries_[index].user.value) +
                                             " cannot be found");
    }
  }
  return {};
}

}  // namespace inferd::memory
