// What the sampler promises: the documented order of its steps, determinism, ties, and what it does
// with logits that are no numbers. Compared with a slow implementation that sorts everything.
#include "engine/sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "base/prng.h"

namespace inferd::engine {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Roughly normal logits, quantized if `grid` > 0 so that ties are common.
std::vector<float> random_logits(Prng& prng, uint32_t vocabulary, double spread, double grid) {
  std::vector<float> logits(vocabulary);
  for (float& logit : logits) {
    double value = 0;
    for (int i = 0; i < 4; ++i) value += prng.uniform() - 0.5;
    value *= spread;
    if (grid > 0) value = std::round(value / grid) * grid;
    logit = static_cast<float>(value);
  }
  return logits;
}

// The kept tokens and their probabilities by the definition in sampler.h, with libm and full sorts.
std::map<TokenId, double> naive_distribution(std::vector<float> logits,
                                             const SamplingParams& params,
                                             std::span<const LogitBias> biases,
                                             std::span<const TokenId> history) {
  for (const LogitBias& bias : biases) logits[static_cast<size_t>(bias.token)] += bias.bias;
  std::map<TokenId, int> counts;
  for (size_t i = history.size() - std::min<size_t>(history.size(), params.penalty_last_n);
       i < history.size(); ++i) {
    if (history[i] >= 0 && static_cast<size_t>(history[i]) < logits.size()) ++counts[history[i]];
  }
  for (const auto& [token, count] : counts) {
    float& value = logits[static_cast<size_t>(token)];
    value = value > 0 ? value / params.repetition_penalty : value * params.repetition_penalty;
    value -= static_cast<float>(count) * params.frequency_penalty;
    value -= params.presence_penalty;
  }
  std::vector<TokenId> order;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (logits[id] > -kInf) order.push_back(static_cast<TokenId>(id));
  }
  const auto logit = [&](TokenId id) { return logits[static_cast<size_t>(id)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](TokenId a, TokenId b) { return logit(a) > logit(b); });
  if (order.empty()) return {};
  if (params.temperature == 0) return {{order[0], 1.0}};
  if (params.top_k > 0 && order.size() > params.top_k) order.resize(params.top_k);
  std::vector<double> weight;
  for (TokenId id : order) {
    weight.push_back(
        std::exp((static_cast<double>(logit(id)) - static_cast<double>(logit(order[0]))) /
                 static_cast<double>(params.temperature)));
  }
  if (params.top_p < 1) {
    const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
    double mass = 0;
    size_t kept = 0;
    do {
      mass += weight[kept++];
    } while (kept < weight.size() && mass < static_cast<double>(params.top_p) * total);
    weight.resize(kept);
  }
  size_t kept = 1;
  while (kept < weight.size() && weight[kept] >= static_cast<double>(params.min_p)) ++kept;
  weight.resize(kept);
  const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
  std::map<TokenId, double> distribution;
  for (size_t i = 0; i < kept; ++i) distribution[order[i]] = weight[i] / total;
  return distribution;
}

TokenId sample_at(Sampler& sampler, std::span<const float> logits, const SamplingParams& params,
                  uint64_t position) {
  return sampler.sample(logits, params, {}, {}, position, {}).token;
}

// Draws `draws` tokens and returns Pearson's statistic against `expected`; -1 if a token outside it
// came.
double chi_square(Sampler& sampler, std::span<const float> logits, const SamplingParams& params,
                  const std::map<TokenId, double>& expected, int draws) {
  std::map<TokenId, int> seen;
  for (int i = 0; i < draws; ++i)
    ++seen[sample_at(sampler, logits, params, static_cast<uint64_t>(i))];
  for (const auto& [token, count] : seen) {
    if (expected.count(token) == 0) return -1;
  }
  double statistic = 0;
  for (const auto& [token, probability] : expected) {
    const double mean = probability * draws;
    const double difference = seen[token] - mean;
    statistic += difference * difference / mean;
  }
  return statistic;
}

