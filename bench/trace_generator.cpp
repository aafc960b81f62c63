#include "bench/trace_generator.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/check.h"
#include "base/prng.h"

namespace inferd::bench {

namespace {

constexpr double kNewTokensMax = 4096;
constexpr double kAnswerTokensMax = 2048;
constexpr uint32_t kAgentPreambleTokens = 1500;
constexpr uint32_t kAgentSessionTokensMax = 12'000;
constexpr uint32_t kAgentStopOneIn = 8;
constexpr uint32_t kBatchPreambleTokens = 300;

// The mean is median * exp(sigma * sigma / 2).
struct LogNormal {
  double median;
  double sigma;
};
constexpr LogNormal kChatPrompt{90, 1.08};
constexpr LogNormal kChatAnswer{200, 1.02};
constexpr LogNormal kAgentPrompt{120, 0.8};
constexpr LogNormal kAgentAnswer{60, 0.7};
constexpr LogNormal kBatchPrompt{800, 0.6};
constexpr LogNormal kBatchAnswer{150, 0.5};

class Generator {
 public:
  explicit Generator(const GeneratorOptions& options)
      : options_(options), prng_(options.seed), agents_(options.users) {
    INFERD_CHECK(options.users > 0 && options.users <= kTraceUsersMax && options.rate_per_s > 0);
    next_piece_ = 2 * uint64_t{options.users} + 1;  // after the preambles
  }

  Trace make() {
    Trace trace;
    trace.format = "generated";
    trace.users = options_.users;
    double time_s = 0;
    for (uint32_t i = 0; i < options_.requests; ++i) {
      TraceRequest request = draw(draw_kind());
      request.arrival_ns = std::llround(time_s * 1e9);
      trace.requests.push_back(std::move(request));
      time_s -= std::log(1 - prng_.uniform()) / options_.rate_per_s;
    }
    return trace;
  }

 private:
  // What an agent's session has said so far.
  struct Session {
    std::vector<PromptPiece> pieces;
    uint32_t tokens = 0;
  };

  TraceKind draw_kind() {
    if (options_.kind != TraceKind::kMixed) return options_.kind;
    const double share = prng_.uniform();
    if (share < 0.5) return TraceKind::kChat;
    return share < 0.85 ? TraceKind::kAgents : TraceKind::kBatch;
  }

  uint32_t draw_user(TraceKind kind) {
    const uint32_t users = options_.users;
    if (options_.kind != TraceKind::kMixed || users == 1) {
      return static_cast<uint32_t>(prng_.below(users));
    }
    if (kind == TraceKind::kBatch) return users - 1;
    return static_cast<uint32_t>(prng_.below(users - 1));
  }

  uint32_t draw_tokens(const LogNormal& of, double most) {
    const double radius = std::sqrt(-2 * std::log(1 - prng_.uniform()));
    const double normal = radius * std::cos(2 * std::numbers::pi * prng_.uniform());
    const double tokens = of.median * std::exp(of.sigma * normal);
    return static_cast<uint32_t>(std::lround(std::clamp(tokens, 1.0, most)));
  }

  TraceRequest draw(TraceKind kind) {
    TraceRequest request;
    request.user = draw_user(kind);
    if (kind == TraceKind::kAgents) {
      draw_agent_step(request);
    } else if (kind == TraceKind::kBatch) {
      request.priority = scheduler::PriorityClass::kBatch;
      request.pieces = {{batch_preamble(request.user), kBatchPreambleTokens}};
      request.prompt_tokens = kBatchPreambleTokens + draw_tokens(kBatchPrompt, kNewTokensMax);
      request.output_tokens = draw_tokens(kBatchAnswer, kAnswerTokensMax);
    } else {
      request.prompt_tokens = draw_tokens(kChatPrompt, kNewTokensMax);
      request.output_tokens = draw_tokens(kChatAnswer, kAnswerTokensMax);
    }
    return request;
  }

  void draw_agent_step(TraceRequest& request) {
    Session& session = agents_[request.user];
    if (session.pieces.empty()) {
      session.pieces = {{agent_preamble(request.user), kAgentPreambleTokens}};
      session.tokens = kAgentPreambleTokens;
    }
    const uint32_t news = draw_tokens(kAgentPrompt, kNewTokensMax);
    const uint32_t answer = draw_tokens(kAgentAnswer, kAnswerTokensMax);
    session.pieces.push_back({next_piece_++, news});
    request.pieces = session.pieces;
    request.prompt_tokens = session.tokens + news;
    request.output_tokens = answer;
    request.answer_id = next_piece_++;
    session.pieces.push_back({request.answer_id, answer});
    session.tokens += news + answer;
    const bool ends = prng_.below(kAgentStopOneIn) == 0;
    if (ends || session.tokens > kAgentSessionTokensMax) session = {};
  }

  uint64_t agent_preamble(uint32_t user) const { return 2 * uint64_t{user} + 1; }
  uint64_t batch_preamble(uint32_t user) const { return 2 * uint64_t{user} + 2; }

  const GeneratorOptions options_;
  Prng prng_;
  uint64_t next_piece_ = 0;
  std::vector<Session> agents_;  // [users] the one that is under way
};

}  // namespace

std::optional<TraceKind> parse_trace_kind(std::string_view name) {
  constexpr std::pair<std::string_view, TraceKind> kNames[] = {{"chat", TraceKind::kChat},
                                                               {"agents", TraceKind::kAgents},
                                                               {"batch", TraceKind::kBatch},
                                                               {"mixed", TraceKind::kMixed}};
  for (const auto& [known, kind] : kNames) {
    if (known == name) return kind;
  }
  return std::nullopt;
}

Trace generate_trace(const GeneratorOptions& options) { return Generator(options).make(); }

}  // namespace inferd::bench
