// Limits, and refusing at once what can never fit, with the figure that it exceeds.
// Owner: scheduler. Pure functions, any thread. Must not know who else is running.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/ids.h"
#include "base/result.h"
#include "memory/paged_memory.h"
#include "scheduler/quotas.h"
#include "scheduler/request.h"

namespace inferd::scheduler {

struct SchedulerConfig {
  uint32_t step_tokens = 512;  // computed in one step; the engine's step_tokens_max at most
  uint32_t step_logits = 64;   // logits rows in one step; the engine's step_logits_max at most
  // Longest sequence that the model allows, prompt and answer together.
  uint32_t context_tokens = 0;
  uint32_t queue_max = 256;  // requests waiting, all sessions together
  // Requests of one session, waiting and running; 0: no limit but queue_max.
  uint32_t session_requests_max = 0;
  Quota user_quota;     // of each user, all sessions together
  Quota session_quota;  // of each session
  // Of the service, in percent, what is kept for a class that wants it, whatever earlier ones want.
  std::array<uint32_t, kPriorityClasses> share_percent{0, 10, 2};
};

// What decides how long a sequence may be here.
struct SequenceLimit {
  uint32_t tokens = 0;   // prompt and answer together
  bool by_pool = false;  // the pool is what limits it, not the model's context
};
SequenceLimit sequence_limit(const SchedulerConfig& config, const memory::PagedMemory& memory);

// Errors: kInvalidArgument, naming the key to change: every sequence that the memory may hold must
// be able to decode in one step: step_tokens and step_logits are at least its sequences_max.
Result<void> check_config(const SchedulerConfig& config, const memory::PagedMemory& memory);

// Whether the request can ever run here. Errors: kInvalidArgument (empty prompt, too many stop
// tokens), kResourceExhausted with the request's figure, the limit's, and what to do.
Result<void> check_request(const Request& request, const SequenceLimit& limit);

// "4,113".
std::string format_count(uint64_t count);

}  // namespace inferd::scheduler
