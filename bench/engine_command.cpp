// inferd-bench engine: prefill and decode rates of the engine alone, by prompt length, depth, batch
// and threads, each beside the floor that the machine showed in the same run.
//
// Prefill: `prompt` tokens appended to each of `batch` sequences that already hold `depth` tokens,
// in steps of `step-tokens`, one row of logits at the end. Decode: `gen` steps of one token for
// each of `batch` sequences of `depth` tokens. Every figure is the median over rounds; a round
// takes every measurement once, so that a change of the machine's mood hits all of them alike.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/prng.h"
#include "bench/command.h"
#include "bench/engine_driver.h"
#include "bench/model_shape.h"
#include "bench/options.h"
#include "bench/roofline.h"
#include "bench/statistics.h"

namespace inferd::bench {
namespace {

struct EngineBenchOptions {
  std::string model;
  std::string isa = "auto";
  uint32_t prompt = 512;
  uint32_t gen = 128;
  std::vector<uint32_t> depths = {0};
  std::vector<uint32_t> batches = {1};
  std::vector<uint32_t> threads;
  uint32_t rounds = 3;
  uint32_t step_tokens = 512;
  bool no_floor = false;
  bool json = false;
};

// One row of the result.
struct Measurement {
  bool decode = false;
  size_t driver = 0;  // index by thread count
  uint32_t batch = 0;
  uint32_t depth = 0;
  uint32_t tokens = 0;               // of one round, all sequences together
  std::vector<double> rates;         // tokens per second
  std::vector<double> floor_shares;  // empty without floor
};

uint32_t largest(const std::vector<uint32_t>& values) {
  return *std::max_element(values.begin(), values.end());
}

Result<void> check_options(EngineBenchOptions& options) {
  if (options.model.empty()) {
    return Error(ErrorCode::kInvalidArgument, "say which model to measure: --model FILE.gguf");
  }
  if (options.threads.empty())
    options.threads = {std::max(1u, std::thread::hardware_concurrency())};
  for (uint32_t count : options.threads) {
    if (count == 0 || count > 1024) {
      return Error(ErrorCode::kInvalidArgument, "--threads must be from 1 to 1024");
    }
  }
  for (uint32_t batch : options.batches) {
    if (batch == 0 || batch > 1024) {
      return Error(ErrorCode::kInvalidArgument, "--batch must be from 1 to 1024");
    }
  }
  if (options.rounds == 0 || options.step_tokens == 0 || options.prompt + options.gen == 0) {
    return Error(ErrorCode::kInvalidArgument,
                 "--rounds, --step-tokens and one of --prompt and --gen must be above 0");
  }
  return {};
}

class EngineBench {
 public:
  EngineBench(EngineBenchOptions options, ModelShape shape)
      : options_(std::move(options)), shape_(shape) {}

  Result<void> start();
  void run();
  void print() const;

 private:
  // Brings the first `batch` sequences of a driver to `depth` tokens.
  void fill(EngineDriver& driver, uint32_t batch, uint32_t depth);
  double measure_prefill(EngineDriver& driver, const Measurement& row);
  double measure_decode(EngineDriver& driver, const Measurement& row, double& bytes_per_step);
  double prefill_floor_rate(const MachineFloor& floor) const;
  std::vector<TokenId> random_tokens(const EngineDriver& driver, size_t count);
  nlohmann::ordered_json json_of(const Measurement& row) const;

