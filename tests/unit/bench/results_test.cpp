// Statistics and the NumPy writer.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>

#include "bench/npy_writer.h"
#include "bench/roofline.h"
#include "bench/serve_client.h"
#include "bench/statistics.h"

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
