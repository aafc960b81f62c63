// Reads public request traces. Which format a file has is seen from its first line:
//
//   Azure LLM inference trace    CSV: TIMESTAMP,ContextTokens,GeneratedTokens
//   BurstGPT                     CSV: Timestamp,Model,Request tokens,Response tokens,Total
//   tokens,Log Type Mooncake                     JSON lines: {"timestamp": ms, "input_length": n,
//   "output_length": n,
//                                "hash_ids": [...]}; each id stands for 512 tokens of the prompt
//   inferd's own                 CSV: arrival_s,prompt_tokens,output_tokens, and of the further
//   columns
//                                user,class,prefix_id,prefix_tokens any that the header names
//
// Columns are found by their names, in any order; others are ignored. In a column `user` or
// `prefix_id` any text is a name; `class` is interactive, batch or idle. `prefix_tokens` of the
// prompt are those that all rows of that `prefix_id` begin with.
//
// Owner: bench. Pure but for the stream, any thread. Files come from outside: any bytes end in a
// trace or in a sentence with the number of the line.
#pragma once

#include <cstdint>
#include <istream>

#include "base/result.h"
#include "bench/trace.h"

namespace inferd::bench {

inline constexpr uint32_t kTraceLineBytesMax = 1 << 20;

// Reads at most `requests_max` requests, sorts them by arrival, and lets the first one arrive at 0.
// Errors: kDataCorrupt, kUnsupported for a first line of none of the formats; the sentence says
// which line and what to do.
Result<Trace> read_trace(std::istream& stream, uint64_t requests_max);

}  // namespace inferd::bench
