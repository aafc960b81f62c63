// The daemon's counters as Prometheus text (exposition format 0.0.4).
// Owner: daemon. A pure function, any thread.
#pragma once

#include <string>

#include "daemon/accounts.h"
#include "daemon/engine_snapshot.h"

namespace inferd::daemon {

std::string metrics_text(const EngineSnapshot& snapshot, const AccountsSnapshot& accounts,
                         double uptime_s);

}  // namespace inferd::daemon
