// The ends of a Unix stream socket and of a TCP connection with server-sent events.
// Owner: bench; see ipc_ends.h.
#pragma once

#include "bench/ipc_ends.h"

namespace inferd::bench {

// `way` is kUnix or kSse.
Result<Channel> open_socket_channel(Way way);

}  // namespace inferd::bench