  EngineBenchOptions options_;
  ModelShape shape_;
  std::vector<std::unique_ptr<EngineDriver>> drivers_;  // one for each thread count
  std::vector<Measurement> rows_;
  std::vector<TokenId> filling_;  // what fills the depth: the same for all
  Prng prng_{20};
  MonotonicClock clock_;
};

Result<void> EngineBench::start() {
  for (uint32_t threads : options_.threads) {
    DriverOptions driver_options;
    driver_options.model = options_.model;
    driver_options.threads = threads;
    driver_options.isa = options_.isa;
    driver_options.sequences = largest(options_.batches);
    driver_options.sequence_tokens =
        largest(options_.depths) + std::max({options_.prompt, options_.gen, 1u});
    driver_options.step_tokens = std::max(options_.step_tokens, driver_options.sequences);
    driver_options.step_logits = driver_options.sequences;
    INFERD_ASSIGN(std::unique_ptr<EngineDriver> driver, EngineDriver::create(driver_options));
    drivers_.push_back(std::move(driver));
  }
  filling_.resize(largest(options_.depths));
  for (TokenId& token : filling_) {
    token = static_cast<TokenId>(prng_.below(drivers_[0]->engine().info().vocabulary));
  }
  for (uint32_t depth : options_.depths) {
    for (uint32_t batch : options_.batches) {
      for (bool decode : {false, true}) {
        const uint32_t tokens = decode ? options_.gen : options_.prompt;
        if (tokens == 0) continue;
        for (size_t driver = 0; driver < drivers_.size(); ++driver) {
          rows_.push_back({decode, driver, batch, depth, batch * tokens, {}, {}});
        }
      }
    }
  }
  return {};
}

std::vector<TokenId> EngineBench::random_tokens(const EngineDriver& driver, size_t count) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) {
    token = static_cast<TokenId>(prng_.below(driver.info().vocabulary));
  }
  return tokens;
}

// Only lengths matter to the time that a step takes, so positions that an earlier measurement wrote
// are used as they are.
void EngineBench::fill(EngineDriver& driver, uint32_t batch, uint32_t depth) {
  std::vector<Sequence>& sequences = driver.sequences();
  Sequence& first = sequences[0];
  if (first.written < depth) {
    EngineDriver::set_length(first, first.written);
    const std::span<const TokenId> rest = std::span(filling_).first(depth).subspan(first.written);
    driver.append(first, rest, 0, [](std::span<const float>) {});
  }
  EngineDriver::set_length(first, depth);
  for (uint32_t i = 1; i < batch; ++i) {
    if (sequences[i].written < depth) driver.copy(first, sequences[i]);
    EngineDriver::set_length(sequences[i], depth);
  }
}

double EngineBench::measure_prefill(EngineDriver& driver, const Measurement& row) {
  const std::vector<TokenId> tokens = random_tokens(driver, options_.prompt);
  const int64_t begin_ns = clock_.now_ns();
  for (uint32_t i = 0; i < row.batch; ++i) {
    driver.append(driver.sequences()[i], tokens, 1, [](std::span<const float>) {});
  }
  return static_cast<double>(clock_.now_ns() - begin_ns) * 1e-9;
}

double EngineBench::measure_decode(EngineDriver& driver, const Measurement& row,
                                   double& bytes_per_step) {
  const std::vector<TokenId> tokens = random_tokens(driver, row.tokens);
  const uint64_t read_before = driver.engine().counters().weight_bytes_read;
  const int64_t begin_ns = clock_.now_ns();
  for (uint32_t step = 0; step < options_.gen; ++step) {
    driver.decode(std::span(tokens).subspan(size_t{step} * row.batch, row.batch));
  }
  const double seconds = static_cast<double>(clock_.now_ns() - begin_ns) * 1e-9;
  const uint64_t read = driver.engine().counters().weight_bytes_read - read_before;
  const double weights = static_cast<double>(read) / options_.gen;
  const double depth_mean = row.depth + options_.gen / 2.0;
  const double token_bytes = static_cast<double>(driver.info().page_bytes.value) / kPageTokens;
  bytes_per_step = weights + row.batch * depth_mean * token_bytes;
  return seconds;
}

double EngineBench::prefill_floor_rate(const MachineFloor& floor) const {
  double peak = floor.int8_ops_per_s;
  if (shape_.kind == WeightKind::kF32) peak = floor.f32_ops_per_s;
  if (shape_.kind == WeightKind::kBf16) peak = std::max(floor.f32_ops_per_s, floor.bf16_ops_per_s);
  return peak / shape_.layer_ops_per_token;
}

