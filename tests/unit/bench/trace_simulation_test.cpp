#include "bench/trace_simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "base/prng.h"
#include "bench/simulation_report.h"
#include "bench/trace_generator.h"

namespace inferd::bench {
namespace {

using State = RequestResult::State;
using testing::HasSubstr;

constexpr scheduler::StepCost kTenMilliseconds{10e6, 0, 0, 0};

Trace trace_of(std::vector<TraceRequest> requests) {
  Trace trace;
  trace.format = "test";
  trace.requests = std::move(requests);
  for (const TraceRequest& request : trace.requests) {
    trace.users = std::max(trace.users, request.user + 1);
  }
  return trace;
}

SimulationResult simulate(const Trace& trace, const SimulationOptions& options) {
  auto simulation = TraceSimulation::create(trace, options);
  EXPECT_TRUE(simulation.ok()) << simulation.error().message();
  Result<SimulationResult> result = (*simulation)->run();
  EXPECT_TRUE(result.ok()) << result.error().message();
  return std::move(result).value();
}

void expect_sums(const Trace& trace, const nlohmann::ordered_json& report) {
  const auto& requests = report["requests"];
  EXPECT_EQ(requests["unfinished"], 0);
  EXPECT_EQ(requests["finished"].get<uint64_t>() + requests["refused"].get<uint64_t>(),
            trace.requests.size());
  const auto count = [&report](const char* kind) { return report["tokens"][kind].get<uint64_t>(); };
  EXPECT_EQ(count("prompt") + count("generated") - requests["finished"].get<uint64_t>(),
            count("found") + count("computed") - count("recomputed"));
}

TEST(TraceSimulation, TimesFollowFromTheCostOfAStep) {
  SimulationOptions options;
  options.cost = kTenMilliseconds;
  const Trace trace =
      trace_of({{.arrival_ns = 0, .prompt_tokens = 1000, .output_tokens = 3},
                {.arrival_ns = 5'000'000'000, .prompt_tokens = 9, .output_tokens = 1}});
  const SimulationResult result = simulate(trace, options);
  // Two steps of 512 tokens at most, the second of which gives the first token; then one a step.
  EXPECT_DOUBLE_EQ(result.requests[0].ttft_ms, 20);
  EXPECT_THAT(result.itl_ms[0], testing::ElementsAre(10, 10));
  EXPECT_DOUBLE_EQ(result.requests[0].end_s, 0.04);
  EXPECT_DOUBLE_EQ(result.requests[1].ttft_ms, 10);
  EXPECT_DOUBLE_EQ(result.end_s, 5.01);
  EXPECT_DOUBLE_EQ(result.busy_s, 0.05);
  EXPECT_EQ(result.computed_tokens, 1000u + 2 + 9);
}

TEST(TraceSimulation, LatencyCountsFromTheArrivalAndNotFromTheStepAfterIt) {
  SimulationOptions options;
  options.cost = kTenMilliseconds;
  options.time_scale = 2;
  const Trace trace = trace_of({{.arrival_ns = 0, .prompt_tokens = 9, .output_tokens = 9},
                                {.arrival_ns = 6'000'000, .prompt_tokens = 9, .output_tokens = 1}});
  // It arrives at 12 ms, in mid-step, and its first token comes with the step from 20 to 30 ms.
  EXPECT_DOUBLE_EQ(simulate(trace, options).requests[1].ttft_ms, 18);
}

TEST(TraceSimulation, PrefixesAreFoundWithinADomainAndNowhereElse) {
  const PromptPiece piece{5, 160};
  Trace trace = trace_of(
      {{.arrival_ns = 0, .prompt_tokens = 200, .output_tokens = 2, .user = 0, .pieces = {piece}},
       {.arrival_ns = 1'000'000'000,
        .prompt_tokens = 170,
        .output_tokens = 2,
        .user = 1,
        .pieces = {piece}}});
  SimulationOptions options;
  options.cost = kTenMilliseconds;
  EXPECT_EQ(simulate(trace, options).requests[1].stats.cached_tokens, 0u);
  options.shared_domain = true;
  const SimulationResult shared = simulate(trace, options);
  EXPECT_EQ(shared.requests[1].stats.cached_tokens, 160u);
  EXPECT_EQ(shared.found_tokens, 160u);
  options.shared_domain = false;
  trace.requests[1].user = 0;
  EXPECT_EQ(simulate(trace, options).requests[1].stats.cached_tokens, 160u);
}

TEST(TraceSimulation, WhatCannotFitIsRefusedAndTheRestGoesOn) {
  SimulationOptions options;
  options.cost = kTenMilliseconds;
  options.context_tokens = 100;
  options.queue = 1;
  const Trace trace = trace_of({{.arrival_ns = 0, .prompt_tokens = 90, .output_tokens = 11},
                                {.arrival_ns = 0, .prompt_tokens = 90, .output_tokens = 10},
                                {.arrival_ns = 0, .prompt_tokens = 90, .output_tokens = 10}});
  const SimulationResult result = simulate(trace, options);
  EXPECT_EQ(result.requests[0].state, State::kRefused);
  EXPECT_THAT(result.first_refusal, HasSubstr("101 tokens of prompt and answer exceed the 100"));
  EXPECT_EQ(result.requests[1].state, State::kFinished);
  EXPECT_EQ(result.requests[2].state, State::kRefused);  // the queue is full
  expect_sums(trace, report_json(trace, options, result));
}

TEST(TraceSimulation, EndsAtItsLimit) {
  SimulationOptions options;
  options.cost = kTenMilliseconds;
  options.limit_s = 0.5;
  const Trace trace = trace_of({{.arrival_ns = 0, .prompt_tokens = 9, .output_tokens = 10'000}});
  const SimulationResult result = simulate(trace, options);
  EXPECT_EQ(result.requests[0].state, State::kUnfinished);
  EXPECT_NEAR(result.end_s, 0.5, 0.011);
}

TEST(TraceSimulation, SumsHoldAndEqualRunsGiveEqualReports) {
  const Trace trace = generate_trace({.requests = 300, .rate_per_s = 0.6, .users = 4, .seed = 5});
  SimulationOptions options;
  options.cost = {3e6, 5e5, 1e6, 1000};
  const auto report = report_json(trace, options, simulate(trace, options));
  expect_sums(trace, report);
  EXPECT_EQ(report["tokens"]["generated"], report["trace"]["output_tokens"]);
  EXPECT_EQ(report["tokens"]["prompt"], report["trace"]["prompt_tokens"]);
  EXPECT_EQ(report["tokens"]["found"], report["tokens"]["cached"]);
  EXPECT_GT(report["hit_rate"], 0.3);
  EXPECT_LE(report["fairness"]["share_of_bound"], 1.0);
  EXPECT_EQ(report.dump(), report_json(trace, options, simulate(trace, options)).dump());
}

TEST(TraceSimulation, ASmallPoolPreemptsAndStillEverythingEnds) {
  Trace trace = generate_trace({.requests = 60, .rate_per_s = 20, .users = 3, .seed = 6});
  for (TraceRequest& request : trace.requests) request.output_tokens = 300;
  SimulationOptions options;
  options.cost = {3e6, 5e5, 1e5, 100};
  options.pages = 400;
  options.max_sequences = 24;
  options.itl_target_ms = 0;
  options.verify = true;
  const SimulationResult result = simulate(trace, options);
  const auto report = report_json(trace, options, result);
  expect_sums(trace, report);
  EXPECT_GT(report["preemptions"], 0);
  EXPECT_GT(result.recomputed_tokens, 0u);
  EXPECT_LE(result.waste.pages_max(), 400u);
  EXPECT_EQ(report["preemptions"], result.totals.preemptions);
}

TEST(TraceSimulation, ServiceFollowsTheWeightsWhileAllLackSomething) {
  std::vector<TraceRequest> requests;
  for (uint32_t i = 0; i < 300; ++i) {
    requests.push_back({.arrival_ns = 0, .prompt_tokens = 400, .output_tokens = 40, .user = i % 3});
  }
  const Trace trace = trace_of(requests);
  SimulationOptions options;
  options.cost = {3e6, 5e5, 1e6, 100};
  options.weights = {100, 200, 400};
  options.limit_s = 70;
  const SimulationResult result = simulate(trace, options);
  EXPECT_GT(result.fairness.contended_steps(), 300u);
  const double bound = fair_bound(result.longest_tokens, options.step_tokens);
  EXPECT_LE(result.fairness.apart_max(), bound);
  // Over the weights, service is even, within the bound; so the plain service is as the weights
  // are.
  const double even = result.fairness.service(0);
  EXPECT_GT(even, 2 * bound);
  EXPECT_NEAR(result.fairness.service(1), even, bound);
  EXPECT_NEAR(result.fairness.service(2), even, bound);
}

TEST(TraceSimulation, OptionsThatMakeNoSenseAreToldByName) {
  const Trace trace = trace_of({{.arrival_ns = 0, .prompt_tokens = 9, .output_tokens = 9}});
  for (const auto& [change, name] :
       std::vector<std::pair<std::function<void(SimulationOptions&)>, const char*>>{
           {[](SimulationOptions& o) { o.pages = 0; }, "--pages"},
           {[](SimulationOptions& o) { o.users = 0; }, "--users"},
           {[](SimulationOptions& o) { o.time_scale = 0; }, "--time-scale"},
           {[](SimulationOptions& o) { o.weights = {0}; }, "--weights"},
           {[](SimulationOptions& o) { o.step_tokens = 3; }, "step_tokens"}}) {
    SimulationOptions options;
    change(options);
    const auto simulation = TraceSimulation::create(trace, options);
    ASSERT_FALSE(simulation.ok()) << name;
    EXPECT_THAT(simulation.error().message(), HasSubstr(name));
  }
}

TEST(SimulationReport, PageStandsForItself) {
  const Trace trace = generate_trace({.requests = 80, .rate_per_s = 1, .users = 3, .seed = 7});
  SimulationOptions options;
  options.cost = {3e6, 5e5, 1e6, 1000};
  const SimulationResult result = simulate(trace, options);
  const auto report = report_json(trace, options, result);
  const std::string folder = testing::TempDir() + "inferd_sim_" + std::to_string(getpid());
  ASSERT_TRUE(write_report_page(folder, "a <b> & c", report, options, result).ok());
  std::ifstream file(folder + "/index.html");
  const std::string html((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_THAT(html, HasSubstr("a &lt;b&gt; &amp; c"));
  for (const char* label : {"TTFT (ms)", "ITL (ms)", "service (tokens of cost)",
                            "share of prompt tokens", "pages", "user 2"}) {
    EXPECT_THAT(html, HasSubstr(label));
  }
  for (const char* outside : {"<script", "<link", "<img", "src=", "href=", "url("}) {
    EXPECT_THAT(html, testing::Not(HasSubstr(outside)));
  }
  std::ifstream json_file(folder + "/report.json");
  EXPECT_EQ(nlohmann::ordered_json::parse(json_file), report);
  EXPECT_THAT(report_text(report), HasSubstr("80 requests, 80 finished"));
  std::filesystem::remove_all(folder);
  std::ofstream(folder) << "a file is in the way";
  const Result<void> refused = write_report_page(folder, "x", report, options, result);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message(), HasSubstr(folder));
  std::filesystem::remove(folder);
}

}  // namespace
}  // namespace inferd::bench
