#include "bench/engine_driver.h"

#include <utility>

namespace inferd::bench {

Result<std::unique_ptr<EngineDriver>> EngineDriver::create(const DriverOptions& options) {
  INFERD_CHECK(options.sequences > 0 && options.sequence_tokens > 0);
  const uint32_t pages_each = (options.sequence_tokens + kPageTokens - 1) / kPageTokens;
  engine::EngineOptions engine_options;
  engine_options.threads = options.threads;
  engine_options.isa = options.isa;
  engine_options.pages = PageCount(options.sequences * pages_each);
  engine_options.step_tokens_max = options.step_tokens;
  engine_options.step_logits_max = options.step_logits;
  INFERD_ASSIGN(std::unique_ptr<engine::LoadedModel> model,
                engine::load_model(options.model, engine_options));
  if (options.sequence_tokens > model->info().context_tokens) {
    return Error(ErrorCode::kInvalidArgument, "sequences of " +
                                                  std::to_string(options.sequence_tokens) +
                                                  " tokens exceed the model's context of " +
                                                  std::to_string(model->info().context_tokens));
  }
  INFERD_ASSIGN(std::unique_ptr<engine::Engine> engine, model->start(engine_options));
  return std::unique_ptr<EngineDriver>(
      new EngineDriver(std::move(model), std::move(engine), options));
}

EngineDriver::EngineDriver(std::unique_ptr<engine::LoadedModel> model,
                           std::unique_ptr<engine::Engine> engine, const DriverOptions& options)
    : model_(std::move(model)),
      engine_(std::move(engine)),
      step_tokens_(options.step_tokens),
      step_logits_(options.step_logits),
      sequences_(options.sequences) {
  const uint32_t pages_each = (options.sequence_tokens + kPageTokens - 1) / kPageTokens;
  uint32_t next = 0;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    sequences_[i].id = SequenceId(i + 1);
    for (uint32_t page = 0; page < pages_each; ++page) {
      sequences_[i].pages.push_back(PageId(next));
      engine_->page_taken(PageId(next));
      ++next;
    }
  }
}

void EngineDriver::begin_plan() {
  plan_.clear();
  plan_.copies.swap(copies_);
}

void EngineDriver::add_item(Sequence& sequence, std::span<const TokenId> tokens, uint32_t logits) {
  INFERD_CHECK(sequence.tokens + tokens.size() <= sequence.pages.size() * kPageTokens);
  scheduler::BatchItem item;
  item.sequence = sequence.id;
  item.pages = sequence.pages;
  item.tokens = tokens;
  item.position_first = sequence.tokens;
  item.logits_count = logits;
  plan_.items.push_back(item);
  plan_.token_count += static_cast<uint32_t>(tokens.size());
  plan_.logits_count += logits;
  sequence.tokens += static_cast<uint32_t>(tokens.size());
  sequence.written = std::max(sequence.written, sequence.tokens);
}

std::span<const float> EngineDriver::decode(std::span<const TokenId> tokens) {
  INFERD_CHECK(tokens.size() <= sequences_.size());
  begin_plan();
  for (size_t i = 0; i < tokens.size(); ++i) add_item(sequences_[i], tokens.subspan(i, 1), 1);
  return engine_->run(plan_);
}

void EngineDriver::copy(const Sequence& from, Sequence& to) {
  const size_t pages = (from.tokens + kPageTokens - 1) / kPageTokens;
  for (size_t i = 0; i < pages; ++i) copies_.push_back({from.pages[i], to.pages[i]});
  to.tokens = from.tokens;
  to.written = std::max(to.written, to.tokens);
}

}  // namespace inferd::bench
