// What a request asks of the sampler. A value type that may lie in shared memory (trivially copyable).
// Owner: base vocabulary of engine/sampling; daemon fills it from a validated submission.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

#include "base/ids.h"

namespace inferd::engine {

inline constexpr uint32_t kLogitBiasMax = 256;    // entries a request may carry
inline constexpr uint32_t kTopLogprobsMax = 20;   // alternatives reported per token

struct LogitBias {
  TokenId token = kNoToken;
  float bias = 0;  // added to the logit; -infinity forbids the token
};

// The order in which they act: logit bias, penalties (over the prompt and the generated tokens within the
// last penalty_last_n), then greedy if temperature == 0; else temperature, top-k, top-p, min-p, draw.
struct SamplingParams {
  float temperature = 0;          // 0: greedy, ties to the lowest id
  uint32_t top_k = 0;             // 0: off
  float top_p = 1;                // 1: off
  float min_p = 0;                // 0: off
  float repetition_penalty = 1;   // 1: off; CTRL paper, divides positive and multiplies negative logits
  float presence_penalty = 0;     // subtracted once for a token generated or in the prompt window
  float frequency_penalty = 0;    // subtracted per occurrence
  uint32_t penalty_last_n = 64;   // window of the three penalties, in tokens; 0 turns them off
  uint64_t seed = 0;
  uint32_t branch = 0;            // which of several samples of one prompt: draws apart
  uint32_t top_logprobs = 0;      // alternatives to report, at most kTopLogprobsMax
  uint32_t want_logprobs = 0;     // 1: report the log probability of the chosen token
};
static_assert(std::is_trivially_copyable_v<SamplingParams>);

}  // namespace inferd::engine
