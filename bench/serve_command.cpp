// inferd-bench serve: client processes that load a running daemon.
//
// Each client is a process with a connection of its own and sends its share of the requests one
// after the other, random token ids, greedy, exactly gen-tokens long. With --rate, requests fall
// due at random (exponential) intervals, and TTFT counts from when one was due, not from when a
// client that was still busy got round to it. A prompt is --shared-prefix tokens that are the same
// in all, then --prompt-tokens of its own.
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "bench/command.h"
#include "bench/options.h"
#include "bench/serve_client.h"
#include "bench/statistics.h"

namespace inferd::bench {
namespace {

constexpr int64_t kStartDelayNs =
    300'000'000;  // for all clients to connect before the first request

// Memory that the children write and the parent reads after they ended.
class SharedResults {
 public:
  static Result<SharedResults> create(size_t requests, size_t gen_tokens) {
    const size_t bytes = requests * (sizeof(RequestRecord) + gen_tokens * sizeof(double));
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return errno_error("cannot map memory for the results", errno);
    return SharedResults(memory, bytes, requests, gen_tokens);
  }
  SharedResults(SharedResults&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)),
        bytes_(other.bytes_),
        records_(other.records_),
        gaps_(other.gaps_) {}
  SharedResults(const SharedResults&) = delete;
  SharedResults& operator=(const SharedResults&) = delete;
  ~SharedResults() {
    if (memory_ != nullptr) munmap(memory_, bytes_);
  }

  std::span<RequestRecord> records() const { return records_; }
  std::span<double> gaps_ms() const { return gaps_; }

 private:
  SharedResults(void* memory, size_t bytes, size_t requests, size_t gen_tokens)
      : memory_(memory), bytes_(bytes) {
    RequestRecord* records = new (memory) RequestRecord[requests];
    records_ = {records, requests};
    gaps_ = {reinterpret_cast<double*>(records + requests), requests * gen_tokens};
  }

