// The index of cached pages that an earlier daemon left: whatever it says, memory stays sound.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/check.h"
#include "daemon/tier_index.h"
#include "memory/paged_memory.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace inferd;
  // The last eight bytes are the sum: a right one, so that what is said is looked at.
  std::vector<std::byte> bytes(size + sizeof(uint64_t));
  std::memcpy(bytes.data(), data, size);
  const uint64_t sum = XXH3_64bits(data, size);
  std::memcpy(bytes.data() + size, &sum, sizeof(sum));
  static_cast<void>(daemon::decode_tier_index(std::as_bytes(std::span(data, size))).ok());
  const auto index = daemon::decode_tier_index(bytes);
  if (!index.ok()) return 0;
  const auto again = daemon::decode_tier_index(daemon::encode_tier_index(*index));
  INFERD_CHECK(again.ok() && *again == *index);
  memory::PagedMemory memory({.pages = PageCount(4),
                              .sequences_max = 1,
                              .sequence_tokens_max = 64,
                              .cache_domains_max = 4,
                              .tier_slots = 32});
  std::vector<uint32_t> nodes;
  for (const daemon::TierIndex::Entry& entry : index->entries) {
    uint32_t node = memory::kNoIndex;
    const bool child = entry.parent != daemon::TierIndex::kNone;
    if (!child || nodes[entry.parent] != memory::kNoIndex) {
      node = memory.prefixes().restore(CacheDomain(1 + entry.domain),
                                       child ? nodes[entry.parent] : memory::kNoIndex, entry.tokens);
    }
    nodes.push_back(node);
    if (node == memory::kNoIndex || entry.pinned_for == daemon::TierIndex::kNobody) continue;
    memory.prefixes().restore_pin(node, entry.pinned_for, 2);
    INFERD_CHECK(memory.prefixes().pinned_pages(entry.pinned_for) <= 2);
  }
  memory.prefixes().order_restored();
  INFERD_CHECK(memory.verify().ok());
  memory.prefixes().flush_all();
  INFERD_CHECK(memory.prefixes().slots_used() == 0);
  return 0;
}
