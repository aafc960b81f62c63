// StepLoop: requests to score a given text. Its tokens are told like generated ones, each with the log
// probability that it had; sampling has no part in it.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "daemon/step_loop.h"

namespace inferd::daemon {

// Before the commit: the rows are the engine's until the next step. The scheduler asks for each
// position once, in order, so that a token is told once.
//   rows  [item.logits_count, vocabulary] f32
void StepLoop::score_item(const scheduler::BatchItem& item, std::span<const float> rows,
                          LiveSequence& sequence) {
  EngineSession& session = *find_session(sequence.session);
  const auto info = parts_.scheduler.info(sequence.id);
  if (session.ended || !info) return;
  const auto end = item.position_first + static_cast<uint32_t>(item.tokens.size());
  const auto scored = static_cast<uint32_t>(sequence.scored.size());
  const uint32_t first = info->stats.prompt_tokens - scored;  // the position that scores scored[0]
  INFERD_CHECK(end - item.logits_count == first + sequence.published);
  INFERD_CHECK(item.logits_count <= scored - sequence.published);
  const int64_t now_ns = parts_.clock.now_ns();
  if (sequence.published == 0) note_token_time(session, sequence, info->stats.submitted_ns, now_ns);
  const size_t record_floats = size_t{ipc::kTokensPerRecordMax} * vocabulary_;
  while (!rows.empty()) {
    const auto part = rows.first(std::min(rows.size(), record_floats));
    if (!publish_scores(session, sequence, part, info->stats.cached_tokens)) return;
    rows = rows.subspan(part.size());
  }
  sequence.last_token_ns = now_ns;
}

// One record's worth of them. False if that ended the session.
bool StepLoop::publish_scores(EngineSession& session, LiveSequence& sequence,
                              std::span<const float> rows, uint32_t cached_tokens) {
  const size_t count = rows.size() / vocabulary_;
  const uint32_t top_count = sequence.sampling.top_logprobs;
  std::array<float, ipc::kTokensPerRecordMax> logprobs;
  std::array<engine::TokenLogprob, engine::kTopLogprobsMax> top;
  ipc::TokensEvent tokens;
  tokens.first_index = sequence.published;
  tokens.cached_tokens = cached_tokens;
  tokens.ids = std::span(sequence.scored).subspan(sequence.published, count);
  for (size_t i = 0; i < count; ++i) {
    const auto result = sampler_.score(rows.subspan(i * vocabulary_, vocabulary_), tokens.ids[i],
                                       top_count, top);
    logprobs[i] = result.logprob;
    for (uint32_t k = 0; k < top_count; ++k) {
      top_record_[i * top_count + k] = k < result.top_count
                                           ? ipc::LogprobEntry{top[k].token, top[k].logprob}
                                           : ipc::LogprobEntry{kNoToken, 0};
    }
  }
  tokens.logprobs = std::span(logprobs).first(count);
  tokens.top = std::span(top_record_).first(count * top_count);
  tokens.top_count = top_count;
  if (!session.rings().publish_tokens(sequence.cookie, tokens)) {
    end_session(session, ErrorCode::kProtocol, "the client took back room in its completion ring");
    return false;
  }
  touch(session);
  sequence.published += static_cast<uint32_t>(count);
  counters_.tokens_published += count;
  return true;
}

}  // namespace inferd::daemon