// Mean plus five standard deviations of the chi-square distribution.
double chi_square_limit(size_t cells) {
  const double degrees = static_cast<double>(cells) - 1;
  return degrees + 5 * std::sqrt(2 * degrees);
}

TEST(Sampler, GreedyTakesTheHighestAndTheLowestIdOfEqualOnes) {
  for (uint32_t vocabulary : {1u, 2u, 15u, 16u, 63u, 64u, 65u, 1000u, 49152u}) {
    Sampler sampler(vocabulary);
    Prng prng(vocabulary);
    for (int round = 0; round < 20; ++round) {
      const std::vector<float> logits = random_logits(prng, vocabulary, 8, 0.5);
      const auto best = std::max_element(logits.begin(), logits.end());
      EXPECT_EQ(sample_at(sampler, logits, {}, 7), best - logits.begin());
    }
  }
}

TEST(Sampler, KeepsExactlyTheTokensOfTheSlowImplementation) {
  // A draw can show only one token; a tiny vocabulary and many positions show the whole kept set.
  Prng prng(11);
  for (int round = 0; round < 300; ++round) {
    const uint32_t vocabulary = 2 + static_cast<uint32_t>(prng.below(90));
    Sampler sampler(vocabulary);
    const std::vector<float> logits = random_logits(prng, vocabulary, 3, prng.below(2) ? 0.25 : 0);
    SamplingParams params;
    params.temperature = 0.5f + static_cast<float>(prng.uniform());
    params.top_k = prng.below(2) ? static_cast<uint32_t>(1 + prng.below(vocabulary)) : 0;
    params.top_p = prng.below(2) ? static_cast<float>(prng.uniform()) : 1;
    params.min_p = prng.below(2) ? static_cast<float>(prng.uniform() * 0.3) : 0;
    params.seed = prng.next();
    const auto expected = naive_distribution(logits, params, {}, {});
    const double statistic = chi_square(sampler, logits, params, expected, 3000);
    ASSERT_GE(statistic, 0) << "round " << round << ": a token outside the kept set was drawn";
    ASSERT_LE(statistic, chi_square_limit(expected.size()) + 25) << "round " << round;
  }
}

TEST(Sampler, DrawsFollowTheDistribution) {
  Prng prng(5);
  const uint32_t vocabulary = 200;
  Sampler sampler(vocabulary);
  const std::vector<float> logits = random_logits(prng, vocabulary, 2, 0);
  SamplingParams plain;
  plain.temperature = 1;
  plain.seed = 42;
  SamplingParams cut = plain;
  cut.temperature = 0.7f;
  cut.top_k = 50;
  cut.top_p = 0.9f;
  for (const SamplingParams& params : {plain, cut}) {
    const auto expected = naive_distribution(logits, params, {}, {});
    const double statistic = chi_square(sampler, logits, params, expected, 100000);
    EXPECT_GE(statistic, 0);
    EXPECT_LE(statistic, chi_square_limit(expected.size()));
  }
}

TEST(Sampler, DrawFollowsTheCumulativeSumInIdOrder) {
  // The same u over a large vocabulary must land on the token that the slow sum lands on, whichever
  // path (all tokens, nucleus, top-k) computes it. u is recovered with a two-way split.
  Prng prng(23);
  const uint32_t vocabulary = 5000;
  Sampler sampler(vocabulary);
  int near_boundary = 0;
  for (int round = 0; round < 300; ++round) {
    const std::vector<float> logits = random_logits(prng, vocabulary, 6, 0);
    SamplingParams params;
    params.temperature = 0.3f + static_cast<float>(prng.uniform());
    params.seed = prng.next();
    params.branch = static_cast<uint32_t>(prng.below(4));
    const uint64_t position = prng.below(100000);
    const auto bits =
        philox4x32({static_cast<uint32_t>(position), 0, params.branch, 0},
                   {static_cast<uint32_t>(params.seed), static_cast<uint32_t>(params.seed >> 32)});
    const double u =
        static_cast<double>((static_cast<uint64_t>(bits[0]) << 32 | bits[1]) >> 11) * 0x1.0p-53;
    if (round % 3 == 1) params.top_p = 0.95f;
    if (round % 3 == 2) params.top_k = 700;
    const auto distribution = naive_distribution(logits, params, {}, {});
    double passed = 0;
    TokenId expected = kNoToken;
    double margin = 1;
    for (const auto& [token, probability] : distribution) {
      margin = std::min(margin, std::abs(passed + probability - u));
      passed += probability;
      if (expected == kNoToken && passed > u) expected = token;
    }
    if (margin < 1e-5) {
      ++near_boundary;  // the polynomial's last bit may decide
      continue;
    }
    ASSERT_EQ(sample_at(sampler, logits, params, position), expected) << "round " << round;
  }
  EXPECT_LT(near_boundary, 100);
}

