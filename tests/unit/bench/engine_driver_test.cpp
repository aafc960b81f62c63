// The driver hands the engine what the measurements mean: rows in order, whatever the step size.
#include "bench/engine_driver.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "bench/make_model.h"
#include "bench/model_shape.h"

namespace inferd::bench {
namespace {

class EngineDriverTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "inferd_driver_" + std::to_string(getpid()) + ".gguf";
    MakeModelOptions options;
    options.type = formats::TensorType::kQ8_0;
    const Result<void> made = make_model(options, path_);
    ASSERT_TRUE(made.ok()) << made.error().message();
  }
  void TearDown() override { unlink(path_.c_str()); }

  std::unique_ptr<EngineDriver> open(uint32_t step_tokens, uint32_t step_logits) {
    DriverOptions options;
    options.model = path_;
    options.threads = 1;
    options.sequences = 2;
    options.sequence_tokens = 100;
    options.step_tokens = step_tokens;
    options.step_logits = step_logits;
    Result<std::unique_ptr<EngineDriver>> driver = EngineDriver::create(options);
    EXPECT_TRUE(driver.ok());
    return std::move(driver).value();
  }

  static std::vector<TokenId> tokens(size_t count) {
    std::vector<TokenId> ids;
    for (size_t i = 0; i < count; ++i) ids.push_back(static_cast<TokenId>(i * 37 % 500));
    return ids;
  }

  static std::vector<float> score(EngineDriver& driver, std::span<const TokenId> ids,
                                  uint32_t wanted) {
    std::vector<float> rows;
    driver.append(driver.sequences()[0], ids, wanted, [&](std::span<const float> logits) {
      rows.insert(rows.end(), logits.begin(), logits.end());
    });
    return rows;
  }

  std::string path_;
};

TEST_F(EngineDriverTest, RowsAreTheSameHoweverTheyAreCutIntoSteps) {
  const std::vector<TokenId> ids = tokens(90);
  const auto whole = open(90, 90);
  const std::vector<float> expected = score(*whole, ids, 50);
  ASSERT_EQ(expected.size(), 50u * whole->info().vocabulary);
  for (const auto& [step_tokens, step_logits] : {std::pair{7u, 7u}, {64u, 3u}, {90u, 1u}}) {
    const auto driver = open(step_tokens, step_logits);
    EXPECT_EQ(score(*driver, ids, 50), expected) << step_tokens << " " << step_logits;
    EXPECT_EQ(driver->sequences()[0].tokens, 90u);
  }
}

TEST_F(EngineDriverTest, ACopyGoesOnAsTheOriginal) {
  const std::vector<TokenId> ids = tokens(37);
  const auto driver = open(64, 2);
  score(*driver, ids, 0);
  driver->copy(driver->sequences()[0], driver->sequences()[1]);
  ASSERT_EQ(driver->sequences()[1].tokens, 37u);
  const std::vector<TokenId> next = {5, 5};
  const std::span<const float> logits = driver->decode(next);
  const size_t vocabulary = driver->info().vocabulary;
  ASSERT_EQ(logits.size(), 2 * vocabulary);
  EXPECT_TRUE(std::equal(logits.begin(), logits.begin() + static_cast<ptrdiff_t>(vocabulary),
                         logits.begin() + static_cast<ptrdiff_t>(vocabulary)));
}

TEST_F(EngineDriverTest, ASetBackSequenceForgetsWhatCameAfter) {
  const std::vector<TokenId> ids = tokens(60);
  const auto driver = open(64, 60);
  const std::vector<float> expected = score(*driver, ids, 60);
  EngineDriver::set_length(driver->sequences()[0], 20);
  const std::vector<float> again = score(*driver, std::span(ids).subspan(20), 40);
  EXPECT_TRUE(std::equal(again.begin(), again.end(),
                         expected.end() - static_cast<ptrdiff_t>(again.size())));
}

TEST_F(EngineDriverTest, RefusesMoreThanTheContext) {
  DriverOptions options;
  options.model = path_;
  options.sequence_tokens = 1 << 20;
  const auto driver = EngineDriver::create(options);
  ASSERT_FALSE(driver.ok());
  EXPECT_NE(driver.error().message().find("2048"), std::string::npos) << driver.error().message();
}

TEST_F(EngineDriverTest, ShapeCountsTheLayersProducts) {
  const Result<ModelShape> shape = read_model_shape(path_);
  ASSERT_TRUE(shape.ok());
  EXPECT_EQ(shape->kind, WeightKind::kInt8);
  // Two layers of width 256: q and attention output 256 x 256, k and v 256 x 128, three of 256 x
  // 512.
  const double layer = 2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 512;
  EXPECT_EQ(shape->layer_ops_per_token, 2 * 2 * layer);
}

}  // namespace
}  // namespace inferd::bench
