// One client process of the load measurement: sends prompts to the daemon and notes when tokens
// come. Owner: bench. Runs in a process of its own, forked from the parent, which reads what it
// wrote into memory shared by both. Must not know the other clients.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace inferd::bench {

struct ServeOptions {
  std::string socket;  // empty: the library's own search
  std::string model;   // empty: the daemon's first
  uint32_t clients = 8;
  uint32_t requests = 64;        // of all clients together
  uint32_t prompt_tokens = 512;  // of each prompt's own
  uint32_t gen_tokens = 128;
  uint32_t shared_prefix = 0;  // tokens before those, the same for all
  double rate = 0;  // requests per second of all clients together; 0: one after the other
  uint32_t seed = 1;
  std::string priority = "interactive";  // or "batch", "idle"
  uint32_t nice = 0;                     // within the class, 0 to 19
};

// What became of one request. Lies in memory shared by fork(); trivially copyable.
struct RequestRecord {
  uint32_t done = 0;  // 1: ended well; 2: failed, see error
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t gaps = 0;       // used entries of its part of the gap array
  uint32_t generated = 0;  // tokens
  int64_t begin_ns = 0;    // when it was due (rate) or sent; CLOCK_MONOTONIC
  int64_t first_ns = 0;    // first token
  int64_t end_ns = 0;      // last event
  char error[128] = {};
};

// Runs the requests client, client + clients, ... of `records` one after the other. gaps:
// [requests, gen_tokens], milliseconds between neighbouring tokens (a delivery of several at once
// counts as one gap and zeros). `start_ns`: moment at which all begin. Returns the process's exit
// status; 1 if it could not connect, in which case every one of its records says why.
int run_serve_client(const ServeOptions& options, uint32_t client, int64_t start_ns,
                     std::span<RequestRecord> records, std::span<double> gaps_ms);

// The prompt of request `index`: shared_prefix ids that depend on the seed alone, then ids of its
// own.
std::vector<int32_t> serve_prompt(const ServeOptions& options, uint32_t index, uint32_t vocabulary);

}  // namespace inferd::bench