TEST(Sampler, TiesAtTheEdgeOfTopKFallToTheLowestId) {
  const uint32_t vocabulary = 300;
  Sampler sampler(vocabulary);
  std::vector<float> logits(vocabulary, 1.0f);
  logits[299] = 2.0f;
  SamplingParams params;
  params.temperature = 100;
  params.top_k = 4;
  std::map<TokenId, int> seen;
  for (uint64_t position = 0; position < 500; ++position) {
    ++seen[sample_at(sampler, logits, params, position)];
  }
  ASSERT_EQ(seen.size(), 4u);
  for (TokenId token : {0, 1, 2, 299}) EXPECT_GT(seen[token], 0);
}

TEST(Sampler, NucleusGrowsUntilItsMassIsReached) {
  // All equal: 90 % of the mass needs 90 % of the tokens, the lowest ids.
  const uint32_t vocabulary = 2000;
  Sampler sampler(vocabulary);
  const std::vector<float> logits(vocabulary, 0.0f);
  SamplingParams params;
  params.temperature = 1;
  params.top_p = 0.9f;
  TokenId highest = 0;
  for (uint64_t position = 0; position < 4000; ++position) {
    highest = std::max(highest, sample_at(sampler, logits, params, position));
  }
  EXPECT_LE(highest, 1800);
  EXPECT_GT(highest, 1780);
}

TEST(Sampler, PenaltiesAndBiasesActAsDefined) {
  Prng prng(31);
  const uint32_t vocabulary = 64;
  Sampler sampler(vocabulary);
  for (int round = 0; round < 500; ++round) {
    const std::vector<float> logits = random_logits(prng, vocabulary, 4, 0);
    SamplingParams params;
    params.repetition_penalty = prng.below(2) ? 1.0f : 0.7f + static_cast<float>(prng.uniform());
    params.presence_penalty = static_cast<float>(prng.uniform() - 0.3);
    params.frequency_penalty = static_cast<float>(prng.uniform() - 0.3);
    params.penalty_last_n = static_cast<uint32_t>(prng.below(40));
    std::vector<TokenId> history(prng.below(60));
    for (TokenId& token : history) token = static_cast<TokenId>(prng.below(vocabulary + 4)) - 2;
    std::vector<LogitBias> biases(prng.below(5));
    for (LogitBias& bias : biases) {
      bias.token = static_cast<TokenId>(prng.below(vocabulary));
      bias.bias = prng.below(3) ? static_cast<float>(prng.uniform() * 4 - 2) : -kInf;
    }
    const auto expected = naive_distribution(logits, params, biases, history);
    const TokenId got = sampler.sample(logits, params, biases, history, 1, {}).token;
    ASSERT_EQ(got, expected.begin()->first) << "round " << round;
  }
}

TEST(Sampler, OnlyTheLastTokensOfTheHistoryCount) {
  Sampler sampler(8);
  const std::vector<float> logits = {0, 5, 4, 0, 0, 0, 0, 0};
  SamplingParams params;
  params.presence_penalty = 2;
  params.penalty_last_n = 3;
  const std::vector<TokenId> inside = {0, 1, 0, 0};
  const std::vector<TokenId> outside = {1, 0, 0, 0};
  EXPECT_EQ(sampler.sample(logits, params, {}, inside, 4, {}).token, 2);
  EXPECT_EQ(sampler.sample(logits, params, {}, outside, 4, {}).token, 1);
  params.penalty_last_n = 0;
  EXPECT_EQ(sampler.sample(logits, params, {}, inside, 4, {}).token, 1);
}

