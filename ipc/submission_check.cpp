#include "ipc/submission_check.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "ipc/handshake.h"

namespace inferd::ipc {
namespace {

Error refused(const std::string& sentence) { return Error(ErrorCode::kInvalidArgument, sentence); }

Error without_feature(const std::string& what) {
  return Error(ErrorCode::kUnsupported,
               "client library and daemon did not agree on " + what +
                   "; use a client library and a daemon of the same version");
}

// Class, deadline, parent and storage: fields that came with features of their own.
Result<void> check_features(const SubmitRecord& f, uint64_t features) {
  const bool urgency = f.priority != 0 || f.nice != 0 || f.deadline_ms != 0;
  if (urgency && (features & kFeatureUrgency) == 0) return without_feature("classes and deadlines");
  if (f.parent_cookie != 0 && (features & kFeatureFork) == 0) return without_feature("forks");
  if ((f.header.flags & kSubmitNoStore) != 0 && (features & kFeatureCacheDomain) == 0) {
    return without_feature("requests that leave nothing in the cache");
  }
  const bool scores = (f.header.flags & kSubmitScore) != 0;
  if (scores && (features & kFeatureScore) == 0) return without_feature("scoring");
  return check_urgency(f.priority, f.nice);
}

// A continuation to be scored, which the prompt ends with.
Result<void> check_score(const SubmitRecord& f) {
  if ((f.header.flags & kSubmitScore) == 0) {
    return f.score_first == 0 ? Result<void>() : refused("score_first is for scoring alone");
  }
  if (f.score_first == 0) {
    return refused(
        "the first token of a prompt follows nothing, so it cannot be scored: put at "
        "least one token before the continuation");
  }
  if (f.score_first >= f.prompt_count) {
    return refused("the continuation to be scored has no tokens; give at least one");
  }
  if (f.max_tokens != f.prompt_count - f.score_first || (f.header.flags & kSubmitLogprobs) == 0 ||
      f.stop_count != 0 || f.bias_count != 0) {
    return refused(
        "scoring tells the log probability of each token that is given: it goes with "
        "neither max_tokens, stop tokens nor logit biases");
  }
  return {};
}

}  // namespace

Result<void> check_urgency(uint8_t priority, int32_t nice) {
  if (priority > static_cast<uint8_t>(Priority::kIdle)) {
    return refused("the priority must be interactive, batch or idle");
  }
  if (nice < kNiceMin || nice > kNiceMax) {
    return refused("nice must be between " + std::to_string(kNiceMin) + " and " +
                   std::to_string(kNiceMax));
  }
  return {};
}

Result<void> check_pin(const PinRecord& f) {
  if (f.header.cookie == 0) return refused("the pin has no cookie");
  if (f.header.type == kUnpin) {
    const bool empty = f.prompt_offset == 0 && f.prompt_count == 0;
    return empty ? Result<void>() : refused("all pins of a user end together, whatever the prompt");
  }
  if (f.prompt_count == 0) return refused("the prompt to be pinned has no tokens");
  return {};
}

Result<void> check_submission(const SubmitRecord& f, uint64_t features) {
  if ((f.header.flags & ~kSubmitKnownFlags) != 0) {
    return Error(ErrorCode::kUnsupported,
                 "the submission has flags that this daemon does not know; "
                 "use a client library and a daemon of the same version");
  }
  if (f.header.reserved != 0 || f.reserved0 != 0 ||
      std::any_of(std::begin(f.reserved), std::end(f.reserved),
                  [](uint64_t w) { return w != 0; })) {
    return Error(ErrorCode::kUnsupported,
                 "the submission uses fields that this daemon does not know; "
                 "use a client library and a daemon of the same version");
  }
  INFERD_TRY(check_features(f, features));
  INFERD_TRY(check_score(f));
  if (f.header.cookie == 0) return refused("the submission has no cookie");
  if (f.prompt_count == 0) return refused("the prompt has no tokens; give at least one");
  if (f.max_tokens == 0) return refused("max_tokens must be at least 1");
  if (f.stop_count > kStopTokensMax) {
    return refused("at most " + std::to_string(kStopTokensMax) + " stop tokens can be given");
  }
  if (f.bias_count > kLogitBiasesMax) {
    return refused("at most " + std::to_string(kLogitBiasesMax) + " logit biases can be given");
  }
  const auto in = [](float x, float low, float high) { return x >= low && x <= high; };  // no NaN
  if (!in(f.temperature, 0, 100)) return refused("temperature must be between 0 and 100");
  if (!in(f.top_p, 0, 1) || f.top_p == 0) return refused("top_p must be above 0 and at most 1");
  if (!in(f.min_p, 0, 1)) return refused("min_p must be between 0 and 1");
  if (!in(f.repetition_penalty, 0, 100) || f.repetition_penalty == 0) {
    return refused("repetition_penalty must be above 0 and at most 100");
  }
  if (!in(f.presence_penalty, -100, 100)) {
    return refused("presence_penalty must be between -100 and 100");
  }
  if (!in(f.frequency_penalty, -100, 100)) {
    return refused("frequency_penalty must be between -100 and 100");
  }
  if (f.top_logprobs > kTopLogprobsMax) {
    return refused("top_logprobs must be at most " + std::to_string(kTopLogprobsMax));
  }
  if (f.top_logprobs > 0 && (f.header.flags & kSubmitLogprobs) == 0) {
    return refused("top_logprobs needs logprobs");
  }
  return {};
}

}  // namespace inferd::ipc
