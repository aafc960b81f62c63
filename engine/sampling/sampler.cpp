#include "engine/sampling/sampler.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>

#include "base/check.h"
#include "base/prng.h"
#include "engine/ops/math.h"

namespace inferd::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Elements of one block: a block's maximum or sum is taken in kLanes independent lanes, which the
// compiler turns into vector code, joined in one fixed order.
constexpr size_t kBlock = 64;
constexpr size_t kLanes = 16;
// How many of the likeliest tokens top-p looks at first; it grows by the factor until the mass is
// reached.
constexpr size_t kNucleusFirst = 64;
constexpr size_t kNucleusGrowth = 8;

// The largest of at most kBlock values; -infinity if there is none, or only NaN.
float block_maximum(const float* values, size_t count) noexcept {
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, -kInfinity);
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float value = values[i + lane];
      lanes[lane] = value > lanes[lane] ? value : lanes[lane];
    }
  }
  float maximum = -kInfinity;
  for (; i < count; ++i) maximum = values[i] > maximum ? values[i] : maximum;
  for (float lane : lanes) maximum = lane > maximum ? lane : maximum;
  return maximum;
}

// The sum of at most kBlock non-negative values, in double, always in the same order.
double block_sum(const float* values, size_t count) noexcept {
  double lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] += static_cast<double>(values[i + lane]);
  }
  for (size_t lane = 0; i < count; ++i, ++lane) lanes[lane] += static_cast<double>(values[i]);
  for (size_t width = kLanes / 2; width > 0; width /= 2) {
    for (size_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  }
  return lanes[0];
}

// The highest value's id, the lowest of several; kNoToken if every value is NaN or -infinity.
TokenId find_best(std::span<const float> values) noexcept {
  float best = -kInfinity;
  size_t best_block = values.size();
  for (size_t i = 0; i < values.size(); i += kBlock) {
    const float maximum = block_maximum(&values[i], std::min(kBlock, values.size() - i));
    if (maximum > best) {
      best = maximum;
      best_block = i;
    }
  }
  if (best_block == values.size()) return kNoToken;
  size_t id = best_block;
  while (values[id] != best) ++id;
  return static_cast<TokenId>(id);
}

// Uniform in [0, 1), 53 bits, for one token of one branch of one seed.
double uniform_at(const SamplingParams& params, uint64_t position) noexcept {
  const std::array<uint32_t, 4> bits = philox4x32(
      {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), params.branch, 0},
      {static_cast<uint32_t>(params.seed), static_cast<uint32_t>(params.seed >> 32)});
  const uint64_t wide = static_cast<uint64_t>(bits[0]) << 32 | bits[1];
  return static_cast<double>(wide >> 11) * 0x1.0p-53;
}

Error range_error(const char* name, double value, const char* range) {
  char text[160];
  std::snprintf(text, sizeof text, "sampling option %s is %g; it must be %s", name, value, range);
  return Error(ErrorCode::kInvalidArgument, text);
}

bool within(float value, float low, float high) noexcept { return value >= low && value <= high; }

}  // namespace

