#include "bench/serve_client.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/prng.h"
#include "bench/timed_answer.h"

namespace inferd::bench {
namespace {

void note_error(RequestRecord& record, const Error& error) {
  record.done = 2;
  std::snprintf(record.error, sizeof record.error, "%s", error.message().c_str());
}

void sleep_until_ns(int64_t moment_ns) {
  const MonotonicClock clock;
  const int64_t wait_ns = moment_ns - clock.now_ns();
  if (wait_ns > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(wait_ns));
}

client::Sampling sampling_of(const ServeOptions& options) {
  client::Sampling sampling = exactly(options.gen_tokens);
  sampling.priority = options.priority == "interactive" ? INFERD_PRIORITY_INTERACTIVE
                      : options.priority == "batch"     ? INFERD_PRIORITY_BATCH
                                                        : INFERD_PRIORITY_IDLE;
  sampling.nice = static_cast<int32_t>(options.nice);
  return sampling;
}

Result<void> run_request(client::Connection& connection, const ServeOptions& options,
                         std::vector<int32_t> ids, RequestRecord& record,
                         std::span<double> gaps_ms) {
  INFERD_ASSIGN(client::Sequence sequence,
                submit_ids(connection, std::move(ids), sampling_of(options)));
  INFERD_ASSIGN(const TimedAnswer answer, read_timed(sequence));
  INFERD_ASSIGN(const client::Usage usage, usage_of(sequence));
  const std::vector<double> gaps = token_gaps_ms(answer.arrivals);
  record.generated = answer.tokens();
  record.gaps = static_cast<uint32_t>(std::min(gaps.size(), gaps_ms.size()));
  std::copy_n(gaps.begin(), record.gaps, gaps_ms.begin());
  if (!answer.arrivals.empty()) record.first_ns = answer.arrivals.front().at_ns;
  record.end_ns = answer.end_ns;
  record.prompt_tokens = usage.prompt_tokens;
  record.cached_tokens = usage.cached_tokens;
  record.done = 1;
  return {};
}

}  // namespace

std::vector<int32_t> serve_prompt(const ServeOptions& options, uint32_t index,
                                  uint32_t vocabulary) {
  std::vector<int32_t> ids;
  Prng shared(options.seed);
  Prng own((uint64_t{options.seed} << 32 | index) + 1);
  while (ids.size() < options.shared_prefix) {
    ids.push_back(static_cast<int32_t>(shared.below(vocabulary)));
  }
  while (ids.size() < options.shared_prefix + options.prompt_tokens) {
    ids.push_back(static_cast<int32_t>(own.below(vocabulary)));
  }
  return ids;
}

int run_serve_client(const ServeOptions& options, uint32_t client, int64_t start_ns,
                     std::span<RequestRecord> records, std::span<double> gaps_ms) {
  Result<client::Connection> connection = connect_client(options.socket, options.model);
  if (!connection) {
    RequestRecord failed;
    note_error(failed, connection.error());
    for (size_t i = client; i < records.size(); i += options.clients) records[i] = failed;
    return 1;
  }
  const uint32_t vocabulary = connection->model().vocabulary;
  const MonotonicClock clock;
  Prng arrivals(uint64_t{options.seed} * 1000 + client);
  int64_t due_ns = start_ns;
  sleep_until_ns(start_ns);
  for (size_t i = client; i < records.size(); i += options.clients) {
    std::vector<int32_t> ids = serve_prompt(options, static_cast<uint32_t>(i), vocabulary);
    if (options.rate > 0) {
      const double mean_s = options.clients / options.rate;
      due_ns += static_cast<int64_t>(-std::log(1 - arrivals.uniform()) * mean_s * 1e9);
      sleep_until_ns(due_ns);
    } else {
      due_ns = clock.now_ns();
    }
    records[i].begin_ns = due_ns;
    const Result<void> done =
        run_request(*connection, options, std::move(ids), records[i],
                    gaps_ms.subspan(i * options.gen_tokens, options.gen_tokens));
    if (!done) note_error(records[i], done.error());
  }
  return 0;
}

}  // namespace inferd::bench
