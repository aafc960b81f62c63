// inferd-bench sim: a request trace through the real scheduler and memory, in virtual time.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "bench/command.h"
#include "bench/options.h"
#include "bench/simulation_report.h"
#include "bench/step_cost_fit.h"
#include "bench/trace_generator.h"
#include "bench/trace_reader.h"
#include "bench/trace_simulation.h"

namespace inferd::bench {
namespace {

constexpr uint32_t kGeneratedRequests = 1000;
constexpr uint32_t kReadRequests = 1'000'000;
constexpr uint32_t kFitDepthTokens = 1024;

struct SimCommandOptions {
  SimulationOptions simulation;
  std::string trace;
  std::string generate;
  uint32_t requests = 0;
  double rate = 1;
  uint32_t seed = 1;
  std::string cost;
  std::string rows;
  uint32_t rows_step_tokens = 512;
  bool fit = false;
  std::string model;
  uint32_t threads = 0;
  std::string domains;
  std::string report;
  bool json = false;
};

Result<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error(ErrorCode::kNotFound, "cannot open " + path + "; is the name right?");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) return Error(ErrorCode::kIo, "cannot read " + path);
  return text;
}

template <typename T>
Result<T> with_path(Result<T> result, const std::string& path) {
  if (!result) return result.error().with_context(path);
  return result;
}

Result<Trace> load_trace(const SimCommandOptions& options) {
  if (options.trace.empty() == options.generate.empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 "say what to simulate: either --trace FILE, or --generate chat, agents, batch or "
                 "mixed");
  }
  if (!options.trace.empty()) {
    std::ifstream file(options.trace, std::ios::binary);
    if (!file) {
      return Error(ErrorCode::kNotFound,
                   "cannot open the trace " + options.trace + "; is the name right?");
    }
    const uint32_t requests_max = options.requests > 0 ? options.requests : kReadRequests;
    return with_path(read_trace(file, requests_max), options.trace);
  }
  const std::optional<TraceKind> kind = parse_trace_kind(options.generate);
  if (!kind) {
    return Error(ErrorCode::kInvalidArgument, "--generate is \"" + options.generate +
                                                  "\"; expected chat, agents, batch or mixed");
  }
  const uint32_t users = options.simulation.users;
  const uint32_t requests = options.requests > 0 ? options.requests : kGeneratedRequests;
  if (!(options.rate > 0 && options.rate < 1e6) || users == 0 || users > kTraceUsersMax ||
      requests > 10'000'000) {
    return Error(ErrorCode::kInvalidArgument,
                 "--rate must be above 0, --users from 1 to 1000, --requests up to 10000000");
  }
  return generate_trace({*kind, requests, options.rate, users, options.seed});
}

// Fits the cost model and prints it: what --cost reads.
Result<int> run_fit(const SimCommandOptions& options) {
  if (options.model.empty() == options.rows.empty()) {
    return Error(ErrorCode::kInvalidArgument,
                 "--fit needs one of --model FILE.gguf, to measure, and --rows FILE.json, which "
                 "inferd-bench engine --json printed");
  }
  std::vector<CostSample> samples;
  if (!options.model.empty()) {
    INFERD_ASSIGN(samples, measure_steps(options.model, options.threads,
                                         options.simulation.step_tokens, kFitDepthTokens));
  } else {
    if (options.rows_step_tokens == 0) {
      return Error(ErrorCode::kInvalidArgument, "--rows-step-tokens must be above 0");
    }
    INFERD_ASSIGN(const std::string text, read_file(options.rows));
    INFERD_ASSIGN(samples,
                  with_path(samples_of_rows(text, options.rows_step_tokens), options.rows));
  }
  INFERD_ASSIGN(const CostFit fit, fit_step_cost(samples));
  std::fprintf(stderr,
               "%zu measurements; the fit is off by %.1f %% (root mean square), %.1f %% at most\n",
               fit.samples, 100 * fit.error_rms, 100 * fit.error_max);
  std::puts(step_cost_json(fit).c_str());
  return 0;
}

