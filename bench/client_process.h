// A client in a process of its own, which asks what it is told to and reports when tokens came.
// Owner: bench. The measuring process's main thread, which must not be connected to a daemon
// itself when it starts one. Must not know what is measured.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "bench/ipc_process.h"
#include "bench/timed_answer.h"

namespace inferd::bench {

struct ClientOptions {
  std::string socket;         // empty: as every client finds it
  std::string model;          // empty: the daemon's first
  std::string cache_domain;   // empty: the user's own
  std::optional<uid_t> user;  // whom it becomes before it connects, as user and as group
};

// What a client is to ask for.
struct Order {
  uint64_t seed = 0;           // of the prompt's token ids, which are random
  uint32_t prompt_tokens = 1;  // at least 1
  uint32_t gen_tokens = 1;     // INFERD_UNLIMITED_TOKENS: up to the context's end
  uint32_t top_logprobs = 0;   // with each token: 0 to 20
  bool endless = false;        // reports with its first token, and again once it has ended
};

// What became of it.
struct Report {
  int64_t asked_ns = 0;        // CLOCK_MONOTONIC, before it was submitted
  uint32_t prompt_tokens = 0;  // these two once it has ended
  uint32_t cached_tokens = 0;
  inferd_finish finish = INFERD_FINISH_NONE;
  std::vector<TokenArrival> arrivals;

  double ttft_ms() const;
};

class ClientProcess {
 public:
  // Starts it; returns once it is connected. Errors: why it is not.
  static Result<ClientProcess> start(const ClientOptions& options);

  // Has it submit a request. One at a time.
  Result<void> ask(const Order& order);
  // Has it cancel an endless answer.
  Result<void> end_answer();
  // Waits for its next report. Errors: what went wrong there.
  Result<Report> report();

  // SIGSTOP and SIGCONT.
  void stop() const { child_.stop(); }
  void go_on() const { child_.go_on(); }

 private:
  ClientProcess(Child child, UniqueFd channel)
      : child_(std::move(child)), channel_(std::move(channel)) {}

  Child child_;
  UniqueFd channel_;
};

}  // namespace inferd::bench
