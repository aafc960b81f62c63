#include "bench/timed_answer.h"

#include <chrono>
#include <utility>

#include "base/clock.h"

namespace inferd::bench {
namespace {

constexpr int64_t kSilenceMaxMs = 600'000;  // a daemon that says nothing for so long has failed

}  // namespace

uint32_t TimedAnswer::tokens() const {
  uint32_t count = 0;
  for (const TokenArrival& arrival : arrivals) count += arrival.tokens;
  return count;
}

std::vector<double> token_gaps_ms(std::span<const TokenArrival> arrivals) {
  std::vector<double> gaps_ms;
  for (size_t i = 0; i < arrivals.size(); ++i) {
    if (i > 0) {
      gaps_ms.push_back(static_cast<double>(arrivals[i].at_ns - arrivals[i - 1].at_ns) * 1e-6);
    }
    gaps_ms.insert(gaps_ms.end(), arrivals[i].tokens - 1, 0.0);
  }
  return gaps_ms;
}

Error library_error(const client::Error& error) {
  return Error(ErrorCode::kUnavailable, error.what());
}

Result<client::Connection> connect_client(const std::string& socket, const std::string& model,
                                          const std::string& cache_domain) {
  client::ConnectOptions options;
  options.socket_path = socket;
  options.model = model;
  options.client_name = "inferd-bench";
  options.cache_domain = cache_domain;
  client::Result<client::Connection> connection = client::Connection::try_connect(options);
  if (!connection) return library_error(connection.error());
  return std::move(connection).value();
}

client::Sampling exactly(uint32_t tokens) {
  client::Sampling sampling;
  sampling.max_tokens = tokens;
  sampling.ignore_eos = true;
  return sampling;
}

Result<client::Sequence> submit_ids(client::Connection& connection, std::vector<int32_t> ids,
                                    const client::Sampling& sampling) {
  client::Result<client::Sequence> sequence =
      connection.try_open(client::Prompt::ids(std::move(ids)), sampling);
  if (!sequence) return library_error(sequence.error());
  return std::move(sequence).value();
}

Result<client::Usage> usage_of(const client::Sequence& sequence) {
  try {
    return sequence.usage();
  } catch (const client::Error& error) {
    return library_error(error);
  }
}

Result<bool> read_timed_event(client::Sequence& sequence, int64_t timeout_ms, TimedAnswer& answer) {
  const MonotonicClock clock;
  client::Result<client::Sequence::Next> next =
      sequence.try_next(std::chrono::milliseconds(timeout_ms));
  const int64_t now_ns = clock.now_ns();
  if (!next) return library_error(next.error());
  if (next->state == client::Sequence::State::kTimedOut) return false;
  if (next->state == client::Sequence::State::kOver) {
    return Error(ErrorCode::kInternal, "an answer was read past its end");
  }
  const client::Event& event = next->event;
  if (!event.ids.empty()) {
    answer.arrivals.push_back({now_ns, static_cast<uint32_t>(event.ids.size())});
  }
  answer.end_ns = now_ns;
  answer.finish = event.finish;
  return true;
}

Result<TimedAnswer> read_timed(client::Sequence& sequence) {
  TimedAnswer answer;
  while (answer.finish == INFERD_FINISH_NONE) {
    INFERD_ASSIGN(const bool came, read_timed_event(sequence, kSilenceMaxMs, answer));
    if (!came) return Error(ErrorCode::kTimedOut, "no token came for ten minutes");
  }
  return answer;
}

}  // namespace inferd::bench
