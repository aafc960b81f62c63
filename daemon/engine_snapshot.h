// How things stand on the engine thread, copied between two steps for the control socket.
// Owner: made by the engine thread, then a value of the control thread. No references into live state.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "daemon/disk_tier.h"
#include "daemon/histogram.h"
#include "daemon/pressure.h"
#include "engine/engine.h"
#include "memory/page_pool.h"
#include "scheduler/request.h"

namespace inferd::daemon {

// Who is at the other end of a session: the kernel's word, and what the client calls itself.
struct SessionFacts {
  SessionId id;
  UserId user;
  pid_t pid = 0;
  std::string client;
  int64_t connected_ns = 0;
  CacheDomain domain{};     // a shared one that it asked for; 0: its user's own
  bool privileged = false;  // root, or the user that the daemon runs as
  uint32_t weight = scheduler::kWeightDefault;  // of its user among users
};

// Counters of the step loop, monotonic since start.
struct LoopCounters {
  uint64_t turns = 0;              // of the loop, idle ones included
  uint64_t steps = 0;              // that ran the model
  uint64_t requests = 0;           // accepted
  uint64_t requests_refused = 0;
  uint64_t requests_overdue = 0;   // not started when their deadline came
  uint64_t sessions = 0;           // ever added
  uint64_t sessions_broken = 0;    // ended for breaking the protocol
  uint64_t sessions_stalled = 0;   // ended for not reading
  uint64_t doorbells = 0;          // rung for clients
  uint64_t memory_shortages = 0;   // that the kernel told of
  uint64_t pages_given_back = 0;   // to the operating system
  uint64_t tokens_published = 0;
  Histogram step;                  // model and sampling, one step
  Histogram ttft;                  // submission drained to first token
  Histogram itl;                   // between tokens of a sequence
};

struct SequenceEntry {
  scheduler::SequenceInfo info;
  int64_t age_ns = 0;
};

struct SessionEntry {
  SessionFacts facts;
  uint32_t sequences = 0;
  bool stalled = false;
  int64_t age_ns = 0;
};

// Of the next tier; all 0 without one.
struct DiskFigures {
  uint32_t slots = 0;
  uint32_t used = 0;
  DiskTierCounters counters;
};

// Cached prefixes of one domain.
struct CacheDomainFigures {
  CacheDomain domain;
  uint32_t pages = 0;   // nodes of the index
  uint32_t stored = 0;  // of those, the ones that are in the next tier
};

struct EngineSnapshot {
  scheduler::SchedulerStats scheduler;
  memory::PageCounts pages;
  DiskFigures disk;
  LoopCounters loop;
  engine::EngineCounters engine;
  PressureFigures pressure;
  std::vector<SequenceEntry> sequences;  // oldest first
  std::vector<SessionEntry> sessions;    // by id
  bool draining = false;
};

}  // namespace inferd::daemon
