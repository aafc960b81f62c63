// The next tier: where the content of pages goes that the pool has no room for, and comes back from.
// Owner: the daemon has the bytes (or a simulator pretends to); memory/ decides which page lies where.
// Engine thread only; an implementation may work on threads of its own, and never makes a caller wait.
// Must not know tokens, sequences or who asks.
//
// A slot holds one page. Its generation tells what was put there from what was there before, so that
// nobody takes one for the other. Nothing here is lossy, and nothing here is promised: what cannot be kept
// or read counts as lost, and is computed again.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "memory/layout.h"

namespace inferd::memory {

// One page's content in the next tier.
struct SlotRef {
  uint32_t slot = kNoIndex;
  uint32_t generation = 0;

  bool operator==(const SlotRef&) const = default;
};

// A page whose content goes to a slot, before anybody writes the page again.
struct PageStore {
  PageId page;
  SlotRef slot;
};

// A page that gets the content of a slot, before the step that reads it.
struct PageLoad {
  PageId page;
  SlotRef slot;
};

enum class FetchState : uint8_t {
  kComing,       // asked for, or will be when there is a buffer for it
  kHere,         // in memory: a load of it takes no longer than a copy
  kLost,         // cannot be read, or is not what was stored
  kUnavailable,  // not in reasonable time; it may still be there
};

class PageTier {
 public:
  virtual ~PageTier() = default;
  // How many pages can be stored now without waiting for anything.
  virtual uint32_t stores_free() const = 0;
  // Wants the slot's content in memory and tells how far that is. What is kHere for a plan stays so until all
  // of that plan's loads are made, several of the same slot too.
  virtual FetchState fetch(SlotRef slot) = 0;
  // How long it lately took to get one page, in nanoseconds; 0: not known.
  virtual double fetch_ns() const = 0;
};

}  // namespace inferd::memory
