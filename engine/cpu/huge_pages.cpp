#include "engine/cpu/huge_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace inferd::engine::cpu {

namespace {

#ifdef MADV_COLLAPSE
constexpr int kCollapse = MADV_COLLAPSE;
#else
constexpr int kCollapse = 25;  // Linux 6.1; libc of the same age may not name it yet
#endif

}  // namespace

void* map_aligned(int fd, size_t bytes, int protection) {
  // Room for the mapping at any alignment, then the mapping over the aligned part of it.
  const size_t room = bytes + kHugePageBytes;
  void* reserved = ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return MAP_FAILED;
  const auto start = reinterpret_cast<uintptr_t>(reserved);
  const uintptr_t aligned = (start + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  void* mapped = ::mmap(reinterpret_cast<void*>(aligned), bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);
  if (mapped == MAP_FAILED) {
    ::munmap(reserved, room);
    return MAP_FAILED;
  }
  // Mappings end at pages; what is left on both sides goes back.
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t end = (aligned + bytes + page - 1) / page * page;
  if (aligned > start) ::munmap(reserved, aligned - start);
  if (start + room > end) ::munmap(reinterpret_cast<void*>(end), start + room - end);
  return mapped;
}

void back_with_huge_pages(void* address, size_t bytes) {
  auto* first = static_cast<volatile uint8_t*>(address);
  for (size_t at = 0; at + kHugePageBytes <= bytes; at += kHugePageBytes) {
    first[at] = 0;  // a range without any page is not collapsed
    if (::madvise(static_cast<uint8_t*>(address) + at, kHugePageBytes, kCollapse) != 0) return;
  }
}

}  // namespace inferd::engine::cpu
