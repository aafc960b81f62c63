// Strong types for indices, counts and sizes, so that one is never passed for another.
// Owner: base. Value types, any thread; trivially copyable, so they may lie in shared memory.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <limits>

namespace inferd {

// An index or a count of one kind of thing. `Tag` only tells the kinds apart.
template <typename Tag, typename Value>
struct StrongInt {
  Value value = 0;

  constexpr StrongInt() = default;
  constexpr explicit StrongInt(Value v) : value(v) {}
  constexpr auto operator<=>(const StrongInt&) const = default;

  constexpr StrongInt& operator+=(StrongInt other) { value += other.value; return *this; }
  constexpr StrongInt& operator-=(StrongInt other) { value -= other.value; return *this; }
  constexpr StrongInt& operator++() { ++value; return *this; }
  constexpr StrongInt& operator--() { --value; return *this; }
  friend constexpr StrongInt operator+(StrongInt a, StrongInt b) { return StrongInt(a.value + b.value); }
  friend constexpr StrongInt operator-(StrongInt a, StrongInt b) { return StrongInt(a.value - b.value); }
};

// A physical page of the pool. kNoPage marks "none".
using PageId = StrongInt<struct PageIdTag, uint32_t>;
inline constexpr PageId kNoPage{std::numeric_limits<uint32_t>::max()};

using PageCount = StrongInt<struct PageCountTag, uint32_t>;
using Bytes = StrongInt<struct BytesTag, uint64_t>;

// A sequence as the daemon numbers it; unique during the daemon's life, never 0.
using SequenceId = StrongInt<struct SequenceIdTag, uint64_t>;

// A session (one connected client); unique during the daemon's life, never 0.
using SessionId = StrongInt<struct SessionIdTag, uint64_t>;

// A kernel user id, as the daemon's user namespace sees it.
using UserId = StrongInt<struct UserIdTag, uint32_t>;

// Whose cached prefixes may be found by whom: a user's own, or a named one that several share. Never 0.
using CacheDomain = StrongInt<struct CacheDomainTag, uint64_t>;

// A token of a model's vocabulary.
using TokenId = int32_t;
inline constexpr TokenId kNoToken = -1;

// KV storage is paged in units of this many tokens. Every kernel and every page table relies on it.
inline constexpr uint32_t kPageTokens = 16;

}  // namespace inferd

template <typename Tag, typename Value>
struct std::hash<inferd::StrongInt<Tag, Value>> {
  size_t operator()(inferd::StrongInt<Tag, Value> id) const noexcept {
    return std::hash<Value>()(id.value);
  }
};
