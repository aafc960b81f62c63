// The C interface: argument checks and conversions around Connection, Sequence and requests.
#include "client_lib/include/inferd/inferd.h"

#include <errno.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "client_lib/c_helpers.h"
#include "client_lib/requests.h"

using namespace inferd::client_lib;
using inferd::Error;
using inferd::ErrorCode;
using inferd::Result;
namespace ipc = inferd::ipc;

static_assert(INFERD_VERSION_MISMATCH == static_cast<int>(ErrorCode::kVersionMismatch));
static_assert(INFERD_INTERNAL == static_cast<int>(ErrorCode::kInternal));
static_assert(sizeof(inferd_logit_bias) == sizeof(ipc::LogitBiasEntry));
static_assert(INFERD_UNLIMITED_TOKENS == ipc::kUnlimitedTokens);
static_assert(INFERD_PRIORITY_INTERACTIVE == static_cast<int>(ipc::Priority::kInteractive));
static_assert(INFERD_PRIORITY_BATCH == static_cast<int>(ipc::Priority::kBatch));
static_assert(INFERD_PRIORITY_IDLE == static_cast<int>(ipc::Priority::kIdle));

namespace {

constexpr uint32_t kTimeoutDefaultMs = 5000;

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

Result<void> hand_out_ids(const std::vector<int32_t>& found, int32_t** ids, size_t* count) {
  *ids = copy_out(found.data(), found.size());
  *count = found.size();
  return {};
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
    if (chosen.socket_path != nullptr) inner.socket_path = chosen.socket_path;
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

inferd_status inferd_reconnect(const inferd_connection* lost, uint32_t timeout_ms,
                               inferd_connection** connection, inferd_error** error) noexcept {
  return guarded(error, [&]() -> Result<void> {
    if (connection == nullptr) return invalid("the connection to fill is NULL");
    *connection = nullptr;
    if (lost == nullptr) return invalid("the connection to open again is NULL");
    INFERD_TRY(lost->impl->check_process());
    const int patience_ms = static_cast<int>(std::min<uint32_t>(timeout_ms, INT32_MAX));
    INFERD_ASSIGN(auto opened, lost->impl->open_again(patience_ms));
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
  return connection->impl->check_process().ok() ? connection->impl->fd() : -1;
}
void inferd_connection_clear(inferd_connection* connection) noexcept {
  if (connection->impl->check_process().ok()) connection->impl->clear();
}

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
    INFERD_TRY(connection->impl->check_process());
    INFERD_ASSIGN(Sequence * opened, open_sequence(*connection->impl, *prompt, sampling));
    *sequence = to_handle(opened);
    return {};
  });
}

inferd_status inferd_open_samples(inferd_connection* connection, const inferd_prompt* prompt,
                                  const inferd_sampling* sampling, size_t count,
                                  inferd_sequence** sequences, inferd_error** error) noexcept {
  return guarded(error, [&]() -> Result<void> {
    if (sequences == nullptr) return invalid("the sequences to fill are NULL");
    std::fill_n(sequences, count, nullptr);
    if (prompt == nullptr) return invalid("the prompt is NULL");
    INFERD_TRY(connection->impl->check_process());
    if (count == 0) return invalid("ask for at least one sample");
    std::vector<Sequence*> samples(count);
    INFERD_TRY(open_samples(*connection->impl, *prompt, sampling, samples));
    std::transform(samples.begin(), samples.end(), sequences, to_handle);
    return {};
  });
}

inferd_status inferd_score(inferd_connection* connection, const inferd_prompt* prompt,
                           const inferd_prompt* continuation, const inferd_sampling* sampling,
                           inferd_sequence** sequence, inferd_error** error) noexcept {
  return guarded(error, [&]() -> Result<void> {
    if (sequence == nullptr) return invalid("the sequence to fill is NULL");
    *sequence = nullptr;
    if (prompt == nullptr) return invalid("the prompt is NULL");
    INFERD_TRY(connection->impl->check_process());
    if (continuation == nullptr) return invalid("the continuation is NULL");
    INFERD_ASSIGN(Sequence * opened,
                  score_continuation(*connection->impl, *prompt, *continuation, sampling));
    *sequence = to_handle(opened);
    return {};
  });
}

inferd_status inferd_resume(inferd_connection* connection, inferd_sequence* lost,
                            inferd_sequence** sequence, inferd_error** error) noexcept {
  return guarded(error, [&]() -> Result<void> {
    if (sequence == nullptr) return invalid("the sequence to fill is NULL");
    *sequence = nullptr;
    if (lost == nullptr) return invalid("the sequence to resume is NULL");
    INFERD_TRY(from_handle(lost).connection().check_process());
    INFERD_TRY(connection->impl->check_process());
    INFERD_ASSIGN(Sequence * opened, resume_sequence(*connection->impl, from_handle(lost)));
    *sequence = to_handle(opened);
    return {};
  });
}

inferd_status inferd_renice(inferd_sequence* sequence, uint32_t priority, int32_t nice,
                            inferd_error** error) noexcept {
  return guarded(error, [&]() -> Result<void> {
    if (sequence == nullptr) return invalid("the sequence to renice is NULL");
    if (priority > INFERD_PRIORITY_IDLE) {
      return invalid("the priority is none of inferd_priority");
    }
    Sequence& inner = from_handle(sequence);
    INFERD_TRY(inner.connection().check_process());
    return inner.connection().renice(inner, static_cast<uint8_t>(priority), nice);
  });
}

inferd_status inferd_pin(inferd_connection* connection, const inferd_prompt* prompt,
                         uint32_t* pinned_tokens, inferd_error** error) noexcept {
  return guarded(error, [&]() -> Result<void> {
    if (pinned_tokens != nullptr) *pinned_tokens = 0;
    if (prompt == nullptr) return invalid("the prompt is NULL");
    INFERD_TRY(connection->impl->check_process());
    INFERD_ASSIGN(const uint32_t tokens, pin_prompt(*connection->impl, *prompt));
    if (pinned_tokens != nullptr) *pinned_tokens = tokens;
    return {};
  });
}

inferd_status inferd_unpin(inferd_connection* connection, uint32_t* unpinned_tokens,
                           inferd_error** error) noexcept {
  return guarded(error, [&]() -> Result<void> {
    if (unpinned_tokens != nullptr) *unpinned_tokens = 0;
    INFERD_TRY(connection->impl->check_process());
    INFERD_ASSIGN(const uint32_t tokens, connection->impl->unpin());
    if (unpinned_tokens != nullptr) *unpinned_tokens = tokens;
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
    INFERD_TRY(from_handle(parent).connection().check_process());
    INFERD_ASSIGN(Sequence * opened, fork_sequence(from_handle(parent), more, sampling));
    *sequence = to_handle(opened);
    return {};
  });
}

void inferd_cancel(inferd_sequence* sequence) noexcept {
  static_cast<void>(guarded(nullptr, [&]() -> Result<void> {
    if (sequence == nullptr) return {};
    INFERD_TRY(from_handle(sequence).connection().check_process());
    from_handle(sequence).connection().cancel(from_handle(sequence));
    return {};
  }));
}

void inferd_close(inferd_sequence* sequence) noexcept {
  static_cast<void>(guarded(nullptr, [&]() -> Result<void> {
    if (sequence == nullptr) return {};
    INFERD_TRY(from_handle(sequence).connection().check_process());
    from_handle(sequence).connection().close(&from_handle(sequence));
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
    *event = found;
    INFERD_TRY(from_handle(sequence).connection().check_process());
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
    INFERD_TRY(inner.connection().check_process());
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
