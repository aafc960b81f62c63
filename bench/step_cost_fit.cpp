#include "bench/step_cost_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace inferd::bench {

namespace {

using scheduler::StepCost;

constexpr uint32_t kFigures = 4;
using Row = std::array<double, kFigures>;

Row columns_of(const CostSample& sample) {
  return {sample.steps, sample.rows, sample.tokens, sample.positions};
}

StepCost cost_of(const Row& figures) { return {figures[0], figures[1], figures[2], figures[3]}; }

// The least squares over the columns in `used`; false if they do not tell them apart, or a figure
// would be negative.
bool solve(std::span<const CostSample> samples, uint32_t used, Row& figures) {
  std::array<uint32_t, kFigures> columns{};
  uint32_t count = 0;
  for (uint32_t i = 0; i < kFigures; ++i) {
    if ((used >> i & 1) != 0) columns[count++] = i;
  }
  // Normal equations of columns scaled by their mean over the time, so that pivots are of like
  // size.
  Row scale{};
  for (const CostSample& sample : samples) {
    const Row row = columns_of(sample);
    for (uint32_t i = 0; i < kFigures; ++i) scale[i] += row[i] / sample.time_ns;
  }
  std::array<std::array<double, kFigures + 1>, kFigures> matrix{};
  for (const CostSample& sample : samples) {
    const Row row = columns_of(sample);
    std::array<double, kFigures + 1> scaled{};
    for (uint32_t i = 0; i < count; ++i) {
      if (scale[columns[i]] == 0) return false;
      scaled[i] = row[columns[i]] / sample.time_ns / scale[columns[i]];
    }
    scaled[count] = 1;
    for (uint32_t i = 0; i < count; ++i) {
      for (uint32_t k = 0; k <= count; ++k) matrix[i][k] += scaled[i] * scaled[k];
    }
  }
  const double first_pivot = matrix[0][0];
  for (uint32_t pivot = 0; pivot < count; ++pivot) {
    if (!(matrix[pivot][pivot] > 1e-12 * first_pivot)) return false;
    for (uint32_t row = 0; row < count; ++row) {
      if (row == pivot) continue;
      const double factor = matrix[row][pivot] / matrix[pivot][pivot];
      for (uint32_t k = pivot; k <= count; ++k) matrix[row][k] -= factor * matrix[pivot][k];
    }
  }
  figures = {};
  for (uint32_t i = 0; i < count; ++i) {
    figures[columns[i]] = matrix[i][count] / matrix[i][i] / scale[columns[i]];
    if (!(figures[columns[i]] >= 0)) return false;
  }
  return true;
}

CostFit assess(std::span<const CostSample> samples, const StepCost& cost) {
  CostFit fit;
  fit.cost = cost;
  fit.samples = samples.size();
  double squares = 0;
  for (const CostSample& sample : samples) {
    const double error = std::abs(sample.predicted_ns(cost) / sample.time_ns - 1);
    squares += error * error;
    fit.error_max = std::max(fit.error_max, error);
  }
  fit.error_rms = std::sqrt(squares / static_cast<double>(samples.size()));
  return fit;
}

Error bad_row(size_t index, const std::string& what) {
  return Error(ErrorCode::kDataCorrupt, "row " + std::to_string(index + 1) + " " + what +
                                            "; expected what inferd-bench engine --json prints");
}

}  // namespace

void CostSample::add(uint32_t tokens_more, uint32_t rows_more, uint32_t position_first) {
  rows += rows_more;
  tokens += tokens_more;
  positions += tokens_more * (position_first + tokens_more / 2.0);
}

double CostSample::predicted_ns(const StepCost& cost) const {
  return steps * cost.step_ns + rows * cost.row_ns + tokens * cost.token_ns +
         positions * cost.position_ns;
}

// The smallest sum of squares over figures that are not negative lies where some are 0 and the
// others are the plain least squares: with four there are fifteen choices, and all are tried.
Result<CostFit> fit_step_cost(std::span<const CostSample> samples) {
  if (samples.size() < 2) {
    return Error(ErrorCode::kInvalidArgument, "a fit needs at least two measurements");
  }
  for (const CostSample& sample : samples) {
    if (!(sample.time_ns > 0) || !std::isfinite(sample.time_ns)) {
      return Error(ErrorCode::kInvalidArgument, "a measurement took no time");
    }
  }
  CostFit best;
  bool found = false;
  for (uint32_t used = 1; used < 1u << kFigures; ++used) {
    Row figures{};
    if (!solve(samples, used, figures)) continue;
    const CostFit fit = assess(samples, cost_of(figures));
    // Strictly better by more than rounding: of equals, the one with fewer figures.
    if (!found || fit.error_rms < best.error_rms * (1 - 1e-9) - 1e-15) best = fit;
    found = true;
  }
  INFERD_CHECK(found);  // any one column that is not 0 fits somehow, and every step has its step_ns
  return best;
}