TEST(Sampler, AForbiddenTokenIsNeverRevivedByAPenalty) {
  Sampler sampler(3);
  const std::vector<float> logits = {1, 3, 2};
  const std::vector<LogitBias> biases = {{1, -kInf}};
  const std::vector<TokenId> history = {1, 1};
  SamplingParams params;
  params.frequency_penalty = -100;
  params.repetition_penalty = 1.5f;
  EXPECT_EQ(sampler.sample(logits, params, biases, history, 2, {}).token, 2);
  params.temperature = 50;
  for (uint64_t position = 0; position < 200; ++position) {
    EXPECT_NE(sampler.sample(logits, params, biases, history, position, {}).token, 1);
  }
}

TEST(Sampler, ResultDependsOnNothingButTheArguments) {
  Prng prng(77);
  const uint32_t vocabulary = 3000;
  Sampler used(vocabulary);
  for (int round = 0; round < 100; ++round) {
    const std::vector<float> logits = random_logits(prng, vocabulary, 5, 0.125);
    SamplingParams params;
    params.temperature = prng.below(4) ? static_cast<float>(prng.uniform() * 2) : 0;
    params.top_k = static_cast<uint32_t>(prng.below(3) * 20);
    params.top_p = prng.below(2) ? 0.8f : 1;
    params.min_p = prng.below(2) ? 0.05f : 0;
    params.repetition_penalty = 1.1f;
    params.seed = prng.next();
    params.top_logprobs = 5;
    const std::vector<TokenId> history = {1, 2, 3, 4, 4, 4};
    std::array<TokenLogprob, 5> top_a;
    std::array<TokenLogprob, 5> top_b;
    Sampler fresh(vocabulary);
    const SampleResult a = used.sample(logits, params, {}, history, 9, top_a);
    const SampleResult b = fresh.sample(logits, params, {}, history, 9, top_b);
    ASSERT_EQ(a.token, b.token);
    ASSERT_EQ(a.logprob, b.logprob);
    ASSERT_EQ(a.top_count, b.top_count);
    for (size_t i = 0; i < a.top_count; ++i) {
      ASSERT_EQ(top_a[i].token, top_b[i].token);
      ASSERT_EQ(top_a[i].logprob, top_b[i].logprob);
    }
  }
}

TEST(Sampler, SeedBranchAndPositionEachChangeTheDraw) {
  const uint32_t vocabulary = 10000;
  Sampler sampler(vocabulary);
  const std::vector<float> logits(vocabulary, 0.0f);
  SamplingParams params;
  params.temperature = 1;
  const TokenId base = sample_at(sampler, logits, params, 100);
  EXPECT_EQ(sample_at(sampler, logits, params, 100), base);
  EXPECT_NE(sample_at(sampler, logits, params, 101), base);
  EXPECT_NE(sample_at(sampler, logits, params, 100 + (1ull << 32)), base);
  params.branch = 1;
  EXPECT_NE(sample_at(sampler, logits, params, 100), base);
  params.branch = 0;
  params.seed = 1ull << 32;
  EXPECT_NE(sample_at(sampler, logits, params, 100), base);
}

// Golden draws: a change here changes the tokens that a seed gives, which users keep.
TEST(Sampler, GivenSeedsGiveTheseTokensForEver) {
  const uint32_t vocabulary = 1000;
  Sampler sampler(vocabulary);
  std::vector<float> logits(vocabulary);
  for (uint32_t id = 0; id < vocabulary; ++id) {
    logits[id] = static_cast<float>((id * 7919) % 1000) / 125.0f;
  }
  SamplingParams params;
  params.temperature = 0.75f;
  params.top_p = 0.875f;
  params.seed = 2026;
  std::vector<TokenId> tokens;
  for (uint64_t position = 0; position < 8; ++position) {
    tokens.push_back(sample_at(sampler, logits, params, position));
  }
  EXPECT_EQ(tokens, (std::vector<TokenId>{433, 988, 692, 741, 632, 321, 988, 815}));
}

