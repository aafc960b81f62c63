// A whole-page copy that memory asks for and an engine makes.
// Owner: memory. A value type, any thread. Must not know what a page contains.
#pragma once

#include "base/ids.h"

namespace inferd::memory {

// Made before the step that writes `to` runs (copy-on-write). `from` stays as it is: someone else
// holds it.
struct PageCopy {
  PageId from;
  PageId to;
};

}  // namespace inferd::memory
