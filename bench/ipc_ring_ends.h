// The ends of a session's rings, by the code that the daemon and the client library have for them.
// Owner: bench; see ipc_ends.h.
#pragma once

#include "bench/ipc_ends.h"

namespace inferd::bench {

Result<Channel> open_ring_channel();

}  // namespace inferd::bench
