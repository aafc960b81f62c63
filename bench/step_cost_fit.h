// What a step costs on a machine, as the four figures of scheduler::StepCost, fitted to measured
// steps. Owner: bench. One thread. Must not know the scheduler's plans or the simulator.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "scheduler/step_cost.h"

namespace inferd::bench {

// One or several steps that were run, and how long they took together.
struct CostSample {
  double steps = 1;
  double rows = 0;  // of logits
  double tokens = 0;
  double positions = 0;  // attended to, summed over the tokens
  double time_ns = 0;

  // `tokens` more tokens from this position on, with so many rows of logits.
  void add(uint32_t tokens_more, uint32_t rows_more, uint32_t position_first);
  double predicted_ns(const scheduler::StepCost& cost) const;
};

struct CostFit {
  scheduler::StepCost cost;
  size_t samples = 0;
  // Of |predicted - measured| / measured: the root of its mean square, and its largest.
  double error_rms = 0;
  double error_max = 0;
};

// Least squares of the relative errors over costs that are not negative. Errors: kInvalidArgument
// with fewer than two samples, or one that took no time.
Result<CostFit> fit_step_cost(std::span<const CostSample> samples);

// The rows that `inferd-bench engine --json` printed, as samples. `step_tokens`: what it was given.
// Where rows of several thread counts are there, those of the largest count. Errors: kDataCorrupt.
Result<std::vector<CostSample>> samples_of_rows(const std::string& json_text, uint32_t step_tokens);

// Runs steps of many shapes (prompts in chunks, decodes, both together, at several depths) on a
// model. `depth_max` is the longest context. Takes half a minute or so on a small model.
Result<std::vector<CostSample>> measure_steps(const std::string& model, uint32_t threads,
                                              uint32_t step_tokens, uint32_t depth_max);

// {"step_ns", "row_ns", "token_ns", "position_ns"}, as --cost reads it and --fit prints it.
std::string step_cost_json(const CostFit& fit);
Result<scheduler::StepCost> parse_step_cost(const std::string& json_text);

// Fitted by `inferd-bench sim --fit` to SmolLM2-135M-Instruct, Q4_1, on two cores of a Zen 3
// processor; the manual page has the same figures.
inline constexpr scheduler::StepCost kDefaultStepCost{3.26e6, 0.30e6, 0.95e6, 1260};

}  // namespace inferd::bench
