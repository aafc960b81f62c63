// Memory of a memfd in huge pages: a step reads all weights once, and with 4 KiB pages a good part of that time
// goes into looking up addresses.
// Owner: engine/cpu. Stateless; any thread. Must not know what the memory is for.
#pragma once

#include <cstddef>

namespace inferd::engine::cpu {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// Maps the first `bytes` of `fd` shared, at an address that huge pages can be mapped at. Returns MAP_FAILED with
// errno on failure. The caller unmaps [address, bytes).
void* map_aligned(int fd, size_t bytes, int protection);

// Backs a fresh, writable mapping of map_aligned by huge pages as far as the kernel has them, and takes their
// memory at once (which is many times faster than first touches of small pages). Where it has none, or does not
// know how, nothing changes: the memory works either way.
void back_with_huge_pages(void* address, size_t bytes);

}  // namespace inferd::engine::cpu
