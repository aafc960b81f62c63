// Drives an engine without daemon or scheduler: sequences with pages of a plain list, steps of a
// chosen size. What the engine, perplexity and later measurements share.
// Owner: bench. Main thread. Must not know what is measured.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace inferd::bench {

// One sequence: its page table and how many tokens are in it.
struct Sequence {
  SequenceId id;
  std::vector<PageId> pages;
  uint32_t tokens = 0;
  uint32_t written = 0;  // positions that hold keys and values of some token, >= tokens
};

struct DriverOptions {
  std::string model;
  uint32_t threads = 0;
  std::string isa = "auto";
  uint32_t sequences = 1;        // that exist at once
  uint32_t sequence_tokens = 0;  // each, at most
  uint32_t step_tokens = 512;
  uint32_t step_logits = 64;
};

class EngineDriver {
 public:
  // Loads the model and starts an engine with just the pages that the sequences need.
  // Errors: those of load_model() and start(); kInvalidArgument if sequence_tokens exceeds the
  // context.
  static Result<std::unique_ptr<EngineDriver>> create(const DriverOptions& options);

  engine::Engine& engine() { return *engine_; }
  const engine::ModelInfo& info() const { return engine_->info(); }
  std::vector<Sequence>& sequences() { return sequences_; }

  // Appends `tokens` to a sequence in steps of at most step_tokens. `wanted` of the last tokens get
  // logits; `take` receives the rows of each step in order, [rows, vocabulary]. wanted is cut into
  // steps of at most step_logits rows.
  template <typename Take>
  void append(Sequence& sequence, std::span<const TokenId> tokens, uint32_t wanted, Take&& take);

  // One decode step: tokens[i] goes to sequences()[i]; returns the logits, [tokens.size(),
  // vocabulary].
  std::span<const float> decode(std::span<const TokenId> tokens);

  // Makes sequence `to` a copy of `from`: whole pages, by the engine, before its next step.
  void copy(const Sequence& from, Sequence& to);

  // Sets the length back, or forward to positions that were written before: what is computed next
  // comes after `tokens` tokens.
  static void set_length(Sequence& sequence, uint32_t tokens) {
    INFERD_CHECK(tokens <= sequence.written);
    sequence.tokens = tokens;
  }

 private:
  EngineDriver(std::unique_ptr<engine::LoadedModel> model, std::unique_ptr<engine::Engine> engine,
               const DriverOptions& options);
  void begin_plan();
  void add_item(Sequence& sequence, std::span<const TokenId> tokens, uint32_t logits);

  std::unique_ptr<engine::LoadedModel> model_;
  std::unique_ptr<engine::Engine> engine_;
  uint32_t step_tokens_;
  uint32_t step_logits_;
  std::vector<Sequence> sequences_;
  scheduler::BatchPlan plan_;
  std::vector<scheduler::PageCopy> copies_;  // for the next plan
};

template <typename Take>
void EngineDriver::append(Sequence& sequence, std::span<const TokenId> tokens, uint32_t wanted,
                          Take&& take) {
  INFERD_CHECK(wanted <= tokens.size());
  const size_t silent = tokens.size() - wanted;  // tokens without logits come first
  size_t done = 0;
  while (done < tokens.size()) {
    size_t count = std::min<size_t>(step_tokens_, tokens.size() - done);
    const size_t scored_max = step_logits_;
    if (done + count > silent) {
      const size_t unscored = done < silent ? silent - done : 0;
      count = std::min(count, unscored + scored_max);
    }
    const size_t rows = done + count > silent ? done + count - std::max(done, silent) : 0;
    begin_plan();
    add_item(sequence, tokens.subspan(done, count), static_cast<uint32_t>(rows));
    const std::span<const float> logits = engine_->run(plan_);
    if (rows > 0) take(logits);
    done += count;
  }
}

}  // namespace inferd::bench
