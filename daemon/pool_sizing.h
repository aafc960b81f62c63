// How many KV pages the daemon may use: from the configuration, or from what the machine and the
// control group leave.
// Owner: daemon, at start-up. Pure functions but for read_machine_memory(), which reads /proc and
// /sys. Any thread. Must not know models: it is told their sizes.
#pragma once

#include <optional>
#include <string>

#include "base/ids.h"
#include "base/result.h"

namespace inferd::daemon {

// Memory as the kernel reports it, in bytes.
struct MachineMemory {
  Bytes total{0};      // MemTotal
  Bytes available{0};  // MemAvailable: what can be had without swapping
  // The tightest limit on this process's control group and those above it, and the directory that
  // sets it; absent if none does.
  struct GroupLimit {
    Bytes limit{0};
    Bytes used{0};  // charged and not reclaimable: without inactive file pages
    std::string directory;
  };
  std::optional<GroupLimit> group;
};

// Reads /proc/meminfo, /proc/self/cgroup and the limits of control groups (memory.max and memory.high
// of version 2; memory.limit_in_bytes of version 1), below `root` ("" for the real ones, a directory
// with a copy of these files in tests). Errors: kIo, kDataCorrupt.
Result<MachineMemory> read_machine_memory(const std::string& root);

struct PoolRequest {
  Bytes configured{0};         // 0: work it out
  Bytes page{0};               // bytes of one page
  Bytes weights{0};            // in use already; only named in the explanation
  uint32_t context_tokens = 0; // longest sequence of the model
  uint32_t sequences_max = 0;  // sequences that may run at once
};

struct PoolDecision {
  PageCount pages{0};
  std::string explanation;  // one line with all figures, for the log
  std::string warning;      // empty, or what the pool is too small for
};

// Worked out: half of the memory that is free now, or three quarters of what the machine's or the
// group's total leaves beside the weights, whichever is less; never more than sequences_max full
// contexts can use. Errors: kResourceExhausted where fewer than 16 pages remain; the sentence has the
// figures.
Result<PoolDecision> decide_pool(const PoolRequest& request, const MachineMemory& memory);

}  // namespace inferd::daemon