void EngineBench::run() {
  std::vector<MachineFloor> floors(drivers_.size());
  for (uint32_t round = 0; round <= options_.rounds; ++round) {  // round 0 only warms up
    if (round > 0) std::fprintf(stderr, "round %u of %u\n", round, options_.rounds);
    for (size_t i = 0; i < drivers_.size() && !options_.no_floor && round > 0; ++i) {
      const uint64_t weights = drivers_[i]->info().weight_bytes.value;
      floors[i] = measure_floor(options_.threads[i], Bytes(std::max<uint64_t>(weights, 1 << 20)));
    }
    for (Measurement& row : rows_) {
      if (round == 0 && row.batch != options_.batches[0]) continue;
      EngineDriver& driver = *drivers_[row.driver];
      fill(driver, row.batch, row.depth);
      double bytes_per_step = 0;
      const double seconds =
          row.decode ? measure_decode(driver, row, bytes_per_step) : measure_prefill(driver, row);
      if (round == 0) continue;
      row.rates.push_back(row.tokens / seconds);
      if (options_.no_floor) continue;
      const MachineFloor& floor = floors[row.driver];
      row.floor_shares.push_back(row.decode ? bytes_per_step / floor.read_bytes_per_s *
                                                  options_.gen / seconds
                                            : row.rates.back() / prefill_floor_rate(floor));
    }
  }
}

nlohmann::ordered_json EngineBench::json_of(const Measurement& row) const {
  nlohmann::ordered_json json = {{"test", row.decode ? "decode" : "prefill"},
                                 {"threads", options_.threads[row.driver]},
                                 {"batch", row.batch},
                                 {"depth", row.depth},
                                 {"tokens", row.tokens},
                                 {"tokens_per_s", median(row.rates)}};
  if (!options_.no_floor) json["floor_share"] = median(row.floor_shares);
  return json;
}

void EngineBench::print() const {
  if (options_.json) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const Measurement& row : rows_) rows.push_back(json_of(row));
    std::puts(rows.dump(1).c_str());
    return;
  }
  const engine::ModelInfo& info = drivers_[0]->info();
  std::printf("%s, %s, %.1f MiB of weights; medians of %u rounds\n", info.name.c_str(),
              info.quantization.c_str(), static_cast<double>(info.weight_bytes.value) / (1 << 20),
              options_.rounds);
  std::printf("%-8s %7s %5s %6s %7s %12s %8s %12s\n", "test", "threads", "batch", "depth", "tokens",
              "tokens/s", "spread", "floor share");
  for (const Measurement& row : rows_) {
    const double middle = median(row.rates);
    const double spread = (percentile(row.rates, 1) - percentile(row.rates, 0)) / middle;
    std::printf("%-8s %7u %5u %6u %7u %12.1f %7.0f%%", row.decode ? "decode" : "prefill",
                options_.threads[row.driver], row.batch, row.depth, row.tokens, middle,
                100 * spread);
    if (!options_.no_floor) std::printf(" %11.0f%%", 100 * median(row.floor_shares));
    std::puts("");
  }
}

}  // namespace

Result<int> run_engine_command(Arguments arguments) {
  EngineBenchOptions values;
  Options options("engine", "prefill and decode rates of the engine alone");
  options.add("model", &values.model, "GGUF file");
  options.add("prompt", &values.prompt, "tokens of a prefill (default 512; 0: no prefill)");
  options.add("gen", &values.gen, "steps of a decode (default 128; 0: no decode)");
  options.add("depth", &values.depths, "tokens already in the context, such as 0,2048 (default 0)");
  options.add("batch", &values.batches, "sequences together, such as 1,8 (default 1)");
  options.add("threads", &values.threads, "thread counts, such as 1,2 (default: all processors)");
  options.add("isa", &values.isa, "auto, portable, avx2, avx512, avx512vnni or avx512bf16");
  options.add("rounds", &values.rounds, "rounds that the median is taken over (default 3)");
  options.add("step-tokens", &values.step_tokens, "tokens of a prefill step (default 512)");
  options.add("no-floor", &values.no_floor, "do not measure the machine's own peaks beside it");
  options.add("json", &values.json, "print JSON: an array of rows");
  INFERD_ASSIGN(const bool go, options.parse(arguments));
  if (!go) return 0;
  INFERD_TRY(check_options(values));
  INFERD_ASSIGN(const ModelShape shape, read_model_shape(values.model));
  EngineBench bench(std::move(values), shape);
  INFERD_TRY(bench.start());
  bench.run();
  bench.print();
  return 0;
}

}  // namespace inferd::bench