Result<std::vector<CostSample>> samples_of_rows(const std::string& json_text,
                                                uint32_t step_tokens) {
  INFERD_CHECK(step_tokens > 0);
  const auto json = nlohmann::json::parse(json_text, nullptr, false);
  if (!json.is_array()) {
    return Error(ErrorCode::kDataCorrupt,
                 "no JSON array; expected what inferd-bench engine --json prints");
  }
  std::vector<CostSample> samples;
  uint64_t threads_most = 0;
  for (size_t i = 0; i < json.size(); ++i) {
    const auto& row = json[i];
    if (!row.is_object() || !row.contains("test")) return bad_row(i, "is no measurement");
    const bool decode = row["test"] == "decode";
    if (!decode && row["test"] != "prefill") return bad_row(i, "is neither prefill nor decode");
    std::array<uint64_t, 4> counts{};
    constexpr std::array<const char*, 4> kNames = {"threads", "batch", "depth", "tokens"};
    for (size_t k = 0; k < kNames.size(); ++k) {
      const auto found = row.find(kNames[k]);
      if (found == row.end() || !found->is_number_unsigned() || *found > 100'000'000u) {
        return bad_row(i, std::string("has no count \"") + kNames[k] + "\"");
      }
      counts[k] = found->get<uint64_t>();
    }
    const auto [threads, batch, depth, tokens] = counts;
    const auto rate = row.find("tokens_per_s");
    if (rate == row.end() || !rate->is_number() || !(rate->get<double>() > 0) || batch == 0 ||
        tokens < batch) {
      return bad_row(i, "has no rate \"tokens_per_s\"");
    }
    if (threads > threads_most) samples.clear();
    threads_most = std::max(threads_most, threads);
    if (threads < threads_most) continue;
    CostSample sample;
    const auto each = static_cast<double>(tokens / batch);
    const auto together = static_cast<double>(tokens);
    sample.tokens = together;
    sample.positions = together * (static_cast<double>(depth) + each / 2);
    sample.rows = decode ? together : static_cast<double>(batch);
    sample.steps = decode ? each : static_cast<double>(batch) * std::ceil(each / step_tokens);
    sample.time_ns = together / rate->get<double>() * 1e9;
    samples.push_back(sample);
  }
  return samples;
}

std::string step_cost_json(const CostFit& fit) {
  const nlohmann::ordered_json json = {
      {"step_ns", fit.cost.step_ns},   {"row_ns", fit.cost.row_ns},
      {"token_ns", fit.cost.token_ns}, {"position_ns", fit.cost.position_ns},
      {"samples", fit.samples},        {"error_rms", fit.error_rms},
      {"error_max", fit.error_max}};
  return json.dump(2);
}

Result<StepCost> parse_step_cost(const std::string& json_text) {
  const auto json = nlohmann::json::parse(json_text, nullptr, false);
  StepCost cost;
  const std::array<std::pair<const char*, double*>, kFigures> figures = {
      {{"step_ns", &cost.step_ns},
       {"row_ns", &cost.row_ns},
       {"token_ns", &cost.token_ns},
       {"position_ns", &cost.position_ns}}};
  constexpr double kNsMax = 1e12;
  for (const auto& [name, figure] : figures) {
    const bool has = json.is_object() && json.contains(name) && json[name].is_number();
    if (!has || !(json[name].get<double>() >= 0 && json[name].get<double>() <= kNsMax)) {
      return Error(ErrorCode::kDataCorrupt,
                   std::string("expected {\"step_ns\", \"row_ns\", \"token_ns\", \"position_ns\"}, "
                               "nanoseconds from 0 to 1e12, as --fit prints them; wrong is ") +
                       name);
    }
    *figure = json[name].get<double>();
  }
  if (!(cost.step_ns + cost.token_ns > 0)) {
    return Error(ErrorCode::kDataCorrupt, "steps would take no time: step_ns and token_ns are 0");
  }
  return cost;
}

}  // namespace inferd::bench