Result<void> check_sampling(const SamplingParams& params, std::span<const LogitBias> biases,
                            uint32_t vocabulary) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  if (!within(params.temperature, 0, kLargest)) {
    return range_error("temperature", static_cast<double>(params.temperature),
                       "finite and 0 or more");
  }
  if (!within(params.top_p, 0, 1)) {
    return range_error("top_p", static_cast<double>(params.top_p), "from 0 to 1");
  }
  if (!within(params.min_p, 0, 1)) {
    return range_error("min_p", static_cast<double>(params.min_p), "from 0 to 1");
  }
  if (!within(params.repetition_penalty, std::numeric_limits<float>::min(), kLargest)) {
    return range_error("repetition_penalty", static_cast<double>(params.repetition_penalty),
                       "finite and above 0");
  }
  if (!within(params.presence_penalty, -kLargest, kLargest)) {
    return range_error("presence_penalty", static_cast<double>(params.presence_penalty), "finite");
  }
  if (!within(params.frequency_penalty, -kLargest, kLargest)) {
    return range_error("frequency_penalty", static_cast<double>(params.frequency_penalty),
                       "finite");
  }
  if (params.top_logprobs > kTopLogprobsMax) {
    return range_error("top_logprobs", params.top_logprobs, "at most 20");
  }
  if (biases.size() > kLogitBiasMax) {
    return range_error("logit_bias count", static_cast<double>(biases.size()), "at most 256");
  }
  for (const LogitBias& bias : biases) {
    if (bias.token < 0 || static_cast<uint32_t>(bias.token) >= vocabulary) {
      return range_error("logit_bias token", bias.token, "a token id of the model's vocabulary");
    }
    if (!within(bias.bias, -kInfinity, kLargest)) {
      return range_error("logit_bias value", static_cast<double>(bias.bias), "finite or -infinity");
    }
  }
  return {};
}

Sampler::Sampler(uint32_t vocabulary)
    : vocabulary_(vocabulary),
      values_(vocabulary),
      weights_(vocabulary),
      block_sums_((vocabulary + kBlock - 1) / kBlock),
      counts_(vocabulary, 0) {
  INFERD_CHECK(vocabulary > 0);
  candidates_.reserve(vocabulary);
}

SampleResult Sampler::sample(std::span<const float> logits, const SamplingParams& params,
                             std::span<const LogitBias> biases, std::span<const TokenId> history,
                             uint64_t position, std::span<TokenLogprob> top_out) noexcept {
  INFERD_CHECK(logits.size() == vocabulary_);
  const std::span<const float> values = adjust(logits, params, biases, history);
  SampleResult result;
  result.token = find_best(values);
  if (params.temperature > 0 && result.token != kNoToken &&
      values[static_cast<size_t>(result.token)] < kInfinity) {
    result.token = draw(values, result.token, params, position);
  }
  if (params.want_logprobs != 0 || params.top_logprobs > 0) {
    report_logprobs(logits, params, top_out, result);
  }
  return result;
}

std::span<const float> Sampler::adjust(std::span<const float> logits, const SamplingParams& params,
                                       std::span<const LogitBias> biases,
                                       std::span<const TokenId> history) noexcept {
  const bool penalised = (params.repetition_penalty != 1 || params.presence_penalty != 0 ||
                          params.frequency_penalty != 0) &&
                         params.penalty_last_n > 0 && !history.empty();
  if (biases.empty() && !penalised) return logits;
  std::copy(logits.begin(), logits.end(), values_.begin());
  for (const LogitBias& bias : biases) {
    INFERD_DCHECK(bias.token >= 0 && static_cast<uint32_t>(bias.token) < vocabulary_);
    values_[static_cast<size_t>(bias.token)] += bias.bias;
  }
  if (penalised) {
    apply_penalties(params, history.last(std::min<size_t>(params.penalty_last_n, history.size())));
  }
  return values_;
}

void Sampler::apply_penalties(const SamplingParams& params,
                              std::span<const TokenId> window) noexcept {
  const auto known = [this](TokenId token) {
    return token >= 0 && static_cast<uint32_t>(token) < vocabulary_;
  };
  for (TokenId token : window) {
    if (known(token)) ++counts_[static_cast<size_t>(token)];
  }
  for (TokenId token : window) {
    if (!known(token)) continue;
    const size_t id = static_cast<size_t>(token);
    if (counts_[id] == 0) continue;  // already done
    float value = values_[id];
    // -infinity stays: dividing by a huge penalty, or multiplying by a tiny one, must not revive
    // it.
    if (value > -kInfinity) {
      value = value > 0 ? value / params.repetition_penalty : value * params.repetition_penalty;
      value -= static_cast<float>(counts_[id]) * params.frequency_penalty;
      value -= params.presence_penalty;
      values_[id] = value;
    }
    counts_[id] = 0;
  }
}

