// Answers through the client library, with the moments at which their tokens came.
// Owner: bench. Any thread, as the library says. Must not know what is made of the times.
#pragma once

#include <cstdint>
#include <inferd/inferd.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace inferd::bench {

// One delivery.
struct TokenArrival {
  int64_t at_ns = 0;  // CLOCK_MONOTONIC
  uint32_t tokens = 0;
};

struct TimedAnswer {
  std::vector<TokenArrival> arrivals;
  int64_t end_ns = 0;  // of the last event
  inferd_finish finish = INFERD_FINISH_NONE;

  uint32_t tokens() const;
};

// Milliseconds between neighbouring tokens: those that came together have zeros between them.
std::vector<double> token_gaps_ms(std::span<const TokenArrival> arrivals);

// The library's error as one of ours, kUnavailable.
Error library_error(const client::Error& error);

// Connects as "inferd-bench". `socket` and `model` may be empty: as every client finds them.
Result<client::Connection> connect_client(const std::string& socket, const std::string& model = "",
                                          const std::string& cache_domain = "");

// Greedy, of exactly `tokens` tokens where the context has room for them.
client::Sampling exactly(uint32_t tokens);

// Submits token ids.
Result<client::Sequence> submit_ids(client::Connection& connection, std::vector<int32_t> ids,
                                    const client::Sampling& sampling);

// Reads to the end. Errors: what the library says; kTimedOut after ten minutes without an event.
Result<TimedAnswer> read_timed(client::Sequence& sequence);

// Its figures, after its last event.
Result<client::Usage> usage_of(const client::Sequence& sequence);

// Reads one event into `answer`, waiting for it up to `timeout_ms`. False: the wait was over.
Result<bool> read_timed_event(client::Sequence& sequence, int64_t timeout_ms, TimedAnswer& answer);

}  // namespace inferd::bench
