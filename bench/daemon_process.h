// The daemon's process as the kernel names it: its id and its processor time.
// Owner: bench. Any thread. Must not know what the daemon does.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/result.h"

namespace inferd::bench {

// Who listens on this socket. Connects to it for a moment. Errors: as ipc::connect_to(); kIo.
Result<pid_t> daemon_pid(const std::string& socket);

// Processor time of all its threads so far. Errors: kIo.
Result<int64_t> process_cpu_ns(pid_t pid);

}  // namespace inferd::bench