TEST(Sampler, LogitsThatAreNoNumbersAreNeverChosen) {
  const uint32_t vocabulary = 130;
  Sampler sampler(vocabulary);
  std::vector<float> logits(vocabulary, kNan);
  for (size_t id = 1; id < vocabulary; id += 2) logits[id] = -kInf;
  SamplingParams cut;
  cut.temperature = 1;
  cut.top_k = 3;
  SamplingParams nucleus;
  nucleus.temperature = 1;
  nucleus.top_p = 0.5f;
  SamplingParams plain;
  plain.temperature = 1;
  plain.min_p = 0.1f;
  plain.want_logprobs = 1;
  plain.top_logprobs = 4;
  std::array<TokenLogprob, 4> top;
  for (const SamplingParams& params : {SamplingParams{}, cut, nucleus, plain}) {
    const SampleResult result = sampler.sample(logits, params, {}, {}, 0, top);
    EXPECT_EQ(result.token, kNoToken);
    EXPECT_EQ(result.top_count, 0u);
  }
  logits[77] = -1e30f;
  for (const SamplingParams& params : {SamplingParams{}, cut, nucleus, plain}) {
    const SampleResult result = sampler.sample(logits, params, {}, {}, 0, top);
    EXPECT_EQ(result.token, 77);
    EXPECT_EQ(result.logprob, 0);
    EXPECT_EQ(result.top_count, params.top_logprobs > 0 ? 1u : 0u);
  }
  logits[99] = kInf;
  logits[88] = kInf;
  for (const SamplingParams& params : {SamplingParams{}, cut, nucleus, plain}) {
    const SampleResult result = sampler.sample(logits, params, {}, {}, 0, top);
    EXPECT_EQ(result.token, 88);
    if (params.want_logprobs != 0) {
      EXPECT_FLOAT_EQ(result.logprob, std::log(0.5f));
      EXPECT_EQ(top[0].token, 88);
      EXPECT_EQ(top[1].token, 99);
      EXPECT_EQ(top[2].logprob, -kInf);
    }
  }
}

TEST(Sampler, ExtremeTemperaturesStayDefined) {
  Sampler sampler(100);
  std::vector<float> logits(100);
  for (size_t id = 0; id < 100; ++id) logits[id] = static_cast<float>(id % 50);
  SamplingParams params;
  params.temperature = std::numeric_limits<float>::denorm_min();
  std::map<TokenId, int> cold;
  for (uint64_t p = 0; p < 200; ++p) ++cold[sample_at(sampler, logits, params, p)];
  EXPECT_EQ(cold.size(), 2u);  // 49 and 99 tie
  params.temperature = std::numeric_limits<float>::max();
  std::map<TokenId, int> hot;
  for (uint64_t p = 0; p < 3000; ++p) ++hot[sample_at(sampler, logits, params, p)];
  EXPECT_EQ(hot.size(), 100u);
}

TEST(Sampler, LogProbabilitiesAreThoseOfTheUnmodifiedLogits) {
  Prng prng(3);
  for (uint32_t vocabulary : {5u, 64u, 1001u, 49152u}) {
    Sampler sampler(vocabulary);
    const std::vector<float> logits = random_logits(prng, vocabulary, 10, 0.0625);
    const float maximum = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (float logit : logits) sum += std::exp(static_cast<double>(logit - maximum));
    const auto expected = [&](TokenId token) {
      return static_cast<double>(logits[static_cast<size_t>(token)] - maximum) - std::log(sum);
    };
    std::vector<TokenId> order(vocabulary);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    SamplingParams params;
    params.temperature = 1.5f;
    params.want_logprobs = 1;
    params.top_logprobs = kTopLogprobsMax;
    params.presence_penalty = 3;
    const std::vector<TokenId> history = {order[0]};
    std::array<TokenLogprob, kTopLogprobsMax> top;
    const SampleResult result = sampler.sample(logits, params, {}, history, 12, top);
    EXPECT_NEAR(static_cast<double>(result.logprob), expected(result.token), 4e-6);
    ASSERT_EQ(result.top_count, std::min(vocabulary, kTopLogprobsMax));
    for (size_t i = 0; i < result.top_count; ++i) {
      EXPECT_EQ(top[i].token, order[i]);
      EXPECT_NEAR(static_cast<double>(top[i].logprob), expected(order[i]), 4e-6);
    }
  }
}