void Sampler::select_top(std::span<const float> values, size_t count) noexcept {
  INFERD_CHECK(count > 0);
  count = std::min(count, values.size());
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
  };
  // Candidates gather up to `capacity`, then all but the `count` best go; what is not above the
  // worst of those can no longer get in (an equal one has the higher id).
  const size_t capacity = std::min(values.size(), 2 * count + kBlock);
  float threshold = -kInfinity;
  candidates_.clear();
  for (size_t begin = 0; begin < values.size(); begin += kBlock) {
    const size_t end = std::min(begin + kBlock, values.size());
    if (!(block_maximum(&values[begin], end - begin) > threshold)) continue;
    for (size_t id = begin; id < end; ++id) {
      if (!(values[id] > threshold)) continue;
      if (candidates_.size() == capacity) {
        std::nth_element(candidates_.begin(),
                         candidates_.begin() + static_cast<ptrdiff_t>(count - 1), candidates_.end(),
                         better);
        candidates_.resize(count);
        threshold = candidates_[count - 1].logit;
        if (!(values[id] > threshold)) continue;
      }
      candidates_.push_back({values[id], static_cast<TokenId>(id)});
    }
  }
  if (candidates_.size() > count) {
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(count - 1),
                     candidates_.end(), better);
    candidates_.resize(count);
  }
  std::sort(candidates_.begin(), candidates_.end(), better);
}

double Sampler::weigh_all(std::span<const float> values, float maximum,
                          float temperature) noexcept {
  double total = 0;
  for (size_t begin = 0; begin < values.size(); begin += kBlock) {
    const size_t end = std::min(begin + kBlock, values.size());
    for (size_t id = begin; id < end; ++id) {
      weights_[id] = exp_approx((values[id] - maximum) / temperature);
    }
    const double sum = block_sum(&weights_[begin], end - begin);
    block_sums_[begin / kBlock] = sum;
    total += sum;
  }
  return total;
}

TokenId Sampler::draw(std::span<const float> values, TokenId best, const SamplingParams& params,
                      uint64_t position) noexcept {
  const float maximum = values[static_cast<size_t>(best)];
  if (params.top_k > 0 && params.top_k < vocabulary_) {
    select_top(values, params.top_k);
    double total = 0;
    for (const Candidate& candidate : candidates_) {
      total += static_cast<double>(exp_approx((candidate.logit - maximum) / params.temperature));
    }
    return draw_from_candidates(params, maximum, total, position);
  }
  const double total = weigh_all(values, maximum, params.temperature);
  if (params.top_p >= 1) return draw_from_all(params, position);
  const double wanted = static_cast<double>(params.top_p) * total;
  for (size_t count = kNucleusFirst;; count *= kNucleusGrowth) {
    select_top(values, count);
    double mass = 0;
    for (const Candidate& candidate : candidates_) {
      mass += static_cast<double>(weights_[static_cast<size_t>(candidate.token)]);
    }
    if (mass >= wanted || count >= vocabulary_) break;
  }
  return draw_from_candidates(params, maximum, total, position);
}

// From weights_ and block_sums_, every token kept but for min-p.
TokenId Sampler::draw_from_all(const SamplingParams& params, uint64_t position) noexcept {
  if (params.min_p > 0) {
    for (size_t begin = 0; begin < vocabulary_; begin += kBlock) {
      const size_t end = std::min<size_t>(begin + kBlock, vocabulary_);
      for (size_t id = begin; id < end; ++id) {
        weights_[id] = weights_[id] >= params.min_p ? weights_[id] : 0.0f;
      }
      block_sums_[begin / kBlock] = block_sum(&weights_[begin], end - begin);
    }
  }
  double mass = 0;
  for (double sum : block_sums_) mass += sum;
  const double target = uniform_at(params, position) * mass;
  // The block in which the running sum passes the target, or, where rounding makes it miss, the
  // last that has any mass; within it the same again.
  double passed = 0;
  double passed_before = 0;
  size_t block = 0;
  for (size_t b = 0; b < block_sums_.size(); ++b) {
    if (block_sums_[b] == 0) continue;
    block = b;
    passed_before = passed;
    passed += block_sums_[b];
    if (passed > target) break;
  }
  const size_t end = std::min<size_t>((block + 1) * kBlock, vocabulary_);
  passed = passed_before;
  size_t chosen = block * kBlock;
  for (size_t id = block * kBlock; id < end; ++id) {
    if (weights_[id] == 0) continue;
    chosen = id;
    passed += static_cast<double>(weights_[id]);
    if (passed > target) break;
  }
  return static_cast<TokenId>(chosen);
}

