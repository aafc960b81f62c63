// Cached prefixes that outlive the daemon: what an orderly end leaves beside the next tier's file, and what the
// next start makes of it.
// Owner: the daemon, before its engine thread starts and after it has ended. Must not know clients.
//
// The index is read once and removed at once: it is true for the file as it is then, and not after a crash.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/cache_domains.h"
#include "daemon/disk_tier.h"
#include "daemon/tier_index.h"
#include "engine/engine.h"
#include "memory/prefix_index.h"

namespace inferd::daemon {

// Files in the directory for cached pages.
inline constexpr const char* kTierFileName = "pages";
inline constexpr const char* kTierIndexName = "index";

// Makes the directory, with mode 0700, if it is not there, and takes it for this daemon as long as the descriptor
// is open. Errors: kIo (its parent is not there), kPermissionDenied (also for one that others may write to),
// kUnavailable (another daemon has it).
Result<UniqueFd> take_tier_directory(const std::string& directory);

// Reads and removes the index. Without one, or where what it describes cannot be used by this model and these
// numerics, there is none, and `why` says so in a sentence (empty: there was none).
struct KeptIndex {
  std::optional<TierIndex> index;
  std::string why;
};
KeptIndex take_kept_index(const std::string& directory, const engine::ModelInfo& model);

// Removes index and pages, as far as they are there. The directory is taken.
void remove_kept(const std::string& directory);
// The same for a directory that is not to be used, unless another daemon uses it.
void remove_unused(const std::string& directory);

// Puts what the index names back into the prefix index, as far as there is room and its domains exist, pinned as it
// was, as far as each user may have `user_pinned_pages`.
struct Restored {
  uint32_t pages = 0;
  uint32_t pinned = 0;      // of those
  uint32_t not_pinned = 0;  // that had been
};
Restored restore_kept(const TierIndex& index, const CacheDomains& domains,
                      uint32_t user_pinned_pages, memory::PrefixIndex& prefixes, DiskTier& tier);

// The index of what the tier holds now; nothing may be under way.
TierIndex describe_kept(const engine::ModelInfo& model, const CacheDomains& domains,
                        const memory::PrefixIndex& prefixes, const DiskTier& tier);
// Writes it, so that it is there as a whole or not at all. Errors: kIo, kResourceExhausted.
Result<void> write_kept_index(const std::string& directory, const TierIndex& index);

}  // namespace inferd::daemon
