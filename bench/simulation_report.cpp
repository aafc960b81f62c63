#include "bench/simulation_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/statistics.h"

namespace inferd::bench {

using Json = nlohmann::ordered_json;
using scheduler::kPriorityClasses;
using scheduler::PriorityClass;

namespace {

Json percentiles_json(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {{"p50", percentile_of_sorted(values, 0.5)},
          {"p90", percentile_of_sorted(values, 0.9)},
          {"p99", percentile_of_sorted(values, 0.99)},
          {"max", percentile_of_sorted(values, 1)}};
}

double quotient(double part, double whole) { return whole > 0 ? part / whole : 0; }

template <typename Keep>
std::vector<double> ttft_of(const SimulationResult& result, Keep&& keep) {
  std::vector<double> values;
  for (const RequestResult& request : result.requests) {
    if (request.ttft_ms >= 0 && keep(request)) values.push_back(request.ttft_ms);
  }
  return values;
}

uint64_t count_state(const SimulationResult& result, RequestResult::State state) {
  return static_cast<uint64_t>(
      std::count_if(result.requests.begin(), result.requests.end(),
                    [state](const RequestResult& request) { return request.state == state; }));
}

Json trace_json(const Trace& trace, const SimulationOptions& options) {
  uint64_t prompt = 0, output = 0;
  for (const TraceRequest& request : trace.requests) {
    prompt += request.prompt_tokens;
    output += request.output_tokens;
  }
  const auto arrivals_s = static_cast<double>(trace.requests.back().arrival_ns) * 1e-9;
  return {{"format", trace.format},
          {"requests", trace.requests.size()},
          {"skipped_rows", trace.skipped},
          {"cut", trace.cut},
          {"arrivals_s", arrivals_s * options.time_scale},
          {"prompt_tokens", prompt},
          {"output_tokens", output}};
}

Json options_json(const SimulationOptions& options, const SimulationResult& result) {
  return {{"pages", options.pages},
          {"max_sequences", options.max_sequences},
          {"step_tokens", options.step_tokens},
          {"queue", options.queue},
          {"context", options.context_tokens},
          {"itl_target_ms", options.itl_target_ms},
          {"users", result.users},
          {"cache_domains", options.shared_domain ? "shared" : "user"},
          {"time_scale", options.time_scale},
          {"limit_s", options.limit_s},
          {"cost",
           {{"step_ns", options.cost.step_ns},
            {"row_ns", options.cost.row_ns},
            {"token_ns", options.cost.token_ns},
            {"position_ns", options.cost.position_ns}}}};
}

Json class_json(const SimulationOptions& options, const SimulationResult& result,
                PriorityClass priority) {
  const std::vector<float>& gaps = result.itl_ms[static_cast<size_t>(priority)];
  const auto late =
      static_cast<double>(std::count_if(gaps.begin(), gaps.end(), [&options](float gap) {
        return static_cast<double>(gap) > options.itl_target_ms;
      }));
  const auto requests = std::count_if(
      result.requests.begin(), result.requests.end(),
      [priority](const RequestResult& request) { return request.priority == priority; });
  return {{"requests", requests},
          {"ttft_ms", percentiles_json(ttft_of(result,
                                               [priority](const RequestResult& request) {
                                                 return request.priority == priority;
                                               }))},
          {"itl_ms", percentiles_json({gaps.begin(), gaps.end()})},
          {"itl_over_target_share", quotient(late, static_cast<double>(gaps.size()))}};
}

Json user_json(const SimulationOptions& options, const SimulationResult& result, uint32_t user) {
  uint64_t requests = 0, refused = 0, generated = 0;
  for (const RequestResult& request : result.requests) {
    if (request.user != user) continue;
    ++requests;
    refused += request.state == RequestResult::State::kRefused ? 1 : 0;
    generated += request.stats.generated_tokens;
  }
  const uint32_t weight = options.weights.empty() ? scheduler::kWeightDefault
                                                  : options.weights[user % options.weights.size()];
  return {{"user", user},
          {"weight", weight},
          {"requests", requests},
          {"refused", refused},
          {"generated_tokens", generated},
          {"service", result.fairness.service(user)},
          {"ttft_ms", percentiles_json(ttft_of(result, [user](const RequestResult& request) {
             return request.user == user;
           }))}};
}

Json fairness_json(const SimulationOptions& options, const SimulationResult& result) {
  const double bound = fair_bound(result.longest_tokens, options.step_tokens);
  return {{"apart_max", result.fairness.apart_max()},
          {"bound", bound},
          {"share_of_bound", quotient(result.fairness.apart_max(), bound)},
          {"contended_steps", result.fairness.contended_steps()},
          {"users_paired", std::min(result.users, FairnessMeter::kUsersPaired)}};
}

}  // namespace

Json report_json(const Trace& trace, const SimulationOptions& options,
                 const SimulationResult& result) {
  using State = RequestResult::State;
  uint64_t prompt = 0, cached = 0, generated = 0, preemptions = 0;
  for (const RequestResult& request : result.requests) {
    prompt += request.stats.prompt_tokens;
    cached += request.stats.cached_tokens;
    generated += request.stats.generated_tokens;
    preemptions += request.stats.preemptions;
  }
  const uint64_t finished = count_state(result, State::kFinished);
  std::vector<double> gaps;
  for (const std::vector<float>& of_class : result.itl_ms) {
    gaps.insert(gaps.end(), of_class.begin(), of_class.end());
  }
  Json report;
  report["trace"] = trace_json(trace, options);
  report["options"] = options_json(options, result);
  report["requests"] = {{"finished", finished},
                        {"refused", count_state(result, State::kRefused)},
                        {"unfinished", count_state(result, State::kUnfinished)},
                        {"first_refusal", result.first_refusal}};
  report["virtual_s"] = result.end_s;
  report["busy_share"] = quotient(result.busy_s, result.end_s);
  report["steps"] = result.totals.steps;
  report["ttft_ms"] = percentiles_json(ttft_of(result, [](const RequestResult&) { return true; }));
  report["itl_ms"] = percentiles_json(std::move(gaps));
  for (uint8_t i = 0; i < kPriorityClasses; ++i) {
    const auto priority = static_cast<PriorityClass>(i);
    report["classes"][std::string(priority_class_name(priority))] =
        class_json(options, result, priority);
  }
  report["tokens"] = {{"prompt", prompt},
                      {"cached", cached},
                      {"generated", generated},
                      {"computed", result.computed_tokens},
                      {"recomputed", result.recomputed_tokens},
                      {"found", result.found_tokens}};
  report["tokens_per_s"] = {
      {"generated", quotient(static_cast<double>(generated), result.end_s)},
      {"computed", quotient(static_cast<double>(result.computed_tokens), result.end_s)}};
  report["requests_per_s"] = quotient(static_cast<double>(finished), result.end_s);
  report["hit_rate"] = quotient(static_cast<double>(cached), static_cast<double>(prompt));
  report["preemptions"] = preemptions;
  report["fairness"] = fairness_json(options, result);
  report["waste"] = {{"share", result.waste.share()},
                     {"share_time_mean", result.waste.time_mean_share()},
                     {"sequence_tokens_max", result.waste.sequence_tokens_max()},
                     {"pages_held_mean", result.waste.pages_mean()},
                     {"pages_held_max", result.waste.pages_max()}};
  report["users"] = Json::array();
  for (uint32_t user = 0; user < std::min(result.users, FairnessMeter::kUsersPaired); ++user) {
    report["users"].push_back(user_json(options, result, user));
  }
  return report;
}

std::string report_text(const Json& report) {
  std::string out;
  std::array<char, 512> line{};
  const auto print = [&out, &line](const char* format, auto... values) {
    std::snprintf(line.data(), line.size(), format, values...);
    out += line.data();
  };
  const auto figure = [&report](const char* pointer) {
    return report.at(Json::json_pointer(pointer)).get<double>();
  };
  print("%s: %.0f requests, %.0f finished, %.0f refused, %.0f unfinished in %.1f s (virtual)\n",
        report["trace"]["format"].get<std::string>().c_str(), figure("/trace/requests"),
        figure("/requests/finished"), figure("/requests/refused"), figure("/requests/unfinished"),
        figure("/virtual_s"));
  for (const char* what : {"ttft_ms", "itl_ms"}) {
    const std::string at = std::string("/") + what;
    print("%-5s ms   p50 %9.2f   p90 %9.2f   p99 %9.2f   max %9.2f\n",
          what[0] == 't' ? "TTFT" : "ITL", figure((at + "/p50").c_str()),
          figure((at + "/p90").c_str()), figure((at + "/p99").c_str()),
          figure((at + "/max").c_str()));
  }
  print("interactive ITL above its target: %.2f %%\n",
        100 * figure("/classes/interactive/itl_over_target_share"));
  print("tokens/s: %.1f generated, %.1f computed; busy %.0f %% of the time\n",
        figure("/tokens_per_s/generated"), figure("/tokens_per_s/computed"),
        100 * figure("/busy_share"));
  print("hit rate %.1f %% of the prompts' tokens; %.0f preemptions, %.0f tokens computed again\n",
        100 * figure("/hit_rate"), figure("/preemptions"), figure("/tokens/recomputed"));
  print("fairness: users who lacked something got at most %.0f apart, %.0f %% of the bound %.0f\n",
        figure("/fairness/apart_max"), 100 * figure("/fairness/share_of_bound"),
        figure("/fairness/bound"));
  print("waste: %.2f %% of the held pages' places without a token; at most %.0f in a sequence\n",
        100 * figure("/waste/share"), figure("/waste/sequence_tokens_max"));
  return out;
}

}  // namespace inferd::bench
