// StepLoop: what clients submit. Everything here was copied out of shared memory and had its form
// checked by ipc; what it means is checked against the model and the limits before anyone relies on it.
#include <algorithm>
#include <string>

#include "base/check.h"
#include "daemon/cache_domains.h"
#include "daemon/step_loop.h"

namespace inferd::daemon {

namespace {

constexpr int64_t kMillisecondNs = 1'000'000;

engine::SamplingParams sampling_params(const ipc::Submission& submission) {
  const ipc::SubmitRecord& fields = submission.fields;
  engine::SamplingParams params;
  params.temperature = fields.temperature;
  params.top_k = fields.top_k;
  params.top_p = fields.top_p;
  params.min_p = fields.min_p;
  params.repetition_penalty = fields.repetition_penalty;
  params.presence_penalty = fields.presence_penalty;
  params.frequency_penalty = fields.frequency_penalty;
  params.penalty_last_n = fields.penalty_last_n;
  params.seed = fields.seed;
  params.branch = fields.branch;
  params.top_logprobs = fields.top_logprobs;
  params.want_logprobs = submission.want_logprobs() ? 1 : 0;
  return params;
}

std::vector<engine::LogitBias> logit_biases(const ipc::Submission& submission) {
  std::vector<engine::LogitBias> biases;
  biases.reserve(submission.logit_bias.size());
  for (const ipc::LogitBiasEntry& entry : submission.logit_bias) {
    biases.push_back({entry.token, entry.bias});
  }
  return biases;
}

static_assert(int(ipc::Priority::kInteractive) == int(scheduler::PriorityClass::kInteractive));
static_assert(int(ipc::Priority::kBatch) == int(scheduler::PriorityClass::kBatch));
static_assert(int(ipc::Priority::kIdle) == int(scheduler::PriorityClass::kIdle));
static_assert(ipc::kNiceMin == scheduler::kNiceMin && ipc::kNiceMax == scheduler::kNiceMax);

Error outside_vocabulary(std::string_view what, TokenId token, uint32_t vocabulary) {
  return Error(ErrorCode::kInvalidArgument,
               std::string(what) + " has token id " + std::to_string(token) +
                   ", but the model's ids go from 0 to " + std::to_string(vocabulary - 1) +
                   "; was it made with another model's tokenizer?");
}

}  // namespace

void StepLoop::on_submit(const ipc::Submission& submission) {
  EngineSession& session = *draining_session_;
  if (session.ended) return;
  const Result<void> admitted = admit(submission);
  touch(session);
  if (admitted) {
    ++counters_.requests;
    ++session.account->account.sums.accepted;
    return;
  }
  on_refused(submission.cookie, admitted.error());
}

void StepLoop::on_refused(uint64_t cookie, const Error& error) {
  EngineSession& session = *draining_session_;
  if (session.ended) return;
  ++counters_.requests_refused;
  ++session.account->account.sums.refused;
  touch(session);
  if (!session.rings().publish_error(cookie, error)) {
    end_session(session, ErrorCode::kProtocol, "the client took back room in its completion ring");
  }
}

Result<void> StepLoop::check_ids(std::string_view what, std::span<const TokenId> ids) const {
  const auto wrong = std::find_if(ids.begin(), ids.end(), [this](TokenId token) {
    return token < 0 || static_cast<uint32_t>(token) >= vocabulary_;
  });
  if (wrong != ids.end()) return outside_vocabulary(what, *wrong, vocabulary_);
  return {};
}

Result<void> StepLoop::check_tokens(const ipc::Submission& submission) const {
  INFERD_TRY(check_ids("the prompt", submission.prompt));
  INFERD_TRY(check_ids("the list of stop tokens", submission.stop_tokens));
  for (const ipc::LogitBiasEntry& entry : submission.logit_bias) {
    INFERD_TRY(check_ids("a logit bias", std::span(&entry.token, 1)));
  }
  return {};
}

Result<void> StepLoop::admit(const ipc::Submission& submission) {
  EngineSession& session = *draining_session_;
  if (draining_) {
    return Error(ErrorCode::kUnavailable,
                 "the daemon is shutting down and takes no new requests; try again when it is back");
  }
  const uint32_t sequences_max = std::min(limits_.sequences_per_session, session.sequences_max());
  if (session.sequences().size() >= sequences_max) {
    return Error(ErrorCode::kResourceExhausted,
                 "this connection has " + std::to_string(session.sequences().size()) +
                     " requests already, and [limits] sequences_per_session allows " +
                     std::to_string(sequences_max) + "; wait for one to end, or connect again");
  }
  if (session.find_cookie(submission.cookie) != nullptr) {
    return Error(ErrorCode::kInvalidArgument, "two running requests have the same cookie");
  }
  if (submission.fields.nice < 0 && !session.facts().privileged) {
    return Error(ErrorCode::kPermissionDenied,
                 "nice below 0 is for root and the user that the daemon runs as; use 0 to 19");
  }
  INFERD_TRY(check_tokens(submission));
  auto sequence = std::make_unique<LiveSequence>();
  sequence->id = SequenceId(next_sequence_);
  sequence->cookie = submission.cookie;
  sequence->session = session.facts().id;
  sequence->priority = static_cast<scheduler::PriorityClass>(submission.fields.priority);
  sequence->sampling = sampling_params(submission);
  sequence->biases = logit_biases(submission);
  if (submission.scores()) {
    const auto scored = submission.prompt.subspan(submission.fields.score_first);
    sequence->scored.assign(scored.begin(), scored.end());
  }
  sequence->token_slots = ipc::slots_for_tokens(1, submission.want_logprobs(),
                                                sequence->sampling.top_logprobs);
  INFERD_TRY(engine::check_sampling(sequence->sampling, sequence->biases, vocabulary_));
  INFERD_TRY(submit_to_scheduler(submission, *sequence));
  ++next_sequence_;
  LiveSequence& live = *sequence;
  live_.emplace(live.id, std::move(sequence));
  session.add_sequence(live);

  const auto info = parts_.scheduler.info(live.id);
  INFERD_CHECK(info.has_value());
  const auto scored = static_cast<uint32_t>(live.scored.size());
  const uint32_t prompt_tokens = scored > 0 ? submission.fields.score_first : info->stats.prompt_tokens;
  const uint32_t tokens_max = scored > 0 ? scored : info->limit - info->stats.prompt_tokens;
  if (!session.rings().publish_accepted(live.cookie, live.id, prompt_tokens, tokens_max)) {
    end_session(session, ErrorCode::kProtocol, "the client took back room in its completion ring");
  }
  return {};
}

Result<void> StepLoop::submit_to_scheduler(const ipc::Submission& submission,
                                           const LiveSequence& sequence) {
  scheduler::Request request;
  request.sequence = sequence.id;
  request.session = sequence.session;
  request.user = draining_session_->facts().user;
  request.weight = draining_session_->facts().weight;
  if (limits_.prefix_cache && !submission.no_store()) {
    const CacheDomain shared = draining_session_->facts().domain;
    request.domain = shared.value != 0 ? shared : CacheDomains::of_user(request.user);
  }
  request.priority = static_cast<scheduler::PriorityClass>(submission.fields.priority);
  request.nice = submission.fields.nice;
  if (submission.fields.deadline_ms != 0) {
    request.deadline_ns =
        parts_.clock.now_ns() + int64_t{submission.fields.deadline_ms} * kMillisecondNs;
  }
  if (submission.fields.parent_cookie != 0) {
    const LiveSequence* parent = draining_session_->find_cookie(submission.fields.parent_cookie);
    if (parent != nullptr) request.parent = parent->id;
  }
  request.prompt = submission.prompt;
  request.max_tokens = submission.fields.max_tokens;
  if (submission.scores()) {
    // The logits before a token are those that score it: the last one need not be computed.
    request.prompt = submission.prompt.first(submission.prompt.size() - 1);
    request.max_tokens = 0;
    request.score = true;
    request.score_first = submission.fields.score_first - 1;
  }
  stop_tokens_.assign(submission.stop_tokens.begin(), submission.stop_tokens.end());
  if (!submission.ignore_eos()) {
    stop_tokens_.insert(stop_tokens_.end(), parts_.end_tokens.begin(), parts_.end_tokens.end());
  }
  request.stop_tokens = stop_tokens_;
  return parts_.scheduler.submit(request);
}

void StepLoop::on_cancel(uint64_t cookie) {
  EngineSession& session = *draining_session_;
  LiveSequence* sequence = session.ended ? nullptr : session.find_cookie(cookie);
  if (sequence == nullptr) return;  // it ended by itself, while the client was asking
  cancel_live(*sequence, ipc::FinishReason::kCancelled, sequence->published);
}

void StepLoop::on_delivered(uint64_t cookie, uint32_t tokens, bool truncate) {
  EngineSession& session = *draining_session_;
  LiveSequence* sequence = session.ended ? nullptr : session.find_cookie(cookie);
  if (sequence == nullptr || !truncate) return;
  // A client that claims more than it was given has had what it was given.
  cancel_live(*sequence, ipc::FinishReason::kStop, std::min(tokens, sequence->published));
}

void StepLoop::on_renice(const ipc::Renice& renice, const Result<void>& checked) {
  EngineSession& session = *draining_session_;
  if (session.ended) return;
  const LiveSequence* sequence = session.find_cookie(renice.cookie);
  Result<void> outcome = checked;
  if (outcome && sequence == nullptr) {
    outcome = Error(ErrorCode::kNotFound, "the sequence has ended: nothing is left to be reniced");
  }
  if (outcome) {
    const SessionFacts& facts = session.facts();
    const auto only = facts.privileged ? std::nullopt : std::optional<UserId>(facts.user);
    const auto changed = renice_sequence(
        sequence->id, {static_cast<scheduler::PriorityClass>(renice.priority), renice.nice}, only);
    if (!changed) outcome = changed.error();
  }
  touch(session);
  if (!session.rings().publish_reniced(renice, outcome)) {
    end_session(session, ErrorCode::kProtocol, "the client took back room in its completion ring");
  }
}

void StepLoop::on_pin(const ipc::Pin& pin, const Result<void>& checked) {
  EngineSession& session = *draining_session_;
  if (session.ended) return;
  const auto pin_or_unpin = [&]() -> Result<uint32_t> {
    INFERD_TRY(checked);
    const UserId user = session.facts().user;
    if (pin.prompt.empty()) return unpin_cache(user);
    INFERD_TRY(check_ids("the prompt", pin.prompt));
    const CacheDomain shared = session.facts().domain;
    return pin_cache(shared.value != 0 ? shared : CacheDomains::of_user(user), user, pin.prompt);
  };
  Result<uint32_t> tokens = pin_or_unpin();
  if (tokens) *tokens *= kPageTokens;
  touch(session);
  if (!session.rings().publish_pinned(pin.cookie, tokens)) {
    end_session(session, ErrorCode::kProtocol, "the client took back room in its completion ring");
  }
}

}  // namespace inferd::daemon
