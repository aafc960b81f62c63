// Where arrays lie inside a span of bytes: metadata that can live in any region and move with it.
// Owner: memory. Pure functions, any thread. Must not know what the arrays mean.
//
// Everything placed here is trivially copyable and refers to other things by index, never by
// pointer: the bytes may be copied elsewhere, or mapped at another address by the next process, and
// still hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/check.h"

namespace inferd::memory {

// Alignment of every array, and of the region itself: a cache line.
inline constexpr size_t kLayoutAlignment = 64;

// "none" for every index that is stored in a region.
inline constexpr uint32_t kNoIndex = 0xffffffff;

// Hands out offsets one after the other. Arrays are placed in the order of the calls.
class LayoutBuilder {
 public:
  // Offset in bytes of an array of `count` elements of T.
  template <typename T>
  size_t place(size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    static_assert(alignof(T) <= kLayoutAlignment);
    const size_t offset_bytes = bytes_;
    INFERD_CHECK(count <= (SIZE_MAX - bytes_ - kLayoutAlignment) / sizeof(T));
    const size_t end = offset_bytes + count * sizeof(T);
    bytes_ = (end + kLayoutAlignment - 1) / kLayoutAlignment * kLayoutAlignment;
    return offset_bytes;
  }

  // Size of everything placed so far.
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
};

// The array of `count` T at `offset_bytes` of `region`. The region outlives the span.
template <typename T>
std::span<T> array_at(std::span<std::byte> region, size_t offset_bytes, size_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  INFERD_CHECK(offset_bytes <= region.size());
  INFERD_CHECK(count <= (region.size() - offset_bytes) / sizeof(T));
  return {reinterpret_cast<T*>(region.data() + offset_bytes), count};
}

}  // namespace inferd::memory
