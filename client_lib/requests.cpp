#include "client_lib/requests.h"

#include <string>

#include "client_lib/c_helpers.h"

namespace inferd::client_lib {
namespace {

constexpr size_t kStopStringsMax = 16;

Result<inferd_prompt> read_prompt(const inferd_prompt* given) {
  inferd_prompt prompt;
  inferd_prompt_init(&prompt);
  INFERD_TRY(read_struct(given, sizeof(prompt), "inferd_prompt", prompt));
  return prompt;
}

// NULL: the defaults.
Result<inferd_sampling> read_sampling(const inferd_sampling* given) {
  inferd_sampling sampling;
  inferd_sampling_init(&sampling);
  if (given == nullptr) return sampling;
  constexpr size_t kFirstBytes = offsetof(inferd_sampling, priority);
  INFERD_TRY(read_struct(given, kFirstBytes, "inferd_sampling", sampling));
  return sampling;
}

// The prompt's ids, whichever way it is given.
Result<std::vector<int32_t>> prompt_ids(const Connection& connection, const inferd_prompt& prompt) {
  const int given =
      (prompt.text != nullptr) + (prompt.chat_json != nullptr) + (prompt.ids != nullptr);
  if (given != 1)
    return invalid("exactly one of text, chat_json and ids must be given as the prompt");
  const ModelText& text = connection.text();
  if (prompt.chat_json != nullptr) {
    return text.render_chat({prompt.chat_json, prompt.chat_json_bytes});
  }
  if (prompt.text != nullptr) {
    if ((prompt.text_flags & ~(INFERD_TOKENIZE_SPECIAL | INFERD_TOKENIZE_BOS)) != 0) {
      return invalid("text_flags has bits that do not exist");
    }
    return text.tokenize({prompt.text, prompt.text_bytes},
                         (prompt.text_flags & INFERD_TOKENIZE_SPECIAL) != 0,
                         (prompt.text_flags & INFERD_TOKENIZE_BOS) != 0);
  }
  std::vector<int32_t> ids(prompt.ids, prompt.ids + prompt.ids_count);
  for (const int32_t id : ids) {
    if (!text.tables().contains(id)) {
      return invalid("token id " + std::to_string(id) + " is outside the vocabulary of " +
                     std::to_string(text.tables().token_count()));
    }
  }
  return ids;
}

Result<void> fill_draft(const inferd_sampling& s, Draft& draft) {
  ipc::SubmitRecord& f = draft.fields;
  f.max_tokens = s.max_tokens;
  f.branch = s.branch;
  f.seed = s.seed;
  f.temperature = s.temperature;
  f.top_p = s.top_p;
  f.min_p = s.min_p;
  f.repetition_penalty = s.repetition_penalty;
  f.presence_penalty = s.presence_penalty;
  f.frequency_penalty = s.frequency_penalty;
  f.top_k = s.top_k;
  f.penalty_last_n = s.penalty_last_n;
  f.top_logprobs = s.top_logprobs;
  if (s.logprobs != 0) draft.flags |= ipc::kSubmitLogprobs;
  if (s.ignore_eos != 0) draft.flags |= ipc::kSubmitIgnoreEos;
  if (s.no_store != 0) draft.flags |= ipc::kSubmitNoStore;
  if (s.priority > INFERD_PRIORITY_IDLE) return invalid("the priority is none of inferd_priority");
  if (s.nice < ipc::kNiceMin || s.nice > ipc::kNiceMax) {
    return invalid("nice must be between " + std::to_string(ipc::kNiceMin) + " and " +
                   std::to_string(ipc::kNiceMax));
  }
  f.priority = static_cast<uint8_t>(s.priority);
  f.nice = static_cast<int8_t>(s.nice);
  f.deadline_ms = s.deadline_ms;
  if (s.logit_bias_count > ipc::kLogitBiasesMax) {
    return invalid("at most " + std::to_string(ipc::kLogitBiasesMax) +
                   " logit biases can be given");
  }
  if (s.logit_bias_count > 0 && s.logit_bias == nullptr) return invalid("logit_bias is NULL");
  draft.bias = {reinterpret_cast<const ipc::LogitBiasEntry*>(s.logit_bias), s.logit_bias_count};
  if (s.stop_count > kStopStringsMax) {
    return invalid("at most " + std::to_string(kStopStringsMax) + " stop strings can be given");
  }
  if (s.stop_count > 0 && s.stop == nullptr) return invalid("stop is NULL");
  for (size_t i = 0; i < s.stop_count; ++i) {
    if (s.stop[i] == nullptr || *s.stop[i] == '\0') return invalid("a stop string is empty");
    draft.stop.emplace_back(s.stop[i]);
  }
  return {};
}

Result<void> check_length(const Connection& connection, size_t tokens) {
  if (tokens == 0) return invalid("the prompt has no tokens; give at least one");
  const uint32_t context = connection.welcome().model.context_tokens;
  if (context > 0 && tokens > context) {
    return Error(ErrorCode::kResourceExhausted,
                 "the prompt has " + std::to_string(tokens) + " tokens; the context holds " +
                     std::to_string(context) + ", prompt and answer together");
  }
  return {};
}

// A prompt of a request, checked for its length.
Result<std::vector<int32_t>> request_ids(const Connection& connection, const inferd_prompt& given) {
  INFERD_ASSIGN(const inferd_prompt prompt, read_prompt(&given));
  INFERD_ASSIGN(std::vector<int32_t> ids, prompt_ids(connection, prompt));
  INFERD_TRY(check_length(connection, ids.size()));
  return ids;
}

// Whether an answer that one daemon began goes on as it would have in the other.
Result<void> check_same_model(const ipc::ModelInfo& before, const ipc::ModelInfo& now) {
  if (before.name != now.name || before.architecture != now.architecture ||
      before.quantization != now.quantization || before.parameters != now.parameters ||
      before.vocabulary != now.vocabulary) {
    return Error(ErrorCode::kVersionMismatch,
                 "the answer was begun by the model " + before.name + " (" + before.quantization +
                     "), and this connection uses " + now.name + " (" + now.quantization +
                     "); connect to a daemon with the first one, or ask again from the beginning");
  }
  if (before.numerics_id != now.numerics_id) {
    return Error(ErrorCode::kVersionMismatch,
                 "the daemon that is there now rounds differently (numerics " + now.numerics_id +
                     ", before " + before.numerics_id +
                     "), so the answer might not go on as it would have; submit its tokens so far "
                     "as ids if that is good enough, or ask again from the beginning");
  }
  return {};
}

// Why a sequence that has so many tokens gets no more; NONE if it does.
inferd_finish reached_limit(const Connection& connection, const ipc::SubmitRecord& fields,
                            size_t delivered, size_t tokens) {
  if (fields.max_tokens != ipc::kUnlimitedTokens && delivered >= fields.max_tokens) {
    return INFERD_FINISH_LENGTH;
  }
  const uint32_t context = connection.welcome().model.context_tokens;
  return context > 0 && tokens >= context ? INFERD_FINISH_CONTEXT : INFERD_FINISH_NONE;
}

}  // namespace

Result<Sequence*> open_sequence(Connection& connection, const inferd_prompt& prompt,
                                const inferd_sampling* sampling) {
  INFERD_ASSIGN(const inferd_sampling known, read_sampling(sampling));
  INFERD_ASSIGN(const std::vector<int32_t> ids, request_ids(connection, prompt));
  Draft draft;
  draft.prompt = ids;
  draft.continues_text = prompt.chat_json == nullptr;
  INFERD_TRY(fill_draft(known, draft));
  return connection.submit(draft);
}

Result<Sequence*> fork_sequence(const Sequence& parent, const inferd_prompt* more,
                                const inferd_sampling* sampling) {
  INFERD_ASSIGN(const inferd_sampling known, read_sampling(sampling));
  Connection& connection = parent.connection();
  Lineage lineage = parent.lineage();
  Draft draft;
  draft.continues_text = lineage.continues_text;
  if (more != nullptr) {
    INFERD_ASSIGN(const inferd_prompt prompt, read_prompt(more));
    if (prompt.chat_json != nullptr) {
      return invalid("a fork goes on with text or ids; open a new sequence for another chat_json");
    }
    INFERD_ASSIGN(const std::vector<int32_t> ids, prompt_ids(connection, prompt));
    lineage.tokens.insert(lineage.tokens.end(), ids.begin(), ids.end());
    // Its answer begins behind what was added, as it would behind any text.
    if (!ids.empty()) lineage.answered = 0;
    if (!ids.empty()) draft.continues_text = true;
  }
  INFERD_TRY(check_length(connection, lineage.tokens.size()));
  draft.prompt = lineage.tokens;
  draft.answered = draft.prompt.last(lineage.answered);
  INFERD_TRY(fill_draft(known, draft));
  draft.fields.parent_cookie = parent.cookie();
  return connection.submit(draft);
}

Result<void> open_samples(Connection& connection, const inferd_prompt& prompt,
                          const inferd_sampling* sampling, std::span<Sequence*> samples) {
  INFERD_ASSIGN(const inferd_sampling known, read_sampling(sampling));
  INFERD_ASSIGN(const std::vector<int32_t> ids, request_ids(connection, prompt));
  Draft draft;
  draft.prompt = ids;
  draft.continues_text = prompt.chat_json == nullptr;
  INFERD_TRY(fill_draft(known, draft));
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto opened = connection.submit(draft);
    if (!opened.ok()) {
      for (size_t k = 0; k < i; ++k) connection.close(samples[k]);
      return opened.error();
    }
    samples[i] = *opened;
    draft.fields.parent_cookie = samples[0]->cookie();
    ++draft.fields.branch;
  }
  return {};
}

