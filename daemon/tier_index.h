// What lies in the next tier's file, written down so that the next daemon finds it again.
// Owner: the daemon. Pure functions over bytes, any thread; what they are given is not trusted. Must not know
// files, memory or sessions.
//
// It names the model by its content, and the numerics that computed the pages: where either differs, nothing
// of it may be used. A sum over all bytes tells a damaged one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace inferd::daemon {

struct TierIndex {
  static constexpr uint32_t kNone = 0xffffffff;
  static constexpr UserId kNobody{0xffffffff};
  // A page of 16 tokens after those of its parent.
  struct Entry {
    uint32_t parent = kNone;  // an earlier entry; kNone: at the beginning
    uint32_t domain = 0;      // of `domains`
    uint32_t position = 0;    // in the file, in pages; no two entries share one
    uint64_t checksum = 0;
    UserId pinned_for = kNobody;  // who pinned it; kNobody: nobody. What it follows is pinned then
    std::array<TokenId, kPageTokens> tokens{};

    bool operator==(const Entry&) const = default;
  };

  std::string content_id;
  std::string numerics_id;
  uint64_t page_bytes = 0;
  uint32_t slots = 0;                // pages that the file has room for
  std::vector<std::string> domains;  // as CacheDomains names them
  std::vector<Entry> entries;        // parents before children

  bool operator==(const TierIndex&) const = default;
};

std::vector<std::byte> encode_tier_index(const TierIndex& index);
// Errors: kDataCorrupt, kUnsupported (another version).
Result<TierIndex> decode_tier_index(std::span<const std::byte> bytes);

}  // namespace inferd::daemon
