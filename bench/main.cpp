// inferd-bench: every measurement of inferd.
#include <cstdio>
#include <cstring>
#include <exception>

#include "bench/command.h"

namespace inferd::bench {
namespace {

struct Command {
  const char* name;
  Result<int> (*run)(Arguments arguments);
  const char* purpose;
};

constexpr Command kCommands[] = {
    {"engine", run_engine_command, "prefill and decode rates of the engine alone"},
    {"perplexity", run_perplexity_command, "perplexity of a text, and its logits as a NumPy file"},
    {"serve", run_serve_command, "client processes through the daemon: latencies and throughput"},
    {"isolation", run_isolation_command, "what a user's TTFT tells of another user's prompts"},
    {"stopped", run_stopped_command, "what a client stopped in mid-answer costs the others"},
    {"ipc", run_ipc_command, "our rings beside a Unix socket and server-sent events over TCP"},
    {"memory", run_memory_command, "the prefix index at size: lookups, inserts and drops"},
    {"planning", run_planning_command, "what planning a step costs, and what it grows with"},
    {"sim", run_sim_command, "a request trace through scheduler and memory, in virtual time"},
    {"roofline", run_roofline_command, "what this machine can do: bandwidth and arithmetic peaks"},
    {"make-model", run_make_model_command, "a model file of random weights of a given shape"},
};

void print_usage(FILE* out) {
  std::fputs("usage: inferd-bench COMMAND [--json] [options]\n\n", out);
  for (const Command& command : kCommands) {
    std::fprintf(out, "  %-12s %s\n", command.name, command.purpose);
  }
  std::fputs("\ninferd-bench COMMAND --help lists the options of a command.\n", out);
}

int run(Arguments arguments) {
  if (arguments.size() < 2) {
    print_usage(stderr);
    return 2;
  }
  const char* name = arguments[1];
  if (std::strcmp(name, "--help") == 0 || std::strcmp(name, "-h") == 0) {
    print_usage(stdout);
    return 0;
  }
  if (std::strcmp(name, "--version") == 0) {
    std::puts("inferd-bench " INFERD_VERSION);
    return 0;
  }
  for (const Command& command : kCommands) {
    if (std::strcmp(name, command.name) != 0) continue;
    const Result<int> result = command.run(arguments.subspan(2));
    if (result) return *result;
    std::fprintf(stderr, "inferd-bench %s: %s\n", name, result.error().message().c_str());
    return result.error().code() == ErrorCode::kInvalidArgument ? 2 : 1;
  }
  std::fprintf(stderr, "inferd-bench: there is no command \"%s\"\n", name);
  print_usage(stderr);
  return 2;
}

}  // namespace
}  // namespace inferd::bench

int main(int argc, char** argv) {
  try {
    return inferd::bench::run({argv, static_cast<size_t>(argc)});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "inferd-bench: %s\n", error.what());
    return 1;
  }
}