TEST(Sampler, AGivenTokenScoresWhatItWouldHaveHadHadItBeenDrawn) {
  Prng prng(77);
  Sampler sampler(200);
  const std::vector<float> logits = random_logits(prng, 200, 8, 0);
  SamplingParams params;
  params.temperature = 1;
  params.want_logprobs = 1;
  params.top_logprobs = 3;
  std::array<TokenLogprob, 3> drawn_top, given_top;
  for (uint64_t position = 0; position < 50; ++position) {
    const SampleResult drawn = sampler.sample(logits, params, {}, {}, position, drawn_top);
    const SampleResult given = sampler.score(logits, drawn.token, 3, given_top);
    EXPECT_EQ(given.token, drawn.token);
    EXPECT_EQ(given.logprob, drawn.logprob);
    ASSERT_EQ(given.top_count, 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(given_top[i].token, drawn_top[i].token);
      EXPECT_EQ(given_top[i].logprob, drawn_top[i].logprob);
    }
  }
  EXPECT_EQ(sampler.score(logits, 5, 0, given_top).top_count, 0u);
}

TEST(Sampler, NothingIsReportedThatWasNotAskedFor) {
  Sampler sampler(4);
  const std::vector<float> logits = {0, 1, 2, 3};
  std::array<TokenLogprob, 2> top;
  const SampleResult result = sampler.sample(logits, {}, {}, {}, 0, top);
  EXPECT_EQ(result.logprob, 0);
  EXPECT_EQ(result.top_count, 0u);
  SamplingParams params;
  params.top_logprobs = 4;
  EXPECT_EQ(sampler.sample(logits, params, {}, {}, 0, top).top_count, 2u);
}

TEST(CheckSampling, RefusesWhatIsOutOfRangeByName) {
  const auto refused = [](auto change, const char* name) {
    SamplingParams params;
    change(params);
    const Result<void> result = check_sampling(params, {}, 100);
    ASSERT_FALSE(result.ok()) << name;
    EXPECT_EQ(result.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(result.error().message().find(name), std::string::npos) << result.error().message();
  };
  EXPECT_TRUE(check_sampling({}, {}, 100).ok());
  refused([](SamplingParams& p) { p.temperature = -1; }, "temperature");
  refused([](SamplingParams& p) { p.temperature = kInf; }, "temperature");
  refused([](SamplingParams& p) { p.temperature = kNan; }, "temperature");
  refused([](SamplingParams& p) { p.top_p = 1.5f; }, "top_p");
  refused([](SamplingParams& p) { p.min_p = -0.1f; }, "min_p");
  refused([](SamplingParams& p) { p.repetition_penalty = 0; }, "repetition_penalty");
  refused([](SamplingParams& p) { p.presence_penalty = kNan; }, "presence_penalty");
  refused([](SamplingParams& p) { p.frequency_penalty = -kInf; }, "frequency_penalty");
  refused([](SamplingParams& p) { p.top_logprobs = 21; }, "top_logprobs");
  const std::vector<LogitBias> outside = {{100, 1}};
  EXPECT_FALSE(check_sampling({}, outside, 100).ok());
  const std::vector<LogitBias> infinite = {{0, kInf}};
  EXPECT_FALSE(check_sampling({}, infinite, 100).ok());
  const std::vector<LogitBias> forbidding = {{0, -kInf}};
  EXPECT_TRUE(check_sampling({}, forbidding, 100).ok());
  const std::vector<LogitBias> many(kLogitBiasMax + 1, LogitBias{0, 1});
  EXPECT_FALSE(check_sampling({}, many, 100).ok());
}

}  // namespace
}  // namespace inferd::engine
