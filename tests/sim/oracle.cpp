#include "tests/sim/oracle.h"

#include <algorithm>

namespace inferd::sim {

uint64_t extend_history(uint64_t history, TokenId token) {
  // Any good mixer does; this is the finalizer of SplitMix64.
  uint64_t mixed = history + 0x9e3779b97f4a7c15 * (static_cast<uint64_t>(token) + 1);
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return mixed ^ (mixed >> 31);
}

TokenId next_token(uint64_t history) {
  return static_cast<TokenId>(history % static_cast<uint64_t>(kVocabulary));
}

Outcome expected_outcome(std::span<const TokenId> prompt, uint32_t max_tokens,
                         std::span<const TokenId> stop_tokens, uint32_t limit_tokens) {
  using scheduler::FinishReason;
  Outcome outcome;
  uint64_t history = kEmptyHistory;
  for (TokenId token : prompt) history = extend_history(history, token);
  for (;;) {
    if (outcome.generated.size() == max_tokens) {
      outcome.finish = FinishReason::kLength;
      return outcome;
    }
    if (prompt.size() + outcome.generated.size() == limit_tokens) {
      outcome.finish = FinishReason::kContext;
      return outcome;
    }
    const TokenId token = next_token(history);
    outcome.generated.push_back(token);
    history = extend_history(history, token);
    if (std::find(stop_tokens.begin(), stop_tokens.end(), token) != stop_tokens.end()) {
      outcome.finish = FinishReason::kStop;
      return outcome;
    }
  }
}

}  // namespace inferd::sim
