// The sampler: one row of logits and a request's parameters in, one token out.
// Owner: the engine thread (one Sampler per model, shared by its sequences). Threads: one at a
// time. Must not know sequences, batches, rings or text.
//
// The result is a function of the arguments alone: not of earlier calls, of the batch, of the
// instruction set or of the C library. Draws come from a counter-based generator keyed by (seed,
// branch, position); exponentials and logarithms are those of engine/ops/math.h; every sum has one
// order. Nothing is allocated after construction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "engine/sampling/sampling_params.h"

namespace inferd::engine {

struct TokenLogprob {
  TokenId token = kNoToken;
  float logprob = 0;  // natural logarithm
};

struct SampleResult {
  // kNoToken if no token can be chosen: every logit is NaN or -infinity, by the model or by the
  // biases.
  TokenId token = kNoToken;
  // Log softmax of the logits as given (before biases, penalties and temperature); 0 unless
  // params.want_logprobs or params.top_logprobs asked for it.
  float logprob = 0;
  // Entries written to top_out.
  uint32_t top_count = 0;
};

// Checks what a client asked for; sample() relies on it. Errors: kInvalidArgument, naming the
// parameter, its value and the range. Pure, any thread.
Result<void> check_sampling(const SamplingParams& params, std::span<const LogitBias> biases,
                            uint32_t vocabulary);

class Sampler {
 public:
  // Allocates the scratch for one row of `vocabulary` logits: 20 bytes a token.
  explicit Sampler(uint32_t vocabulary);

  // Chooses the token at `position` of a sequence.
  //   logits    [vocabulary] f32, CPU, unchanged by the call. NaN counts as -infinity. A logit of
  //             +infinity wins outright, the lowest id of several.
  //   history   prompt and generated tokens, oldest first: whole, or at least the last
  //             params.penalty_last_n. Ids outside the vocabulary are ignored.
  //   position  absolute index, in the sequence, of the token to be drawn.
  //   top_out   receives the likeliest tokens by the unmodified logits, likely first, ties to the
  //             lowest id: as many as params.top_logprobs, top_out.size() and the tokens above
  //             -infinity allow.
  // Precondition: check_sampling() accepted params and biases.
  // What is kept, in detail: top-k keeps the k highest logits; top-p the fewest tokens, likeliest
  // first, whose mass reaches top_p of the mass that top-k left; min-p those of the rest that have
  // at least min_p of the likeliest token's probability. At least one token is always kept. Ties
  // in any of them fall to the lowest id. The draw walks the kept tokens in the order of their ids.
  SampleResult sample(std::span<const float> logits, const SamplingParams& params,
                      std::span<const LogitBias> biases, std::span<const TokenId> history,
                      uint64_t position, std::span<TokenLogprob> top_out) noexcept;

  // The log probability of a given token, and the likeliest ones, as sample() reports them: by the
  // logits as given. Precondition: the token is in the vocabulary.
  SampleResult score(std::span<const float> logits, TokenId token, uint32_t top_logprobs,
                     std::span<TokenLogprob> top_out) noexcept;

 private:
  struct Candidate {
    float logit;
    TokenId token;
  };

  // The logits with biases and penalties: `logits` itself if there are none, else values_.
  std::span<const float> adjust(std::span<const float> logits, const SamplingParams& params,
                                std::span<const LogitBias> biases,
                                std::span<const TokenId> history) noexcept;
  void apply_penalties(const SamplingParams& params, std::span<const TokenId> window) noexcept;
  // Fills candidates_ with the `count` highest values, sorted (value falling, id rising).
  void select_top(std::span<const float> values, size_t count) noexcept;
  // Fills weights_ and block_sums_ with exp((value - maximum) / temperature); returns their sum.
  double weigh_all(std::span<const float> values, float maximum, float temperature) noexcept;
  TokenId draw(std::span<const float> values, TokenId best, const SamplingParams& params,
               uint64_t position) noexcept;
  TokenId draw_from_all(const SamplingParams& params, uint64_t position) noexcept;
  TokenId draw_from_candidates(const SamplingParams& params, float maximum, double total,
                               uint64_t position) noexcept;
  void report_logprobs(std::span<const float> logits, const SamplingParams& params,
                       std::span<TokenLogprob> top_out, SampleResult& result) noexcept;

  uint32_t vocabulary_;
  std::vector<float> values_;       // [vocabulary] adjusted logits
  std::vector<float> weights_;      // [vocabulary] unnormalised probabilities
  std::vector<double> block_sums_;  // [vocabulary / 64, rounded up] sums of weights_
  std::vector<uint32_t> counts_;    // [vocabulary] occurrences in the window; all 0 between calls
  std::vector<Candidate> candidates_;  // capacity: vocabulary
};

}  // namespace inferd::engine
