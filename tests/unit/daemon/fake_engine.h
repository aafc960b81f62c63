// An engine without a model: its KV pages hold token ids, and the token that follows a sequence is a
// digest of all ids found through the page table. A wrong page, slot, position or order anywhere in
// scheduler, memory or loop changes the answer. Owner: tests/unit/daemon.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <set>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace inferd::daemon {

inline constexpr uint32_t kFakeVocabulary = 50;
inline constexpr TokenId kFakeEnd = 49;  // the model's end-of-answer token

// The token that follows `tokens`. Never kFakeEnd unless the last token is 48.
inline TokenId fake_next(std::span<const TokenId> tokens) {
  if (!tokens.empty() && tokens.back() == 48) return kFakeEnd;
  uint64_t digest = 14695981039346656037ull;
  for (TokenId token : tokens) digest = (digest ^ static_cast<uint64_t>(token)) * 1099511628211ull;
  return static_cast<TokenId>((digest >> 32) % 48);
}

// What a request for `count` tokens answers, ends left aside.
inline std::vector<TokenId> fake_answer(std::vector<TokenId> prompt, uint32_t count) {
  std::vector<TokenId> answer;
  for (uint32_t i = 0; i < count; ++i) {
    answer.push_back(fake_next(prompt));
    prompt.push_back(answer.back());
  }
  return answer;
}

class FakeEngine final : public engine::Engine {
 public:
  FakeEngine(PageCount pages, uint32_t step_tokens_max, uint32_t step_logits_max)
      : slots_(size_t{pages.value} * kPageTokens, kNoToken),
        logits_(size_t{step_logits_max} * kFakeVocabulary), step_tokens_max_(step_tokens_max) {
    info_.name = "fake";
    info_.vocabulary = kFakeVocabulary;
    info_.page_bytes = Bytes(4096);
    history_.reserve(1 << 16);
  }

  const engine::ModelInfo& info() const noexcept override { return info_; }

  std::span<const float> run(const scheduler::BatchPlan& plan) override {
    EXPECT_LE(plan.token_count, step_tokens_max_);
    size_t row = 0;
    for (const scheduler::PageCopy& copy : plan.copies) {
      std::copy_n(slots_.begin() + copy.from.value * kPageTokens, kPageTokens,
                  slots_.begin() + copy.to.value * kPageTokens);
    }
    for (const scheduler::BatchItem& item : plan.items) {
      for (size_t i = 0; i < item.tokens.size(); ++i) {
        slot(item, item.position_first + static_cast<uint32_t>(i)) = item.tokens[i];
      }
      for (uint32_t i = 0; i < item.logits_count; ++i) {
        const size_t length = item.position_first + item.tokens.size() - item.logits_count + i + 1;
        write_row(item, static_cast<uint32_t>(length), row++);
      }
    }
    counters_.steps += 1;
    counters_.tokens += plan.token_count;
    largest_step = std::max(largest_step, plan.token_count);
    if (on_run) on_run(plan);
    return std::span(logits_).first(row * kFakeVocabulary);
  }

  void page_taken(PageId page) override {
    std::fill_n(slots_.begin() + page.value * kPageTokens, kPageTokens, kNoToken);
  }
  void page_released(PageId) override { ++pages_released; }
  void save_page(PageId page, std::span<std::byte> out) const override {
    std::fill(out.begin(), out.end(), std::byte{0});
    std::memcpy(out.data(), &slots_[page.value * kPageTokens], kPageTokens * sizeof(TokenId));
  }
  void restore_page(PageId page, std::span<const std::byte> content) override {
    std::memcpy(&slots_[page.value * kPageTokens], content.data(), kPageTokens * sizeof(TokenId));
  }
  engine::EngineCounters counters() const noexcept override { return counters_; }

  std::function<void(const scheduler::BatchPlan&)> on_run;
  uint32_t largest_step = 0;
  uint32_t pages_released = 0;

 private:
  TokenId& slot(const scheduler::BatchItem& item, uint32_t position) {
    return slots_[size_t{item.pages[position / kPageTokens].value} * kPageTokens +
                  position % kPageTokens];
  }
  void write_row(const scheduler::BatchItem& item, uint32_t length, size_t row) {
    history_.clear();
    for (uint32_t position = 0; position < length; ++position) {
      history_.push_back(slot(item, position));
    }
    float* out = logits_.data() + row * kFakeVocabulary;
    std::fill_n(out, kFakeVocabulary, 0.0f);
    out[fake_next(history_)] = 5;
  }

  engine::ModelInfo info_;
  std::vector<TokenId> slots_;  // [pages, kPageTokens]
  std::vector<TokenId> history_;
  std::vector<float> logits_;
  uint32_t step_tokens_max_;
  engine::EngineCounters counters_;
};

}  // namespace inferd::daemon
