// Replaces the program's operator new and delete by ones that count. They are the whole program's,
// so one file of a program includes this, and no other. Owner: the tests. Any thread. What is
// aligned beyond max_align_t is not counted.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace inferd::counted_new {

inline std::atomic<uint64_t> allocations{0};
inline std::atomic<size_t> live_bytes{0}, peak_bytes{0};

// In front of each block, its size.
inline constexpr size_t kHeader = alignof(std::max_align_t);

// nullptr if there is no such memory: also for sizes that no machine has, which a sanitizer's
// malloc would end the program for.
inline void* allocate(size_t bytes) noexcept {
  ++allocations;
  void* block = bytes > (size_t{1} << 40) ? nullptr : std::malloc(bytes + kHeader);
  if (block == nullptr) return nullptr;
  *static_cast<size_t*>(block) = bytes;
  const size_t live = live_bytes += bytes;
  size_t peak = peak_bytes;
  while (live > peak && !peak_bytes.compare_exchange_weak(peak, live)) {
  }
  return static_cast<char*>(block) + kHeader;
}

inline void release(void* at) noexcept {
  if (at == nullptr) return;
  void* block = static_cast<char*>(at) - kHeader;
  live_bytes -= *static_cast<size_t*>(block);
  std::free(block);
}

inline void* allocate_or_throw(size_t bytes) {
  void* const at = allocate(bytes);
  if (at == nullptr) throw std::bad_alloc();
  return at;
}

}  // namespace inferd::counted_new

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define INFERD_FIXED_NEW
#endif
#endif
#ifndef INFERD_FIXED_NEW

// Those that throw nothing too: a sanitizer's own would not call the others.
void* operator new(size_t bytes) { return inferd::counted_new::allocate_or_throw(bytes); }
void* operator new[](size_t bytes) { return inferd::counted_new::allocate_or_throw(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return inferd::counted_new::allocate(bytes);
}
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept {
  return inferd::counted_new::allocate(bytes);
}
void operator delete(void* at) noexcept { inferd::counted_new::release(at); }
void operator delete[](void* at) noexcept { inferd::counted_new::release(at); }
void operator delete(void* at, size_t) noexcept { inferd::counted_new::release(at); }
void operator delete[](void* at, size_t) noexcept { inferd::counted_new::release(at); }
void operator delete(void* at, const std::nothrow_t&) noexcept { inferd::counted_new::release(at); }
void operator delete[](void* at, const std::nothrow_t&) noexcept {
  inferd::counted_new::release(at);
}

#endif  // INFERD_FIXED_NEW