Result<Sequence*> score_continuation(Connection& connection, const inferd_prompt& prompt,
                                     const inferd_prompt& continuation,
                                     const inferd_sampling* sampling) {
  INFERD_ASSIGN(inferd_sampling known, read_sampling(sampling));
  INFERD_ASSIGN(const inferd_prompt before, read_prompt(&prompt));
  INFERD_ASSIGN(const inferd_prompt scored, read_prompt(&continuation));
  if (scored.chat_json != nullptr) {
    return invalid("a continuation is text or ids; render chat messages to ids first");
  }
  INFERD_ASSIGN(std::vector<int32_t> tokens, prompt_ids(connection, before));
  INFERD_ASSIGN(const std::vector<int32_t> more, prompt_ids(connection, scored));
  Draft draft;
  draft.fields.score_first = static_cast<uint32_t>(tokens.size());
  tokens.insert(tokens.end(), more.begin(), more.end());
  draft.prompt = tokens;
  draft.continues_text = before.chat_json == nullptr || scored.ids != nullptr;
  // Nothing is drawn, and each token's log probability is what is asked for.
  known.stop_count = 0;
  known.logit_bias_count = 0;
  known.logprobs = 1;
  known.max_tokens = static_cast<uint32_t>(more.size());
  if (!more.empty()) INFERD_TRY(check_length(connection, tokens.size()));
  INFERD_TRY(fill_draft(known, draft));
  draft.flags |= ipc::kSubmitScore;
  return connection.submit(draft);
}

