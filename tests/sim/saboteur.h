// Faults planted on purpose into scheduler and memory, each of which the simulator must catch.
// Owner: tests/sim. One thread.
#pragma once

#include <span>
#include <string_view>

#include "base/prng.h"
#include "scheduler/scheduler.h"

namespace inferd::sim {

enum class Sabotage {
  kNone,
  kLeakPage,          // a page is taken, and no table holds it
  kExtraReference,    // a page counts one reference too many: it would never be freed
  kLostReference,     // a page counts one reference too few: it is freed under its holder
  kDoubleFree,        // a free page is in the free list twice
  kWrongCharge,       // a page is charged to a user who does not hold it
  kReservationLeft,   // a reservation outlives its step
  kSwapPages,         // two sequences have each other's page
  kForgetToken,       // a preempted sequence loses the last token that it generated
  kSkipRecompute,     // a preempted sequence believes that its first page is still computed
  kLoseRequest,       // a waiting request leaves the queue unnoticed
  kLoseResume,        // a resumed sequence stays paused
  kSkipAnnouncement,  // a page is handed out without a word to the engine
  kSkipCopy,          // a copy-on-write is forgotten (planted by the simulation, in its plan)
  kWrongPrefix,       // the index takes a page for one with other tokens
  kLostCachedPage,    // a cached page is freed, and the index still has it
  kStrangeHolder,     // the index believes a held page to be cached
  kSkipStore,         // content that leaves the pool is not stored (planted by the simulation)
  kLateStore,         // it is stored after its page was handed out again (likewise)
  kWrongLoad,         // a page gets other content than it should from the next tier (likewise)
  kUnfairCharge,      // a user is charged for service that they never had
};

// Every one but kNone.
std::span<const Sabotage> all_sabotages();
std::string_view sabotage_name(Sabotage sabotage);

}  // namespace inferd::sim

namespace inferd::scheduler {

// Scheduler's friend: reaches what nobody else can.
struct SchedulerSaboteur {
  // Plants the fault where the present state allows it; returns whether it did.
  static bool strike(Scheduler& scheduler, memory::PagedMemory& memory, sim::Sabotage sabotage,
                     Prng& prng);
};

}  // namespace inferd::scheduler
