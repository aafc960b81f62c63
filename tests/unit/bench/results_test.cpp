// Statistics, times of answers, and the NumPy writer.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/prng.h"
#include "bench/npy_writer.h"
#include "bench/roofline.h"
#include "bench/serve_client.h"
#include "bench/statistics.h"
#include "bench/timed_answer.h"

namespace inferd::bench {
namespace {

TEST(Statistics, PercentilesInterpolateBetweenNeighbours) {
  EXPECT_EQ(percentile({}, 0.5), 0);
  const std::vector<double> one = {3};
  EXPECT_EQ(percentile(one, 0.99), 3);
  const std::vector<double> values = {4, 1, 3, 2};
  EXPECT_EQ(median(values), 2.5);
  EXPECT_EQ(percentile(values, 0), 1);
  EXPECT_EQ(percentile(values, 1), 4);
  EXPECT_DOUBLE_EQ(percentile(values, 0.9), 3.7);
}

TEST(Statistics, AMediansIntervalIsThatOfTheSignTest) {
  EXPECT_EQ(median_interval({}).confidence, 0);
  std::vector<double> values;
  for (int i = 10; i >= 1; --i) values.push_back(i);
  // Ranks and confidence of 10 and of 30 values: Conover, table A3 (binomial, p = 0.5).
  const MedianInterval ten = median_interval(values);
  EXPECT_EQ(ten.median, 5.5);
  EXPECT_EQ(ten.low, 2);
  EXPECT_EQ(ten.high, 9);
  EXPECT_NEAR(ten.confidence, 1 - 2 * 11.0 / 1024, 1e-12);
  for (int i = 11; i <= 30; ++i) values.push_back(i);
  const MedianInterval thirty = median_interval(values);
  EXPECT_EQ(thirty.low, 10);
  EXPECT_EQ(thirty.high, 21);
  EXPECT_NEAR(thirty.confidence, 0.9572, 1e-4);
  EXPECT_GT(median_interval(values, 0.999).high, 21);
  // Too few for what was asked: everything, and the confidence says so.
  const MedianInterval three = median_interval(std::span(values).last(3));
  EXPECT_EQ(three.low, 28);
  EXPECT_EQ(three.high, 30);
  EXPECT_NEAR(three.confidence, 0.75, 1e-12);
  EXPECT_EQ(median_interval(std::vector<double>{4}).high, 4);
}

TEST(Statistics, AMediansIntervalHoldsItAsOftenAsItSays) {
  Prng prng(7);
  int held = 0;
  constexpr int kSamples = 4000;
  double confidence = 0;
  for (int i = 0; i < kSamples; ++i) {
    std::vector<double> values;
    for (int j = 0; j < 41; ++j) values.push_back(std::exp(4 * prng.uniform()));
    const MedianInterval interval = median_interval(values);
    confidence = interval.confidence;
    if (interval.low <= std::exp(2.0) && std::exp(2.0) <= interval.high) ++held;
  }
  EXPECT_NEAR(static_cast<double>(held) / kSamples, confidence, 0.01);
}

TEST(Statistics, TheDistanceOfTwoSamplesIsThatOfTheirDistributions) {
  const std::vector<double> values = {4, 1, 3, 2};
  EXPECT_EQ(ks_distance(values, {}), 0);
  EXPECT_EQ(ks_distance(values, values), 0);
  EXPECT_EQ(ks_distance(values, std::vector<double>{1, 1, 2, 2, 3, 3, 4, 4}), 0);
  EXPECT_EQ(ks_distance(values, std::vector<double>{5, 6}), 1);
  EXPECT_EQ(ks_distance(std::vector<double>{5, 6}, values), 1);
  // At 2: half of the one, none of the other.
  EXPECT_EQ(ks_distance(values, std::vector<double>{2.5, 3, 4, 5}), 0.5);
  // Ties count at once: after the ones it is 2/3 against 1/2.
  EXPECT_NEAR(ks_distance(std::vector<double>{1, 1, 2}, std::vector<double>{1, 2}), 1.0 / 6, 1e-12);
}

TEST(Statistics, SamplesOfOneDistributionExceedTheCriticalDistanceAsOftenAsTheLevelSays) {
  EXPECT_NEAR(ks_critical(100, 100), 1.3581 * std::sqrt(0.02), 1e-4);
  EXPECT_NEAR(ks_critical(50, 200, 0.01), 1.6276 * std::sqrt(250.0 / 10000), 1e-4);
  Prng prng(9);
  int exceeded = 0;
  constexpr int kPairs = 2000;
  for (int i = 0; i < kPairs; ++i) {
    std::vector<double> a;
    std::vector<double> b;
    for (int j = 0; j < 200; ++j) a.push_back(prng.uniform());
    for (int j = 0; j < 150; ++j) b.push_back(prng.uniform());
    if (ks_distance(a, b) > ks_critical(a.size(), b.size())) ++exceeded;
  }
  EXPECT_NEAR(static_cast<double>(exceeded) / kPairs, 0.05, 0.02);
}

TEST(TimedAnswer, TokensThatCameTogetherHaveZerosBetweenThem) {
  const std::vector<TokenArrival> arrivals = {{1'000'000, 1}, {3'000'000, 3}, {4'500'000, 1}};
  EXPECT_EQ(token_gaps_ms(arrivals), (std::vector<double>{2, 0, 0, 1.5}));
  EXPECT_TRUE(token_gaps_ms({}).empty());
  EXPECT_EQ((TimedAnswer{arrivals, 0, INFERD_FINISH_NONE}.tokens()), 5u);
}

TEST(NpyWriter, WritesWhatNumPyReads) {
  const std::string path = testing::TempDir() + "inferd_npy_" + std::to_string(getpid());
  const std::vector<float> values = {1, -2, 3.5f, 4, 5, 6};
  {
    Result<NpyWriter> writer = NpyWriter::create(path, 3, 2);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->append(std::span(values).first(2)).ok());
    ASSERT_TRUE(writer->append(std::span(values).subspan(2)).ok());
    ASSERT_TRUE(writer->finish().ok());
  }
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  ASSERT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const size_t header =
      static_cast<unsigned char>(bytes[8]) + 256u * static_cast<unsigned char>(bytes[9]);
  EXPECT_EQ((header + 10) % 64, 0u);
  EXPECT_EQ(bytes[9 + header], '\n');
  EXPECT_NE(bytes.find("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }"),
            std::string::npos);
  ASSERT_EQ(bytes.size(), 10 + header + 24);
  EXPECT_EQ(std::memcmp(bytes.data() + 10 + header, values.data(), 24), 0);
  unlink(path.c_str());
}

TEST(NpyWriter, NamesAFileThatCannotBeWritten) {
  const Result<NpyWriter> writer = NpyWriter::create("/nonexistent/folder/x.npy", 1, 1);
  ASSERT_FALSE(writer.ok());
  EXPECT_NE(writer.error().message().find("/nonexistent/folder/x.npy"), std::string::npos);
}

TEST(ServePrompt, SharesItsPrefixAndNothingElse) {
  ServeOptions options;
  options.shared_prefix = 40;
  options.prompt_tokens = 60;
  const std::vector<int32_t> a = serve_prompt(options, 0, 1000);
  const std::vector<int32_t> b = serve_prompt(options, 1, 1000);
  ASSERT_EQ(a.size(), 100u);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 40, b.begin()));
  EXPECT_FALSE(std::equal(a.begin() + 40, a.begin() + 44, b.begin() + 40));
  EXPECT_EQ(serve_prompt(options, 1, 1000), b);
  for (int32_t id : a) EXPECT_TRUE(id >= 0 && id < 1000);
}

TEST(Roofline, EveryMeasurementGivesARate) {
  const MachineFloor floor = measure_floor(2, Bytes(4 << 20));
  EXPECT_GT(floor.read_bytes_per_s, 0);
  EXPECT_EQ(floor.int8_ops_per_s > 0, int8_peak_kernel().run != nullptr);
  EXPECT_EQ(floor.f32_ops_per_s > 0, f32_peak_kernel().run != nullptr);
  EXPECT_EQ(floor.bf16_ops_per_s > 0, bf16_peak_kernel().run != nullptr);
}

}  // namespace
}  // namespace inferd::bench
