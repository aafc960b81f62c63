#include "bench/serve_client.h"

#include <inferd/inferd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>

#include "base/clock.h"
#include "base/prng.h"

namespace inferd::bench {
namespace {

constexpr int kSilenceMaxMs = 600'000;  // a daemon that says nothing for so long counts as failed

void note_error(RequestRecord& record, inferd_error* error, const char* what) {
  record.done = 2;
  const char* message = error != nullptr ? inferd_error_message(error) : what;
  std::snprintf(record.error, sizeof record.error, "%s", message);
  inferd_error_free(error);
}

void sleep_until_ns(int64_t moment_ns) {
  const MonotonicClock clock;
  const int64_t wait_ns = moment_ns - clock.now_ns();
  if (wait_ns > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(wait_ns));
}

// Reads events until the sequence ends.
void read_answer(inferd_sequence* sequence, RequestRecord& record, std::span<double> gaps_ms) {
  const MonotonicClock clock;
  int64_t last_ns = 0;
  while (true) {
    inferd_event event;
    inferd_event_init(&event);
    inferd_error* error = nullptr;
    const inferd_status status = inferd_next(sequence, kSilenceMaxMs, &event, &error);
    const int64_t now_ns = clock.now_ns();
    if (status != INFERD_OK) {
      return note_error(record, error, "no token came for ten minutes");
    }
    for (size_t i = 0; i < event.ids_count; ++i) {
      if (record.generated == 0) {
        record.first_ns = now_ns;
      } else if (record.gaps < gaps_ms.size()) {
        gaps_ms[record.gaps++] = static_cast<double>(now_ns - last_ns) * 1e-6;
      }
      last_ns = now_ns;
      ++record.generated;
    }
    if (event.finish != INFERD_FINISH_NONE) {
      record.end_ns = now_ns;
      record.done = 1;
      return;
    }
  }
}

void run_request(inferd_connection* connection, const ServeOptions& options,
                 const std::vector<int32_t>& ids, RequestRecord& record,
                 std::span<double> gaps_ms) {
  inferd_prompt prompt;
  inferd_prompt_init(&prompt);
  prompt.ids = ids.data();
  prompt.ids_count = ids.size();
  inferd_sampling sampling;
  inferd_sampling_init(&sampling);
  sampling.max_tokens = options.gen_tokens;
  sampling.ignore_eos = 1;
  sampling.priority = options.priority == "interactive" ? INFERD_PRIORITY_INTERACTIVE
                      : options.priority == "batch"     ? INFERD_PRIORITY_BATCH
                                                        : INFERD_PRIORITY_IDLE;
  sampling.nice = static_cast<int32_t>(options.nice);
  inferd_sequence* sequence = nullptr;
  inferd_error* error = nullptr;
  if (inferd_open(connection, &prompt, &sampling, &sequence, &error) != INFERD_OK) {
    return note_error(record, error, "the request was not accepted");
  }
  read_answer(sequence, record, gaps_ms);
  inferd_usage usage = {};
  usage.struct_bytes = sizeof usage;
  if (record.done == 1) {
    if (inferd_get_usage(sequence, &usage, &error) == INFERD_OK) {
      record.prompt_tokens = usage.prompt_tokens;
      record.cached_tokens = usage.cached_tokens;
    } else {
      note_error(record, error, "no usage figures");
    }
  }
  inferd_close(sequence);
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
  inferd_connect_options connect;
  inferd_connect_options_init(&connect);
  if (!options.socket.empty()) connect.socket_path = options.socket.c_str();
  if (!options.model.empty()) connect.model = options.model.c_str();
  connect.client_name = "inferd-bench";
  inferd_connection* connection = nullptr;
  inferd_error* error = nullptr;
  inferd_model_info info = {};
  info.struct_bytes = sizeof info;
  if (inferd_connect(&connect, &connection, &error) != INFERD_OK ||
      inferd_get_model_info(connection, &info, &error) != INFERD_OK) {
    RequestRecord failed;
    note_error(failed, error, "cannot connect");
    for (size_t i = client; i < records.size(); i += options.clients) records[i] = failed;
    inferd_disconnect(connection);
    return 1;
  }
  const MonotonicClock clock;
  Prng arrivals(uint64_t{options.seed} * 1000 + client);
  int64_t due_ns = start_ns;
  sleep_until_ns(start_ns);
  for (size_t i = client; i < records.size(); i += options.clients) {
    const std::vector<int32_t> ids =
        serve_prompt(options, static_cast<uint32_t>(i), info.vocabulary);
    if (options.rate > 0) {
      const double mean_s = options.clients / options.rate;
      due_ns += static_cast<int64_t>(-std::log(1 - arrivals.uniform()) * mean_s * 1e9);
      sleep_until_ns(due_ns);
    } else {
      due_ns = clock.now_ns();
    }
    records[i].begin_ns = due_ns;
    run_request(connection, options, ids, records[i],
                gaps_ms.subspan(i * options.gen_tokens, options.gen_tokens));
  }
  inferd_disconnect(connection);
  return 0;
}

}  // namespace inferd::bench
