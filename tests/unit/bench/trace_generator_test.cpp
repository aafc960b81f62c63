#include "bench/trace_generator.h"

#include <gtest/gtest.h>

#include <map>

namespace inferd::bench {
namespace {

GeneratorOptions options_of(TraceKind kind) {
  return {.kind = kind, .requests = 4000, .rate_per_s = 5, .users = 4, .seed = 3};
}

TEST(TraceGenerator, EqualSeedsGiveEqualTraces) {
  const Trace a = generate_trace(options_of(TraceKind::kMixed));
  const Trace b = generate_trace(options_of(TraceKind::kMixed));
  GeneratorOptions other = options_of(TraceKind::kMixed);
  other.seed = 4;
  const Trace c = generate_trace(other);
  ASSERT_EQ(a.requests.size(), 4000u);
  bool differs = false;
  for (size_t i = 0; i < a.requests.size(); ++i) {
    EXPECT_EQ(a.requests[i].arrival_ns, b.requests[i].arrival_ns);
    EXPECT_EQ(a.requests[i].prompt_tokens, b.requests[i].prompt_tokens);
    EXPECT_EQ(a.requests[i].pieces, b.requests[i].pieces);
    differs = differs || a.requests[i].prompt_tokens != c.requests[i].prompt_tokens;
  }
  EXPECT_TRUE(differs);
}

TEST(TraceGenerator, KeepsRateAndMeans) {
  const Trace trace = generate_trace(options_of(TraceKind::kChat));
  double prompt = 0, output = 0;
  for (const TraceRequest& request : trace.requests) {
    prompt += request.prompt_tokens;
    output += request.output_tokens;
    EXPECT_GE(request.prompt_tokens, 1u);
    EXPECT_GE(request.output_tokens, 1u);
  }
  EXPECT_NEAR(prompt / 4000, 161, 12);
  EXPECT_NEAR(output / 4000, 337, 25);
  EXPECT_NEAR(static_cast<double>(trace.requests.back().arrival_ns) * 1e-9, 800, 60);
}

TEST(TraceGenerator, StepsOfAnAgentGoOnFromTheirLastOne) {
  GeneratorOptions options = options_of(TraceKind::kAgents);
  options.requests = 600;
  const Trace trace = generate_trace(options);
  std::map<uint32_t, const TraceRequest*> last;
  uint32_t continued = 0;
  for (size_t i = 0; i < trace.requests.size(); ++i) {
    const TraceRequest& request = trace.requests[i];
    ASSERT_EQ(request.pieces.front().tokens, 1500u);
    uint32_t sum = 0;
    for (const PromptPiece& piece : request.pieces) sum += piece.tokens;
    EXPECT_EQ(sum, request.prompt_tokens);
    const TraceRequest* before = last[request.user];
    last[request.user] = &request;
    if (before == nullptr || request.pieces.size() == 2) continue;
    ++continued;
    std::vector<TokenId> old_prompt, prompt;
    make_prompt(*before, 0, old_prompt);
    make_prompt(request, i, prompt);
    ASSERT_TRUE(std::equal(old_prompt.begin(), old_prompt.end(), prompt.begin()));
    for (uint32_t place = 0; place < before->output_tokens; ++place) {
      ASSERT_EQ(prompt[old_prompt.size() + place], answer_token(*before, 0, place));
    }
  }
  EXPECT_GT(continued, 400u);
}

TEST(TraceGenerator, TheBatchJobsOfAMixAreAllOfTheLastUser) {
  const Trace trace = generate_trace(options_of(TraceKind::kMixed));
  uint32_t batch = 0;
  for (const TraceRequest& request : trace.requests) {
    const bool is_batch = request.priority == scheduler::PriorityClass::kBatch;
    batch += is_batch ? 1 : 0;
    EXPECT_EQ(request.user == 3, is_batch);
  }
  EXPECT_NEAR(batch, 600, 80);
}

}  // namespace
}  // namespace inferd::bench
