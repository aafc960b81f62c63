// Makes request traces where no recorded one is at hand.
//
// Requests arrive by a Poisson process. Lengths are log-normal, given here as median and mean, cut
// off at 4,096 tokens of new text and 2,048 of an answer. Users are drawn evenly.
//
//   chat     each request stands for itself: prompts of 90 / 161 tokens, answers of 200 / 337: the
//   means that
//            Kwon et al., "Efficient Memory Management for Large Language Model Serving with
//            PagedAttention" (SOSP 2023), report of ShareGPT.
//   agents   sessions of one step after another. All sessions of a user begin with the same 1,500
//   tokens
//            (tools, rules); each step's prompt is the one before with its answer, and 120 / 165
//            new tokens; answers are 60 / 77. A session goes on after a step with 7 of 8, up to
//            12,000 tokens. Steps come in no step with the answers: as in recorded traces, one may
//            arrive before the last one ended.
//   batch    class batch: 300 tokens that all requests of a user begin with, 800 / 958 of their
//   own, answers
//            of 150 / 170.
//   mixed    half chat, 35 % agents, 15 % batch; the batch requests are all of the last user, the
//   others of
//            the rest (of the one user, if there is only one).
//
// Owner: bench. Pure functions of the options (and of the C library's logarithm), any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "bench/trace.h"

namespace inferd::bench {

enum class TraceKind : uint8_t { kChat, kAgents, kBatch, kMixed };
std::optional<TraceKind> parse_trace_kind(std::string_view name);

struct GeneratorOptions {
  TraceKind kind = TraceKind::kMixed;
  uint32_t requests = 1000;
  double rate_per_s = 1;  // above 0
  uint32_t users = 4;     // at least 1
  uint64_t seed = 1;
};

Trace generate_trace(const GeneratorOptions& options);

}  // namespace inferd::bench
