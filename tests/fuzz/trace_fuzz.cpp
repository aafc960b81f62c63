// Request traces, public formats and our own: any bytes end in a trace within its limits or in a
// sentence.
#include <cstdint>
#include <sstream>
#include <string>

#include "base/check.h"
#include "bench/trace_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace inferd::bench;
  constexpr uint64_t kRequestsMax = 100;
  std::istringstream stream(std::string(reinterpret_cast<const char*>(data), size));
  const auto trace = read_trace(stream, kRequestsMax);
  if (!trace) {
    INFERD_CHECK(!trace.error().message().empty());
    return 0;
  }
  INFERD_CHECK(!trace->requests.empty() && trace->requests.size() <= kRequestsMax);
  INFERD_CHECK(trace->users <= kTraceUsersMax);
  int64_t last_ns = 0;
  for (size_t i = 0; i < trace->requests.size(); ++i) {
    const TraceRequest& request = trace->requests[i];
    INFERD_CHECK(request.arrival_ns >= last_ns);
    last_ns = request.arrival_ns;
    INFERD_CHECK(request.prompt_tokens > 0 && request.prompt_tokens <= kTraceTokensMax);
    INFERD_CHECK(request.output_tokens > 0 && request.output_tokens <= kTraceTokensMax);
    INFERD_CHECK(request.user < trace->users || request.user == 0);
    uint64_t tokens = 0;
    for (const PromptPiece& piece : request.pieces) tokens += piece.tokens;
    INFERD_CHECK(tokens <= request.prompt_tokens);
    if (request.prompt_tokens > 10'000) continue;  // not worth the time
    std::vector<inferd::TokenId> prompt;
    make_prompt(request, i, prompt);
    INFERD_CHECK(prompt.size() == request.prompt_tokens);
  }
  return 0;
}