  void* memory_;
  size_t bytes_;
  std::span<RequestRecord> records_;
  std::span<double> gaps_;
};

Result<void> run_clients(const ServeOptions& options, const SharedResults& results) {
  const MonotonicClock clock;
  const int64_t start_ns = clock.now_ns() + kStartDelayNs;
  std::fflush(nullptr);  // or each child would print it again
  std::vector<pid_t> children;
  const pid_t parent = getpid();
  for (uint32_t client = 0; client < options.clients; ++client) {
    const pid_t child = fork();
    if (child == 0) {
      // Nobody would read what it measures once the parent is gone, however that ended.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      _exit(run_serve_client(options, client, start_ns, results.records(), results.gaps_ms()));
    }
    if (child < 0) {
      const int error = errno;
      for (pid_t started : children) kill(started, SIGTERM);
      for (pid_t started : children) waitpid(started, nullptr, 0);
      return errno_error("cannot start a client process", error);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  return {};
}

struct ServeSummary {
  std::vector<double> ttft_ms;
  std::vector<double> itl_ms;
  uint64_t requests = 0;
  uint64_t errors = 0;
  uint64_t generated = 0;
  uint64_t computed_tokens = 0;  // of prompts
  uint64_t cached_tokens = 0;
  double seconds = 0;  // from the first request to the last token
  std::string first_error;
};

ServeSummary summarise(const ServeOptions& options, const SharedResults& results) {
  ServeSummary summary;
  int64_t begin_ns = INT64_MAX;
  int64_t end_ns = 0;
  for (size_t i = 0; i < results.records().size(); ++i) {
    const RequestRecord& record = results.records()[i];
    ++summary.requests;
    if (record.done != 1 || record.generated != options.gen_tokens) {
      ++summary.errors;
      if (summary.first_error.empty()) {
        summary.first_error = record.error;
        if (record.done == 0) summary.first_error = "a client process died";
        if (record.done == 1) summary.first_error = "an answer ended before its last token";
      }
      if (record.done != 1) continue;
    }
    summary.generated += record.generated;
    summary.cached_tokens += record.cached_tokens;
    summary.computed_tokens += record.prompt_tokens - record.cached_tokens;
    if (record.generated > 0) {
      summary.ttft_ms.push_back(static_cast<double>(record.first_ns - record.begin_ns) * 1e-6);
    }
    const std::span<const double> gaps =
        results.gaps_ms().subspan(i * options.gen_tokens, record.gaps);
    summary.itl_ms.insert(summary.itl_ms.end(), gaps.begin(), gaps.end());
    begin_ns = std::min(begin_ns, record.begin_ns);
    end_ns = std::max(end_ns, record.end_ns);
  }
  if (end_ns > begin_ns) summary.seconds = static_cast<double>(end_ns - begin_ns) * 1e-9;
  return summary;
}

nlohmann::ordered_json percentiles(const std::vector<double>& values) {
  return {{"p50", percentile(values, 0.5)},
          {"p90", percentile(values, 0.9)},
          {"p99", percentile(values, 0.99)},
          {"max", percentile(values, 1)}};
}

void print_summary(const ServeSummary& summary, bool json) {
  const double tokens_per_s =
      summary.seconds > 0 ? static_cast<double>(summary.generated) / summary.seconds : 0;
  if (json) {
    const nlohmann::ordered_json out = {{"ttft_ms", percentiles(summary.ttft_ms)},
                                        {"itl_ms", percentiles(summary.itl_ms)},
                                        {"tokens_per_s", tokens_per_s},
                                        {"requests", summary.requests},
                                        {"errors", summary.errors},
                                        {"computed_tokens", summary.computed_tokens},
                                        {"cached_tokens", summary.cached_tokens}};
    std::puts(out.dump(2).c_str());
    return;
  }
  const auto line = [](const char* name, const std::vector<double>& values) {
    std::printf("%-5s ms   p50 %9.2f   p90 %9.2f   p99 %9.2f   max %9.2f\n", name,
                percentile(values, 0.5), percentile(values, 0.9), percentile(values, 0.99),
                percentile(values, 1));
  };
  line("TTFT", summary.ttft_ms);
  line("ITL", summary.itl_ms);
  std::printf(
      "%.1f tokens/s over %.1f s; %llu requests, %llu errors; prompt tokens: %llu computed, "
      "%llu cached\n",
      tokens_per_s, summary.seconds, static_cast<unsigned long long>(summary.requests),
      static_cast<unsigned long long>(summary.errors),
      static_cast<unsigned long long>(summary.computed_tokens),
      static_cast<unsigned long long>(summary.cached_tokens));
}

Result<void> check_options(const ServeOptions& options) {
  if (!(options.rate >= 0 && options.rate < 1e9)) {
    return Error(ErrorCode::kInvalidArgument, "--rate must be 0 or more");
  }
  if (options.priority != "interactive" && options.priority != "batch" &&
      options.priority != "idle") {
    return Error(ErrorCode::kInvalidArgument, "--priority is interactive, batch or idle");
  }
  return {};
}

}  // namespace

Result<int> run_serve_command(Arguments arguments) {
  ServeOptions values;
  bool json = false;
  Options options("serve", "client processes through the daemon: latencies and throughput");
  options.add("socket", &values.socket, "the daemon's socket (default: as every client finds it)");
  options.add("model", &values.model, "the model's name (default: the daemon's first)");
  options.add("clients", &values.clients, {1, 1024}, "client processes (default 8)");
  options.add("requests", &values.requests, {1, 1'000'000},
              "requests of all clients together (default 64)");
  options.add("prompt-tokens", &values.prompt_tokens, {1, 10'000'000},
              "tokens of each prompt's own (default 512)");
  options.add("gen-tokens", &values.gen_tokens, {1, 1'000'000},
              "tokens of each answer (default 128)");
  options.add("shared-prefix", &values.shared_prefix, {0, 10'000'000},
              "tokens in front of each prompt that are the same in all (default 0)");
  options.add("rate", &values.rate, "requests per second (default 0: each when the last ended)");
  options.add("seed", &values.seed, "of prompts and arrivals (default 1)");
  options.add("priority", &values.priority,
              "interactive (default), batch, or idle: the class of all requests");
  options.add("nice", &values.nice, {0, 19},
              "of all requests within their class, 0 to 19 (default 0)");
  options.add("json", &json, "print JSON");
  INFERD_ASSIGN(const bool go, options.parse(arguments));
  if (!go) return 0;
  INFERD_TRY(check_options(values));
  INFERD_ASSIGN(const SharedResults results,
                SharedResults::create(values.requests, values.gen_tokens));
  INFERD_TRY(run_clients(values, results));
  const ServeSummary summary = summarise(values, results);
  print_summary(summary, json);
  if (summary.errors > 0) {
    std::fprintf(stderr, "inferd-bench serve: %llu of %llu requests failed, the first: %s\n",
                 static_cast<unsigned long long>(summary.errors),
                 static_cast<unsigned long long>(summary.requests), summary.first_error.c_str());
  }
  return summary.errors > 0 ? 1 : 0;
}

}  // namespace inferd::bench
