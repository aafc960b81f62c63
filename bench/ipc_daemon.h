// What `inferd-bench ipc` measures through a running daemon, with the client library.
// Owner: bench. Main thread. Must not know rings.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace inferd::bench {

struct DaemonOptions {
  std::string socket;
  uint32_t idle_clients = 1000;
  uint32_t connects = 50;  // that are timed
  uint32_t seconds = 5;    // for which the idle daemon's processor time is counted
  uint32_t tokens = 200;   // of each answer whose steps are timed
};

struct DaemonFigures {
  double connect_ms = 0;         // from inferd_connect() to the first submission, median
  double idle_cpu_share = 0;     // of one processor, by the daemon, with the idle clients connected
  double step_alone_ms = 0;      // of an answer over its tokens, without idle clients
  double step_with_idle_ms = 0;  // and with them
};

// Errors: as inferd_connect() and the daemon tell them; kIo.
Result<DaemonFigures> measure_daemon(const DaemonOptions& options);

}  // namespace inferd::bench
