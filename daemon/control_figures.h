// Accounts and pressure as the control socket tells them.
// Owner: daemon. Pure functions, any thread. Must not know callers but for what they may see.
#pragma once

#include <optional>

#include "base/ids.h"
#include "daemon/accounts.h"
#include "daemon/control_codec.h"
#include "daemon/engine_snapshot.h"

namespace inferd::daemon {

// The reply of Top: of everyone, or of one user alone.
Json top_reply(const EngineSnapshot& snapshot, const AccountsSnapshot& accounts,
               std::optional<UserId> only_of_user);

// The reply of Vmstat.
Json vmstat_reply(const EngineSnapshot& snapshot);

}  // namespace inferd::daemon
