// The subcommands of inferd-bench. Each reads the arguments after its name, prints its result to
// standard output and progress to standard error, and returns an error or the exit status.
// Owner: bench. Main thread.
#pragma once

#include <span>

#include "base/result.h"

namespace inferd::bench {

using Arguments = std::span<char* const>;

Result<int> run_engine_command(Arguments arguments);
Result<int> run_perplexity_command(Arguments arguments);
Result<int> run_serve_command(Arguments arguments);
Result<int> run_isolation_command(Arguments arguments);
Result<int> run_stopped_command(Arguments arguments);
Result<int> run_roofline_command(Arguments arguments);
Result<int> run_ipc_command(Arguments arguments);
Result<int> run_memory_command(Arguments arguments);
Result<int> run_sim_command(Arguments arguments);
Result<int> run_planning_command(Arguments arguments);
Result<int> run_make_model_command(Arguments arguments);

}  // namespace inferd::bench
