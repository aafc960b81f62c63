// The C interface: argument checks and conversions around Connection and Sequence. Nothing throws
// out of here: running out of memory becomes INFERD_RESOURCE_EXHAUSTED.
#include "client_lib/include/inferd/inferd.h"

#include <errno.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "client_lib/connection.h"

using inferd::Error;
using inferd::ErrorCode;
using inferd::Result;
using inferd::client_lib::Connection;
using inferd::client_lib::ConnectOptions;
using inferd::client_lib::Draft;
using inferd::client_lib::Progress;
using inferd::client_lib::Sequence;
namespace ipc = inferd::ipc;

struct inferd_error {
  inferd_status status;
  std::string message;
};

struct inferd_connection {
  std::unique_ptr<Connection> impl;
};

static_assert(INFERD_VERSION_MISMATCH == static_cast<int>(ErrorCode::kVersionMismatch));
static_assert(INFERD_INTERNAL == static_cast<int>(ErrorCode::kInternal));
static_assert(sizeof(inferd_logit_bias) == sizeof(ipc::LogitBiasEntry));
static_assert(INFERD_UNLIMITED_TOKENS == ipc::kUnlimitedTokens);
static_assert(INFERD_PRIORITY_INTERACTIVE == static_cast<int>(ipc::Priority::kInteractive));
static_assert(INFERD_PRIORITY_BATCH == static_cast<int>(ipc::Priority::kBatch));
static_assert(INFERD_PRIORITY_IDLE == static_cast<int>(ipc::Priority::kIdle));

