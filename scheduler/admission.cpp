#include "scheduler/admission.h"

#include <algorithm>

#include "base/check.h"

namespace inferd::scheduler {

std::string format_count(uint64_t count) {
  std::string digits = std::to_string(count);
  for (size_t place = digits.size(); place > 3; place -= 3) digits.insert(place - 3, ",");
  return digits;
}

SequenceLimit sequence_limit(const SchedulerConfig& config, const memory::PagedMemory& memory) {
  const uint64_t pool_tokens = uint64_t{memory.pool().counts().total.value} * kPageTokens;
  const uint64_t table_tokens = memory.sequences().sequence_tokens_max();
  SequenceLimit limit;
  limit.by_pool = pool_tokens < config.context_tokens && pool_tokens <= table_tokens;
  limit.tokens =
      static_cast<uint32_t>(std::min({uint64_t{config.context_tokens}, pool_tokens, table_tokens}));
  return limit;
}

Result<void> check_config(const SchedulerConfig& config, const memory::PagedMemory& memory) {
  const uint32_t sequences_max = memory.sequences().sequences_max();
  const std::string sequences = format_count(sequences_max);
  if (config.step_tokens < sequences_max) {
    return Error(ErrorCode::kInvalidArgument,
                 "[scheduler] step_tokens is " + format_count(config.step_tokens) +
                     ", but each of the " + sequences +
                     " sequences must be able to decode in every step: raise step_tokens to at "
                     "least " +
                     sequences + ", or lower max_sequences");
  }
  if (config.step_logits < sequences_max) {
    return Error(ErrorCode::kInvalidArgument,
                 "a step gives logits for " + format_count(config.step_logits) +
                     " tokens, but each of the " + sequences +
                     " sequences must be able to decode in every step: lower [scheduler] "
                     "max_sequences to at most " +
                     format_count(config.step_logits));
  }
  if (config.queue_max == 0) {
    return Error(ErrorCode::kInvalidArgument,
                 "[scheduler] queue is 0, and nothing could ever be submitted: set at least 1");
  }
  if (sequence_limit(config, memory).tokens < 2) {
    return Error(ErrorCode::kInvalidArgument,
                 "the longest sequence would be less than two tokens: raise [memory] pool");
  }
  return {};
}

namespace {

// What to change so that a sequence of `tokens` fits.
std::string remedy(const SequenceLimit& limit) {
  if (limit.by_pool) return "shorten it, or raise [memory] pool";
  return "shorten it, or use a model with a longer context";
}

}  // namespace

Result<void> check_request(const Request& request, const SequenceLimit& limit) {
  if (request.prompt.empty()) {
    return Error(ErrorCode::kInvalidArgument, "the prompt is empty: give at least one token");
  }
  if (request.stop_tokens.size() > kStopTokensMax) {
    return Error(ErrorCode::kInvalidArgument,
                 "this request has " + format_count(request.stop_tokens.size()) +
                     " stop tokens: at most " + format_count(kStopTokensMax) + " are possible");
  }
  if (request.nice < kNiceMin || request.nice > kNiceMax) {
    return Error(ErrorCode::kInvalidArgument, "nice must be between " + std::to_string(kNiceMin) +
                                                  " and " + std::to_string(kNiceMax));
  }
  const uint64_t prompt = request.prompt.size();
  INFERD_CHECK(request.score_first == 0 || (request.score && request.score_first < prompt));
  const bool unlimited = request.max_tokens == kUnlimitedTokens;
  const uint64_t generate = unlimited ? 1 : request.max_tokens;
  if (prompt + generate <= limit.tokens) return {};
  const std::string parts =
      unlimited
          ? "(" + format_count(prompt) + " prompt + at least 1 to generate)"
          : "(" + format_count(prompt) + " prompt + " + format_count(generate) + " to generate)";
  return Error(ErrorCode::kResourceExhausted,
               "this request needs " + format_count(prompt + generate) + " tokens " + parts +
                   " and the longest sequence here is " + format_count(limit.tokens) +
                   " tokens: " + remedy(limit));
}

}  // namespace inferd::scheduler