// From candidates_, sorted; `total` is the mass that top-p refers to.
TokenId Sampler::draw_from_candidates(const SamplingParams& params, float maximum, double total,
                                      uint64_t position) noexcept {
  INFERD_CHECK(!candidates_.empty());
  const auto weight = [&](const Candidate& candidate) {
    return exp_approx((candidate.logit - maximum) / params.temperature);
  };
  const double wanted = static_cast<double>(params.top_p) * total;
  size_t kept = 0;
  double mass = 0;
  while (kept < candidates_.size()) {
    const float next = weight(candidates_[kept]);
    if (kept > 0 && (next < params.min_p || (params.top_p < 1 && mass >= wanted))) break;
    mass += static_cast<double>(next);
    ++kept;
  }
  candidates_.resize(kept);
  std::sort(candidates_.begin(), candidates_.end(),
            [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  mass = 0;
  for (const Candidate& candidate : candidates_) mass += static_cast<double>(weight(candidate));
  const double target = uniform_at(params, position) * mass;
  TokenId chosen = candidates_.front().token;
  double passed = 0;
  for (const Candidate& candidate : candidates_) {
    const double share = static_cast<double>(weight(candidate));
    if (share == 0) continue;
    chosen = candidate.token;
    passed += share;
    if (passed > target) break;
  }
  return chosen;
}

SampleResult Sampler::score(std::span<const float> logits, TokenId token, uint32_t top_logprobs,
                            std::span<TokenLogprob> top_out) noexcept {
  INFERD_CHECK(logits.size() == vocabulary_);
  INFERD_CHECK(token >= 0 && static_cast<uint32_t>(token) < vocabulary_);
  SamplingParams params;
  params.want_logprobs = 1;
  params.top_logprobs = top_logprobs;
  SampleResult result;
  result.token = token;
  report_logprobs(logits, params, top_out, result);
  return result;
}

void Sampler::report_logprobs(std::span<const float> logits, const SamplingParams& params,
                              std::span<TokenLogprob> top_out, SampleResult& result) noexcept {
  const TokenId best = find_best(logits);
  if (best == kNoToken) {
    result.logprob = -kInfinity;
    return;
  }
  const float maximum = logits[static_cast<size_t>(best)];
  double log_sum = 0;
  if (maximum < kInfinity) {
    log_sum = log_wide(weigh_all(logits, maximum, 1));
  } else {
    // The limit: those at +infinity share the whole mass.
    log_sum = log_wide(static_cast<double>(std::count(logits.begin(), logits.end(), kInfinity)));
  }
  const auto logprob = [&](float logit) {
    if (logit == maximum) return static_cast<float>(-log_sum);
    if (!(logit > -kInfinity) || maximum == kInfinity) return -kInfinity;
    return static_cast<float>(static_cast<double>(logit) - static_cast<double>(maximum) - log_sum);
  };
  result.logprob =
      result.token == kNoToken ? -kInfinity : logprob(logits[static_cast<size_t>(result.token)]);
  const size_t wanted = std::min<size_t>(params.top_logprobs, top_out.size());
  if (wanted == 0) return;
  select_top(logits, wanted);
  for (const Candidate& candidate : candidates_) {
    top_out[result.top_count++] = {candidate.token, logprob(candidate.logit)};
  }
}

}  // namespace inferd::engine
