// Pages charged per user: a hash table of counts in a borrowed array.
// Owner: PagePool. Engine thread only. Must not know which pages are charged.
//
// Open addressing with linear probing; deletion closes the gap, so no tombstone is ever left. The
// hash is fixed (no seed), so the order of the entries is the same in every run.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/result.h"

namespace inferd::memory {

// One entry. pages == 0 marks an empty one.
struct UserCharge {
  UserId user;
  PageCount pages;
};

class ChargeTable {
 public:
  // Entries that hold `users_max` users at a load of at most one half: a power of two.
  static uint32_t entries_for(uint32_t users_max);

  ChargeTable() = default;
  // A view of `entries` (a power of two of them, all zero when new), which outlive it.
  explicit ChargeTable(std::span<UserCharge> entries);

  // One page more, or less, for `user`. Adding a user beyond half of the entries is a bug of ours.
  void add(UserId user);
  void subtract(UserId user);

  // 0 for a user without a charge.
  PageCount pages(UserId user) const;

  // The entries as they lie, empty ones included, for those who list or check them.
  std::span<const UserCharge> entries() const { return entries_; }

  // Every entry can be found, and at most half of them are used.
  Result<void> verify() const;

 private:
  uint32_t home(UserId user) const;
  // Index of the user's entry, or of the empty one where it would go.
  uint32_t find(UserId user) const;

  std::span<UserCharge> entries_;
};

}  // namespace inferd::memory