Result<uint32_t> pin_prompt(Connection& connection, const inferd_prompt& prompt) {
  INFERD_ASSIGN(const std::vector<int32_t> ids, request_ids(connection, prompt));
  return connection.pin(ids);
}

Result<Sequence*> resume_sequence(Connection& onto, Sequence& lost) {
  Connection& before = lost.connection();
  INFERD_TRY(check_same_model(before.welcome().model, onto.welcome().model));
  INFERD_ASSIGN(LostRequest request, before.lost_request(lost));
  const Lineage& lineage = request.lineage;
  const size_t delivered = lineage.tokens.size() - request.prompt_tokens();
  Draft draft;
  draft.fields = request.fields;
  draft.flags = request.flags;
  draft.fields.parent_cookie = 0;
  draft.bias = request.bias;
  draft.stop = request.stop;
  draft.continues_text = lineage.continues_text;
  draft.prompt = lineage.tokens;
  const inferd_finish reached =
      reached_limit(onto, request.fields, delivered, lineage.tokens.size());
  if (request.fields.max_tokens != ipc::kUnlimitedTokens) {
    draft.fields.max_tokens -= static_cast<uint32_t>(delivered);
  }
  std::vector<TokenId> scored;
  if (request.scores()) {
    draft.fields.score_first += static_cast<uint32_t>(delivered);
    scored = lineage.tokens;
    const auto left = request.scored.begin() + static_cast<std::ptrdiff_t>(delivered);
    scored.insert(scored.end(), left, request.scored.end());
    draft.prompt = scored;
  }
  draft.answered = std::span(lineage.tokens).last(lineage.answered);
  // Its last token had come, and only the word that it was the last one had not.
  if (reached != INFERD_FINISH_NONE) return onto.add_over(draft, reached);
  return onto.submit(draft);
}

}  // namespace inferd::client_lib
