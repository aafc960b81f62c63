// One round of each measurement of `inferd-bench ipc`, over one way. Owner: bench. Main thread;
// each forks the other side and ends it. Must not know what the figures are compared with.
#pragma once

#include <array>

#include "bench/ipc_ends.h"
#include "bench/ipc_process.h"

namespace inferd::bench {

// How long a waiter that spins looks before it sleeps. As inferd_connect_options.spin_us.
inline constexpr int64_t kSpinNs = 50'000;
inline constexpr uint32_t kStepClients = 16;

using WayFigures = std::array<double, kWays.size()>;  // by way

// Microseconds from a request to its answer, the median of `count` one after the other. With
// `spin_ns` both sides of a ring look for so long before they sleep.
Result<double> measure_round_trip(Way way, int64_t spin_ns, uint32_t count,
                                  const Processors& processors);

// Records a second, `count` of them, each shown to the client by itself, read by another process as
// fast as it can.
Result<double> measure_stream(Way way, int64_t spin_ns, uint32_t count,
                              const Processors& processors);

// Microseconds of the daemon's processor time for a step that brings one record to each of
// kStepClients clients, the median of `steps`. None of the clients ever sleeps.
Result<double> measure_step_awake(Way way, uint32_t steps, const Processors& processors);

// The same to clients that all sleep before each step, over every way. The ways take turns step by
// step: what waking a client costs the kernel changes within a round.
Result<WayFigures> measure_step_asleep(uint32_t steps, const Processors& processors);

}  // namespace inferd::bench