namespace {

constexpr size_t kStopStringsMax = 16;
constexpr uint32_t kTimeoutDefaultMs = 5000;

inferd_sequence* to_handle(Sequence* sequence) {
  return reinterpret_cast<inferd_sequence*>(sequence);
}
Sequence& from_handle(inferd_sequence* handle) { return *reinterpret_cast<Sequence*>(handle); }
const Sequence& from_handle(const inferd_sequence* handle) {
  return *reinterpret_cast<const Sequence*>(handle);
}

// What is handed out when there is no memory left even for an error.
inferd_error* out_of_memory() {
  static inferd_error error = {INFERD_RESOURCE_EXHAUSTED, "out of memory"};
  return &error;
}

inferd_status report(const Error& error, inferd_error** out) noexcept {
  const auto status = static_cast<inferd_status>(error.code());
  if (out == nullptr) return status;
  try {
    *out = new inferd_error{status, error.message()};
  } catch (...) {
    *out = out_of_memory();
  }
  return status;
}

// Runs `body`, which returns Result<void>, and turns what comes out into a status.
template <typename Body>
inferd_status guarded(inferd_error** out, Body&& body) noexcept {
  if (out != nullptr) *out = nullptr;
  try {
    const Result<void> result = body();
    return result.ok() ? INFERD_OK : report(result.error(), out);
  } catch (const std::bad_alloc&) {
    if (out != nullptr) *out = out_of_memory();
    return INFERD_RESOURCE_EXHAUSTED;
  } catch (const std::exception& e) {
    return report(Error(ErrorCode::kInternal, std::string("unexpected: ") + e.what()), out);
  }
}

Error invalid(const std::string& sentence) { return Error(ErrorCode::kInvalidArgument, sentence); }

// Reads a structure that the caller filled into `known`, which has the defaults: made for this
// interface, for an earlier one (at least `first_bytes` long), or for a later one whose further
// fields are all zero.
template <typename T>
Result<void> read_struct(const T* structure, size_t first_bytes, const char* name, T& known) {
  size_t bytes;
  std::memcpy(&bytes, structure, sizeof(bytes));
  // No structure will ever be this long: an uninitialised one is told apart from a later one.
  constexpr size_t kLongest = 4096;
  if (bytes < first_bytes || bytes > kLongest) {
    return invalid(std::string(name) + ".struct_bytes is not set; call " + name + "_init() first");
  }
  std::memcpy(&known, structure, std::min(bytes, sizeof(T)));
  const auto* at = reinterpret_cast<const unsigned char*>(structure);
  for (size_t i = sizeof(T); i < bytes; ++i) {
    if (at[i] != 0) {
      return Error(ErrorCode::kUnsupported, std::string(name) +
                                                " uses fields that this version of libinferd does "
                                                "not know; update the library");
    }
  }
  return {};
}

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

// What `init` puts into a structure of any size: nothing but its size.
template <typename T>
void prepare(T* structure, size_t struct_bytes) {
  std::memset(structure, 0, struct_bytes);
  std::memcpy(structure, &struct_bytes, sizeof(struct_bytes));
}

// The same for a structure that the library fills.
Result<void> check_output(const void* structure, size_t known_bytes, const char* name) {
  if (structure == nullptr) return invalid(std::string("the ") + name + " to fill is NULL");
  size_t bytes;
  std::memcpy(&bytes, structure, sizeof(bytes));
  if (bytes < known_bytes) return invalid(std::string(name) + ".struct_bytes is not set");
  return {};
}

inferd_usage usage_of(const Progress& progress, uint32_t delivered_tokens) {
  constexpr double kNsPerMs = 1e6;
  inferd_usage usage = {};
  usage.prompt_tokens = progress.prompt_tokens;
  usage.cached_tokens = progress.cached_tokens;
  usage.completion_tokens = delivered_tokens;
  if (progress.first_ns != 0) {
    usage.ttft_ms = static_cast<double>(progress.first_ns - progress.submitted_ns) / kNsPerMs;
  }
  if (progress.arrived_tokens >= 2) {
    usage.itl_ms = static_cast<double>(progress.last_ns - progress.first_ns) / kNsPerMs /
                   (progress.arrived_tokens - 1);
  }
  usage.queue_ms = static_cast<double>(progress.queue_ns) / kNsPerMs;
  usage.computed_tokens = progress.computed_tokens;
  usage.preemptions = progress.preemptions;
  return usage;
}

template <typename T>
T* copy_out(const T* from, size_t count) {
  auto* copy = static_cast<T*>(std::malloc((count == 0 ? 1 : count) * sizeof(T)));
  if (copy == nullptr) throw std::bad_alloc();
  if (count > 0) std::memcpy(copy, from, count * sizeof(T));
  return copy;
}

Result<void> hand_out_ids(const std::vector<int32_t>& found, int32_t** ids, size_t* count) {
  *ids = copy_out(found.data(), found.size());
  *count = found.size();
  return {};
}

// The prompt's ids, whichever way it is given.
Result<std::vector<int32_t>> prompt_ids(const Connection& connection, const inferd_prompt& prompt) {
  const int given =
      (prompt.text != nullptr) + (prompt.chat_json != nullptr) + (prompt.ids != nullptr);
  if (given != 1)
    return invalid("exactly one of text, chat_json and ids must be given as the prompt");
  const inferd::client_lib::ModelText& text = connection.text();
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

Result<Sequence*> open_sequence(Connection& connection, const inferd_prompt& prompt,
                                const inferd_sampling& sampling) {
  INFERD_ASSIGN(const std::vector<int32_t> ids, prompt_ids(connection, prompt));
  INFERD_TRY(check_length(connection, ids.size()));
  Draft draft;
  draft.prompt = ids;
  draft.continues_text = prompt.chat_json == nullptr;
  INFERD_TRY(fill_draft(sampling, draft));
  return connection.submit(draft);
}

Result<Sequence*> fork_sequence(const Sequence& parent, const inferd_prompt* more,
                                const inferd_sampling& sampling) {
  Connection& connection = parent.connection();
  inferd::client_lib::Lineage lineage = parent.lineage();
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
  INFERD_TRY(fill_draft(sampling, draft));
  draft.fields.parent_cookie = parent.cookie();
  return connection.submit(draft);
}

}  // namespace

extern "C" {

const char* inferd_version(void) noexcept { return INFERD_VERSION; }

inferd_status inferd_error_status(const inferd_error* error) noexcept {
  return error == nullptr ? INFERD_OK : error->status;
}
const char* inferd_error_message(const inferd_error* error) noexcept {
  return error == nullptr ? "" : error->message.c_str();
}
void inferd_error_free(inferd_error* error) noexcept {
  if (error != out_of_memory()) delete error;
}
const char* inferd_status_name(inferd_status status) noexcept {
  return inferd::error_code_name(static_cast<ErrorCode>(status)).data();
}

void inferd_connect_options_init_sized(inferd_connect_options* options, size_t bytes) noexcept {
  prepare(options, bytes);
}

inferd_status inferd_connect(const inferd_connect_options* options, inferd_connection** connection,
                             inferd_error** error) noexcept {
  return guarded(error, [&]() -> Result<void> {
    if (connection == nullptr) return invalid("the connection to fill is NULL");
    *connection = nullptr;
    inferd_connect_options chosen;
    inferd_connect_options_init(&chosen);
    if (options != nullptr) {
      constexpr size_t kFirstBytes = offsetof(inferd_connect_options, cache_domain);
      INFERD_TRY(read_struct(options, kFirstBytes, "inferd_connect_options", chosen));
    }
    ConnectOptions inner;
    inner.socket_path = chosen.socket_path;
    if (chosen.model != nullptr) inner.model = chosen.model;
    inner.client_name =
        chosen.client_name != nullptr ? chosen.client_name : program_invocation_short_name;
    const uint32_t timeout_ms = chosen.timeout_ms == 0 ? kTimeoutDefaultMs : chosen.timeout_ms;
    inner.timeout_ms = static_cast<int>(std::min<uint32_t>(timeout_ms, INT32_MAX));
    inner.spin_us = chosen.spin_us;
    if (chosen.cache_domain != nullptr) inner.cache_domain = chosen.cache_domain;
    INFERD_ASSIGN(auto opened, Connection::open(inner));
    *connection = new inferd_connection{std::move(opened)};
    return {};
  });
}

void inferd_disconnect(inferd_connection* connection) noexcept { delete connection; }

inferd_status inferd_get_model_info(const inferd_connection* connection, inferd_model_info* info,
                                    inferd_error** error) noexcept {
  return guarded(error, [&]() -> Result<void> {
    INFERD_TRY(check_output(info, sizeof(*info), "inferd_model_info"));
    const ipc::ModelInfo& model = connection->impl->welcome().model;
    info->name = model.name.c_str();
    info->architecture = model.architecture.c_str();
    info->quantization = model.quantization.c_str();
    info->numerics_id = model.numerics_id.c_str();
    info->parameters = model.parameters;
    info->vocabulary = model.vocabulary;
    info->context_tokens = model.context_tokens;
    info->bos_token = model.bos_token;
    info->eos_token = model.eos_token;
    info->has_chat_template = connection->impl->text().has_chat_template() ? 1 : 0;
    return {};
  });
}

int inferd_connection_fd(const inferd_connection* connection) noexcept {
  return connection->impl->fd();
}
void inferd_connection_clear(inferd_connection* connection) noexcept { connection->impl->clear(); }

inferd_status inferd_tokenize(const inferd_connection* connection, const char* text,
                              size_t text_bytes, uint32_t flags, int32_t** ids, size_t* count,
                              inferd_error** error) noexcept {
  return guarded(error, [&]() -> Result<void> {
    if (text == nullptr && text_bytes > 0) return invalid("text is NULL");
    if ((flags & ~(INFERD_TOKENIZE_SPECIAL | INFERD_TOKENIZE_BOS)) != 0) {
      return invalid("flags has bits that do not exist");
    }
    INFERD_ASSIGN(const auto found, connection->impl->text().tokenize(
                                        {text, text_bytes}, (flags & INFERD_TOKENIZE_SPECIAL) != 0,
                                        (flags & INFERD_TOKENIZE_BOS) != 0));
    return hand_out_ids(found, ids, count);
  });
}

inferd_status inferd_detokenize(const inferd_connection* connection, const int32_t* ids,
                                size_t count, int special, char** text, size_t* text_bytes,
                                inferd_error** error) noexcept {
  return guarded(error, [&]() -> Result<void> {
    if (ids == nullptr && count > 0) return invalid("ids is NULL");
    const std::string found = connection->impl->text().detokenize({ids, count}, special != 0);
    *text = copy_out(found.c_str(), found.size() + 1);
    if (text_bytes != nullptr) *text_bytes = found.size();
    return {};
  });
}

inferd_status inferd_render_chat(const inferd_connection* connection, const char* chat_json,
                                 size_t chat_json_bytes, int32_t** ids, size_t* count,
                                 inferd_error** error) noexcept {
  return guarded(error, [&]() -> Result<void> {
    if (chat_json == nullptr) return invalid("chat_json is NULL");
    INFERD_ASSIGN(const auto found,
                  connection->impl->text().render_chat({chat_json, chat_json_bytes}));
    return hand_out_ids(found, ids, count);
  });
}

void inferd_free(void* memory) noexcept { std::free(memory); }

void inferd_prompt_init_sized(inferd_prompt* prompt, size_t bytes) noexcept {
  prepare(prompt, bytes);
}

void inferd_sampling_init_sized(inferd_sampling* sampling, size_t bytes) noexcept {
  prepare(sampling, bytes);
  sampling->top_p = 1;
  sampling->repetition_penalty = 1;
  sampling->penalty_last_n = 64;
  sampling->max_tokens = INFERD_UNLIMITED_TOKENS;
}

inferd_status inferd_open(inferd_connection* connection, const inferd_prompt* prompt,
                          const inferd_sampling* sampling, inferd_sequence** sequence,
                          inferd_error** error) noexcept {
  return guarded(error, [&]() -> Result<void> {
    if (sequence == nullptr) return invalid("the sequence to fill is NULL");
    *sequence = nullptr;
    if (prompt == nullptr) return invalid("the prompt is NULL");
    INFERD_ASSIGN(const inferd_prompt known_prompt, read_prompt(prompt));
    INFERD_ASSIGN(const inferd_sampling known, read_sampling(sampling));
    INFERD_ASSIGN(Sequence * opened, open_sequence(*connection->impl, known_prompt, known));
    *sequence = to_handle(opened);
    return {};
  });
}

inferd_status inferd_sequence_fork(const inferd_sequence* parent, const inferd_prompt* more,
                                   const inferd_sampling* sampling, inferd_sequence** sequence,
                                   inferd_error** error) noexcept {
  return guarded(error, [&]() -> Result<void> {
    if (sequence == nullptr) return invalid("the sequence to fill is NULL");
    *sequence = nullptr;
    if (parent == nullptr) return invalid("the sequence to fork is NULL");
    INFERD_ASSIGN(const inferd_sampling known, read_sampling(sampling));
    INFERD_ASSIGN(Sequence * opened, fork_sequence(from_handle(parent), more, known));
    *sequence = to_handle(opened);
    return {};
  });
}

void inferd_cancel(inferd_sequence* sequence) noexcept {
  static_cast<void>(guarded(nullptr, [&]() -> Result<void> {
    if (sequence != nullptr) from_handle(sequence).connection().cancel(from_handle(sequence));
    return {};
  }));
}

void inferd_close(inferd_sequence* sequence) noexcept {
  static_cast<void>(guarded(nullptr, [&]() -> Result<void> {
    if (sequence != nullptr) from_handle(sequence).connection().close(&from_handle(sequence));
    return {};
  }));
}

const char* inferd_finish_name(inferd_finish finish) noexcept {
  switch (finish) {
    case INFERD_FINISH_NONE:
      break;
    case INFERD_FINISH_STOP:
      return "stop";
    case INFERD_FINISH_LENGTH:
      return "length";
    case INFERD_FINISH_CONTEXT:
      return "context";
    case INFERD_FINISH_CANCELLED:
      return "cancelled";
    case INFERD_FINISH_ERROR:
      return "error";
  }
  return "";
}

void inferd_event_init_sized(inferd_event* event, size_t bytes) noexcept { prepare(event, bytes); }

inferd_status inferd_next(inferd_sequence* sequence, int timeout_ms, inferd_event* event,
                          inferd_error** error) noexcept {
  inferd_status quiet = INFERD_OK;
  const inferd_status status = guarded(error, [&]() -> Result<void> {
    INFERD_TRY(check_output(event, sizeof(*event), "inferd_event"));
    const size_t struct_bytes = event->struct_bytes;
    inferd_event found = {};
    found.struct_bytes = struct_bytes;
    found.text = "";
    auto outcome = from_handle(sequence).next(timeout_ms, found);
    *event = found;
    if (!outcome.ok()) return outcome.error();
    if (*outcome == Sequence::Status::kTimedOut) quiet = INFERD_TIMED_OUT;
    if (*outcome == Sequence::Status::kOver) quiet = INFERD_NOT_FOUND;
    return {};
  });
  return status == INFERD_OK ? quiet : status;
}

inferd_status inferd_get_usage(const inferd_sequence* sequence, inferd_usage* usage,
                               inferd_error** error) noexcept {
  return guarded(error, [&]() -> Result<void> {
    INFERD_TRY(check_output(usage, offsetof(inferd_usage, queue_ms), "inferd_usage"));
    const Sequence& inner = from_handle(sequence);
    const inferd_usage known =
        usage_of(inner.connection().progress(inner), inner.delivered_tokens());
    size_t struct_bytes;
    std::memcpy(&struct_bytes, usage, sizeof(struct_bytes));
    const size_t fields_end = std::min(struct_bytes, sizeof(known));
    std::memcpy(reinterpret_cast<char*>(usage) + sizeof(struct_bytes),
                reinterpret_cast<const char*>(&known) + sizeof(struct_bytes),
                fields_end - sizeof(struct_bytes));
    return {};
  });
}

}  // extern "C"