Result<void> choose_cost(SimCommandOptions& options) {
  options.simulation.cost = kDefaultStepCost;
  if (options.cost.empty()) return {};
  INFERD_ASSIGN(const std::string text, read_file(options.cost));
  INFERD_ASSIGN(options.simulation.cost, with_path(parse_step_cost(text), options.cost));
  return {};
}

// Users that only --users made up are no reason to keep their prefixes apart.
Result<void> choose_domains(SimCommandOptions& options, const Trace& trace) {
  if (options.domains.empty()) {
    options.simulation.shared_domain = trace.users == 0;
    return {};
  }
  if (options.domains != "user" && options.domains != "shared") {
    return Error(ErrorCode::kInvalidArgument,
                 "--cache-domains is \"" + options.domains + "\"; expected user or shared");
  }
  options.simulation.shared_domain = options.domains == "shared";
  return {};
}

void add_options(Options& options, SimCommandOptions& values) {
  SimulationOptions& simulation = values.simulation;
  options.add("trace", &values.trace, "request trace: Azure, BurstGPT, Mooncake, or our own CSV");
  options.add("generate", &values.generate, "instead of a trace: chat, agents, batch or mixed");
  options.add("requests", &values.requests, "at most so many requests (default: 1000 generated)");
  options.add("rate", &values.rate, "requests a second that are generated (default 1)");
  options.add("seed", &values.seed, "of the generator (default 1)");
  options.add("users", &simulation.users, "users, if the trace names none (default 4)");
  options.add("weights", &simulation.weights,
              "of the users in turn, such as 100,300 (default 100)");
  options.add("time-scale", &simulation.time_scale, "stretches the arrivals (default 1)");
  options.add("limit", &simulation.limit_s, "end after so many virtual seconds (default: the end)");
  options.add("pages", &simulation.pages, "pages of the pool, 16 tokens each (default 8192)");
  options.add("max-sequences", &simulation.max_sequences, "that run at once (default 64)");
  options.add("step-tokens", &simulation.step_tokens, "tokens of a step at most (default 512)");
  options.add("itl-target", &simulation.itl_target_ms,
              "milliseconds between tokens of interactive answers (default 50; 0: no target)");
  options.add("queue", &simulation.queue, "requests that may wait (default 1024)");
  options.add("context", &simulation.context_tokens, "longest sequence (default 32768)");
  options.add("cache-domains", &values.domains,
              "user or shared (default: user if the trace names users)");
  options.add("cost", &values.cost,
              "what a step costs, as --fit prints it (default: see the manual)");
  options.add("fit", &values.fit, "fit the costs of a step and print them; no simulation");
  options.add("model", &values.model, "with --fit: measure steps on this GGUF file");
  options.add("threads", &values.threads, "with --model: worker threads (default: all processors)");
  options.add("rows", &values.rows, "with --fit: what inferd-bench engine --json printed");
  options.add("rows-step-tokens", &values.rows_step_tokens,
              "with --rows: the --step-tokens of that measurement (default 512)");
  options.add("report", &values.report, "write a page with plots to this folder");
  options.add("json", &values.json, "print JSON");
}

}  // namespace

Result<int> run_sim_command(Arguments arguments) {
  SimCommandOptions values;
  Options options("sim", "a request trace through scheduler and memory, in virtual time");
  add_options(options, values);
  INFERD_ASSIGN(const bool go, options.parse(arguments));
  if (!go) return 0;
  if (values.fit) return run_fit(values);
  INFERD_TRY(choose_cost(values));
  INFERD_ASSIGN(const Trace trace, load_trace(values));
  INFERD_TRY(choose_domains(values, trace));
  INFERD_ASSIGN(const std::unique_ptr<TraceSimulation> simulation,
                TraceSimulation::create(trace, values.simulation));
  INFERD_ASSIGN(const SimulationResult result, simulation->run());
  const nlohmann::ordered_json report = report_json(trace, values.simulation, result);
  if (!values.report.empty()) {
    const std::string source = values.trace.empty()
                                   ? "generated " + values.generate
                                   : values.trace.substr(values.trace.rfind('/') + 1);
    INFERD_TRY(write_report_page(values.report, source, report, values.simulation, result));
  }
  std::fputs(values.json ? (report.dump(2) + "\n").c_str() : report_text(report).c_str(), stdout);
  return 0;
}

}  // namespace inferd::bench
