// A request trace: who asked when, with how long a prompt, and for how long an answer.
// Owner: bench. Value types, any thread. Must not know file formats, schedulers or time models.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "scheduler/request.h"

namespace inferd::bench {

// Limits of one request and of a whole trace; a reader refuses what is beyond them.
inline constexpr uint32_t kTraceTokensMax = 10'000'000;
inline constexpr uint32_t kTraceUsersMax = 1000;

// A piece of a prompt that others may have too: equal ids stand for equal tokens, whatever the
// length.
struct PromptPiece {
  uint64_t id = 0;
  uint32_t tokens = 0;
  bool operator==(const PromptPiece&) const = default;
};

struct TraceRequest {
  int64_t arrival_ns = 0;  // since the first request of the trace
  uint32_t prompt_tokens = 0;
  uint32_t output_tokens = 0;
  uint32_t user = 0;  // below Trace::users; 0 where the trace names none
  scheduler::PriorityClass priority = scheduler::PriorityClass::kInteractive;
  // How the prompt begins; at most prompt_tokens together. What follows is this request's alone.
  std::vector<PromptPiece> pieces{};
  // Piece that the answer is, for prompts that quote it; 0: nobody does.
  uint64_t answer_id = 0;
};

struct Trace {
  std::string format;                  // "Azure LLM inference trace"
  std::vector<TraceRequest> requests;  // by arrival
  uint32_t users = 0;                  // 0: the trace names none
  uint64_t skipped = 0;                // rows without tokens of a prompt or of an answer
  bool cut = false;                    // there were more requests than asked for
};

// The tokens of a prompt, [prompt_tokens]; `number` is that of the request in its trace, and all
// that its own tokens follow from.
void make_prompt(const TraceRequest& request, uint64_t number, std::vector<TokenId>& tokens);
// The token of an answer at this place.
TokenId answer_token(const TraceRequest& request, uint64_t number, uint32_t place);

}  // namespace inferd::bench
