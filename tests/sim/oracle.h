// What a sequence should become, computed alone: the simulator's language model and expectations.
// Owner: tests/sim. Pure functions, any thread. Must not know scheduler state, pages or steps.
//
// The "model" folds the whole history into a number, and the next token is a function of it: a
// single wrong, missing or foreign token anywhere in the history changes everything after it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "scheduler/request.h"

namespace inferd::sim {

inline constexpr TokenId kVocabulary = 64;
inline constexpr uint64_t kEmptyHistory = 0x9e3779b97f4a7c15;

// The history with one token more.
uint64_t extend_history(uint64_t history, TokenId token);
// What the model says after this history, in [0, kVocabulary).
TokenId next_token(uint64_t history);

struct Outcome {
  std::vector<TokenId> generated;
  scheduler::FinishReason finish = scheduler::FinishReason::kNone;
};

// The whole answer to a request where sequences may have `limit_tokens` tokens at most.
Outcome expected_outcome(std::span<const TokenId> prompt, uint32_t max_tokens,
                         std::span<const TokenId> stop_tokens, uint32_t limit_tokens);

}  // namespace inferd::sim
