// measure_steps(): what --fit runs on the engine.
#include <algorithm>
#include <cstdio>
#include <limits>

#include "base/clock.h"
#include "base/prng.h"
#include "bench/engine_driver.h"
#include "bench/step_cost_fit.h"

namespace inferd::bench {

namespace {

constexpr uint32_t kRounds = 3;
constexpr uint32_t kDecodes = 8;  // at most, beside a prompt

// A step of `decodes` sequences at `depth` and, if any, a chunk of a prompt that has come as far.
struct Shape {
  uint32_t decodes;
  uint32_t chunk;
  uint32_t depth;
};

std::vector<Shape> shapes_of(uint32_t step_tokens, uint32_t depth_max) {
  std::vector<Shape> shapes;
  for (uint32_t depth : {0u, depth_max / 4, depth_max}) {
    for (uint32_t decodes : {0u, 1u, 3u, kDecodes}) {
      for (uint32_t chunk : {0u, 16u, 64u, step_tokens / 2}) {
        if (decodes + chunk > 0) shapes.push_back({decodes, chunk, depth});
      }
    }
    shapes.push_back({0, step_tokens, depth});
  }
  return shapes;
}

CostSample sample_of(const Shape& shape, double time_ns) {
  CostSample sample;
  if (shape.chunk > 0) sample.add(shape.chunk, 1, shape.depth);
  for (uint32_t i = 0; i < shape.decodes; ++i) sample.add(1, 1, shape.depth);
  sample.time_ns = time_ns;
  return sample;
}

class StepMeasurement {
 public:
  StepMeasurement(EngineDriver& driver, uint32_t step_tokens) : driver_(driver) {
    Prng prng(21);
    for (uint32_t i = 0; i < step_tokens; ++i) {
      tokens_.push_back(static_cast<TokenId>(prng.below(driver.info().vocabulary)));
    }
  }

  // The first sequence is the prompt's, the others decode. Only lengths matter to the time that a
  // step takes, so what lies at the positions before does not.
  double run_ns(const Shape& shape) {
    const std::vector<Sequence>& sequences = driver_.sequences();
    plan_.clear();
    for (uint32_t i = 0; i <= shape.decodes; ++i) {
      const uint32_t count = i == 0 ? shape.chunk : 1;
      if (count == 0) continue;
      scheduler::BatchItem item;
      item.sequence = sequences[i].id;
      item.pages = sequences[i].pages;
      item.tokens = std::span<const TokenId>(tokens_).first(count);
      item.position_first = shape.depth;
      item.logits_count = 1;
      plan_.items.push_back(item);
      plan_.token_count += count;
      plan_.logits_count += 1;
    }
    const int64_t begin_ns = clock_.now_ns();
    driver_.engine().run(plan_);
    return static_cast<double>(clock_.now_ns() - begin_ns);
  }

 private:
  EngineDriver& driver_;
  std::vector<TokenId> tokens_;
  scheduler::BatchPlan plan_;
  MonotonicClock clock_;
};

}  // namespace

Result<std::vector<CostSample>> measure_steps(const std::string& model, uint32_t threads,
                                              uint32_t step_tokens, uint32_t depth_max) {
  if (step_tokens < 128 || step_tokens > 8192) {
    return Error(ErrorCode::kInvalidArgument,
                 "--step-tokens must be from 128 to 8192 to measure steps");
  }
  DriverOptions options;
  options.model = model;
  options.threads = threads;
  options.sequences = kDecodes + 1;
  options.sequence_tokens = depth_max + step_tokens;
  options.step_tokens = step_tokens + kDecodes;
  options.step_logits = kDecodes + 1;
  INFERD_ASSIGN(const std::unique_ptr<EngineDriver> driver, EngineDriver::create(options));
  // Every position is written once, so that there is memory behind it and no step reads what never
  // was.
  const std::vector<TokenId> filling(options.sequence_tokens, 1);
  for (Sequence& sequence : driver->sequences()) {
    if (sequence.id == driver->sequences()[0].id) {
      driver->append(sequence, filling, 0, [](std::span<const float>) {});
    } else {
      driver->copy(driver->sequences()[0], sequence);
    }
  }
  EngineDriver::set_length(driver->sequences()[0], options.sequence_tokens - 1);
  driver->decode(std::span(filling).first(1));  // makes the copies

  StepMeasurement measurement(*driver, step_tokens);
  const std::vector<Shape> shapes = shapes_of(step_tokens, depth_max);
  // The fastest of some rounds: what else the machine did is no part of a step's cost.
  std::vector<double> fastest_ns(shapes.size(), std::numeric_limits<double>::infinity());
  for (uint32_t round = 0; round < kRounds; ++round) {
    std::fprintf(stderr, "round %u of %u\n", round + 1, kRounds);
    for (size_t i = 0; i < shapes.size(); ++i) {
      fastest_ns[i] = std::min(fastest_ns[i], measurement.run_ns(shapes[i]));
    }
  }
  std::vector<CostSample> samples;
  for (size_t i = 0; i < shapes.size(); ++i) {
    samples.push_back(sample_of(shapes[i], fastest_ns[i]));
  }
  return samples;
}

}  // namespace inferd::bench
