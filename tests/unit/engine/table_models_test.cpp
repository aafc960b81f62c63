// A whole model, from file to logits, over every kernel table that can run here: its packing for that table's lanes,
// the operators around the kernels, a prompt in one step or in chunks.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include "bench/make_model.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/kv_arena.h"
#include "engine/cpu/weights.h"
#include "engine/cpu/worker_pool.h"
#include "engine/models/llama.h"
#include "formats/gguf.h"
#include "tests/unit/engine/kernels_fixture.h"
#include "tests/unit/engine/vector_tables.h"

namespace inferd::engine::cpu {
namespace {

constexpr uint32_t kTokens = 21;  // two pages

class ModelOverTables : public testing::TestWithParam<TensorType> {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() / ("inferd-table-models-" + std::to_string(::getpid()) + ".gguf");
    bench::MakeModelOptions options;
    options.type = GetParam();
    options.tied = true;
    const auto made = bench::make_model(options, path_);
    ASSERT_TRUE(made.ok()) << made.error().message();
  }
  void TearDown() override { std::filesystem::remove(path_); }

  // Logits of every position, the prompt taken in chunks.
  std::vector<float> logits(const Kernels& kernels, uint32_t chunk) const {
    const auto file = formats::GgufFile::open(path_);
    const auto config = LlamaModel::read_config(file.value());
    CpuWeightBuilder builder(file.value(), isa_lanes(kernels.isa));
    const auto model = LlamaModel::load(file.value(), config.value(), builder);
    WorkerPool pool(1);
    auto weights = builder.build(pool);
    const ModelShape& shape = config.value().shape;
    constexpr uint32_t kPages = (kTokens + kPageTokens - 1) / kPageTokens;
    auto arena = KvArena::create(kv_layout(shape), PageCount(kPages));
    std::vector<PageId> pages;
    for (uint32_t i = 0; i < kPages; ++i) pages.push_back(PageId(i));
    for (const PageId page : pages) arena.value().take(page);
    CpuBackend backend(shape, kernels, pool, weights.value(), arena.value(), kTokens, kTokens);
    std::vector<TokenId> tokens(kTokens);
    for (uint32_t i = 0; i < kTokens; ++i) tokens[i] = static_cast<TokenId>((i * 131 + 7) % shape.vocabulary);
    std::vector<float> all;
    for (uint32_t first = 0; first < kTokens; first += chunk) {
      const uint32_t count = std::min(chunk, kTokens - first);
      scheduler::BatchPlan plan;
      scheduler::BatchItem item;
      item.pages = pages;
      item.tokens = std::span(tokens).subspan(first, count);
      item.position_first = first;
      item.logits_count = plan.token_count = plan.logits_count = count;
      plan.items.push_back(item);
      backend.begin(plan);
      model.value().forward(backend);
      const auto rows = backend.logits_rows();
      all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
  }

  std::filesystem::path path_;
};

TEST_P(ModelOverTables, GivesTheSameLogitsOverEveryTableAndInAnyChunks) {
  const std::vector<float> expected = logits(kernels_for(Isa::kPortable), kTokens);
  ASSERT_FALSE(expected.empty());
  for (const VectorTable& table : vector_tables()) {
    const bool rounds = GetParam() == TensorType::kBF16 && table.kernels->to_bfloat != nullptr;
    const std::vector<float> whole = logits(*table.kernels, kTokens);
    if (!rounds) {
      EXPECT_TRUE(same_bits(whole, expected)) << table.name;
    }
    EXPECT_TRUE(same_bits(logits(*table.kernels, 4), whole)) << table.name;
    if (!rounds) continue;
    // Inputs of eight bits: other bits, but the same logits to a few thousandths of their size.
    EXPECT_FALSE(same_bits(whole, expected));
    ASSERT_EQ(whole.size(), expected.size());
    double error = 0, size = 0;
    for (size_t i = 0; i < whole.size(); ++i) {
      error += std::pow(double{whole[i]} - expected[i], 2);
      size += std::pow(double{expected[i]}, 2);
    }
    EXPECT_LT(std::sqrt(error / size), 0.01) << table.name;
  }
}

// One of each way to pack; kernels_test.cpp has them all.
INSTANTIATE_TEST_SUITE_P(Types, ModelOverTables,
                         testing::Values(TensorType::kF32, TensorType::kBF16, TensorType::kQ8_0, TensorType::kQ4_1,
                                         TensorType::kQ4_K, TensorType::kQ6_K),
                         [](const auto& info) { return formats::tensor_type_name(info.param); });

}  // namespace
}  // namespace inferd::engine::cpu
