// The C interface of sequences and pins: argument checks and conversions around Connection, Sequence
// and requests.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "client_lib/c_helpers.h"
#include "client_lib/include/inferd/inferd.h"
#include "client_lib/requests.h"

using namespace inferd::client_lib;
using inferd::Result;
namespace ipc = inferd::ipc;

static_assert(sizeof(inferd_logit_bias) == sizeof(ipc::LogitBiasEntry));
static_assert(INFERD_UNLIMITED_TOKENS == ipc::kUnlimitedTokens);
static_assert(INFERD_PRIORITY_INTERACTIVE == static_cast<int>(ipc::Priority::kInteractive));
static_assert(INFERD_PRIORITY_BATCH == static_cast<int>(ipc::Priority::kBatch));
static_assert(INFERD_PRIORITY_IDLE == static_cast<int>(ipc::Priority::kIdle));

namespace {

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

}  // namespace

extern "C" {

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
    INFERD_TRY(check_usable(connection));
    if (prompt == nullptr) return invalid("the prompt is NULL");
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
    INFERD_TRY(check_usable(connection));
    if (prompt == nullptr) return invalid("the prompt is NULL");
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
    INFERD_TRY(check_usable(connection));
    if (prompt == nullptr) return invalid("the prompt is NULL");
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
    INFERD_TRY(check_usable(lost));
    INFERD_TRY(check_usable(connection));
    INFERD_ASSIGN(Sequence * opened, resume_sequence(*connection->impl, from_handle(lost)));
    *sequence = to_handle(opened);
    return {};
  });
}

inferd_status inferd_renice(inferd_sequence* sequence, uint32_t priority, int32_t nice,
                            inferd_error** error) noexcept {
  return guarded(error, [&]() -> Result<void> {
    INFERD_TRY(check_usable(sequence));
    if (priority > INFERD_PRIORITY_IDLE) {
      return invalid("the priority is none of inferd_priority");
    }
    Sequence& inner = from_handle(sequence);
    return inner.connection().renice(inner, static_cast<uint8_t>(priority), nice);
  });
}

inferd_status inferd_pin(inferd_connection* connection, const inferd_prompt* prompt,
                         uint32_t* pinned_tokens, inferd_error** error) noexcept {
  return guarded(error, [&]() -> Result<void> {
    if (pinned_tokens != nullptr) *pinned_tokens = 0;
    INFERD_TRY(check_usable(connection));
    if (prompt == nullptr) return invalid("the prompt is NULL");
    INFERD_ASSIGN(const uint32_t tokens, pin_prompt(*connection->impl, *prompt));
    if (pinned_tokens != nullptr) *pinned_tokens = tokens;
    return {};
  });
}

inferd_status inferd_unpin(inferd_connection* connection, uint32_t* unpinned_tokens,
                           inferd_error** error) noexcept {
  return guarded(error, [&]() -> Result<void> {
    if (unpinned_tokens != nullptr) *unpinned_tokens = 0;
    INFERD_TRY(check_usable(connection));
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
    INFERD_TRY(check_usable(parent));
    INFERD_ASSIGN(Sequence * opened, fork_sequence(from_handle(parent), more, sampling));
    *sequence = to_handle(opened);
    return {};
  });
}

void inferd_cancel(inferd_sequence* sequence) noexcept {
  static_cast<void>(guarded(nullptr, [&]() -> Result<void> {
    INFERD_TRY(check_usable(sequence));  // NULL: there is nothing to do
    from_handle(sequence).connection().cancel(from_handle(sequence));
    return {};
  }));
}

void inferd_close(inferd_sequence* sequence) noexcept {
  static_cast<void>(guarded(nullptr, [&]() -> Result<void> {
    INFERD_TRY(check_usable(sequence));  // NULL: there is nothing to do
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
    INFERD_TRY(check_usable(sequence));
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
    INFERD_TRY(check_usable(sequence));
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
