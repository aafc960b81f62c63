// The same over every weight type and over heads of many sizes and groups; and every instruction
// set that this processor runs gives the same bytes.
#include <gtest/gtest.h>

#include <array>

#include "jobs.h"
#include "lab.h"

namespace inferd::isolation {
namespace {

using formats::TensorType;

struct Shape {
  const char* name;
  TensorType type;
  uint32_t embedding, heads, kv_heads, head_dim, feed_forward, vocabulary;
};

constexpr std::array kShapes{
    // Every weight type. K-quants need widths that are multiples of 256.
    Shape{"F32", TensorType::kF32, 64, 4, 2, 16, 96, 384},
    Shape{"F16", TensorType::kF16, 64, 4, 2, 16, 96, 384},
    Shape{"BF16", TensorType::kBF16, 64, 4, 2, 16, 96, 384},
    Shape{"Q8_0", TensorType::kQ8_0, 64, 4, 2, 16, 96, 384},
    Shape{"Q4_0", TensorType::kQ4_0, 64, 4, 2, 16, 96, 384},
    Shape{"Q4_1", TensorType::kQ4_1, 64, 4, 2, 16, 96, 384},
    Shape{"Q5_0", TensorType::kQ5_0, 64, 4, 2, 16, 96, 384},
    Shape{"Q5_1", TensorType::kQ5_1, 64, 4, 2, 16, 96, 384},
    Shape{"Q4_K", TensorType::kQ4_K, 256, 4, 2, 64, 256, 384},
    Shape{"Q5_K", TensorType::kQ5_K, 256, 4, 2, 64, 256, 384},
    Shape{"Q6_K", TensorType::kQ6_K, 256, 4, 2, 64, 256, 384},
    // Heads: each with keys of its own, groups of 2 to 8, all with one; sizes that fill no
    // register.
    Shape{"OwnKeys32", TensorType::kQ8_0, 128, 4, 4, 32, 128, 384},
    Shape{"GroupOf3Heads64", TensorType::kQ4_0, 96, 9, 3, 64, 96, 384},
    Shape{"GroupOf4Heads80", TensorType::kQ8_0, 96, 8, 2, 80, 128, 384},
    Shape{"GroupOf7Heads24", TensorType::kF16, 64, 7, 1, 24, 96, 384},
    Shape{"OneKey96", TensorType::kQ5_1, 64, 8, 1, 96, 96, 384},
    Shape{"GroupOf2Heads128", TensorType::kBF16, 64, 4, 2, 128, 96, 384},
    Shape{"Heads256", TensorType::kQ8_0, 64, 2, 1, 256, 64, 384},
    Shape{"Heads2", TensorType::kF32, 40, 4, 2, 2, 24, 384},
    Shape{"NothingFits", TensorType::kF32, 52, 3, 1, 18, 75, 389},
};

class Shapes : public testing::TestWithParam<Shape> {
 protected:
  Shapes() : model_(made(GetParam())) {}

  static bench::MakeModelOptions made(const Shape& shape) {
    bench::MakeModelOptions options;
    options.type = shape.type;
    options.embedding = shape.embedding;
    options.heads = shape.heads;
    options.kv_heads = shape.kv_heads;
    options.head_dim = shape.head_dim;
    options.feed_forward = shape.feed_forward;
    options.vocabulary = shape.vocabulary;
    options.context = 1024;
    return options;
  }

  Result<std::unique_ptr<Lab>> open(uint32_t threads, uint32_t chunk_tokens,
                                    const std::string& isa) {
    LabOptions options;
    options.model = model_.path();
    options.threads = threads;
    options.isa = isa;
    options.sequences = 16;
    options.chunk_tokens = chunk_tokens;
    options.step_tokens = 2048;
    return Lab::create(options);
  }

  std::vector<Record> reference(std::span<const Job> jobs) {
    auto lab = open(1, 0, "auto");
    EXPECT_TRUE(lab.ok()) << lab.error().message();
    return lab.ok() ? (*lab)->run_alone(jobs) : std::vector<Record>();
  }

  TemporaryModel model_;
};

TEST_P(Shapes, NeitherNeighboursNorChunksNorThreadsMatter) {
  constexpr std::array<uint32_t, 8> kLengths{1, 15, 16, 17, 64, 65, 257, 513};
  const std::vector<Job> jobs = jobs_of(kLengths, GetParam().vocabulary, 3);
  const std::vector<Record> expected = reference(jobs);
  for (const auto& [threads, chunk] : {std::pair{2u, 0u}, {1u, 7u}, {2u, 64u}}) {
    SCOPED_TRACE(std::to_string(threads) + " threads, chunks of " + std::to_string(chunk));
    auto lab = open(threads, chunk, "auto");
    ASSERT_TRUE(lab.ok()) << lab.error().message();
    expect_equal(expected, (*lab)->run(jobs), jobs);
    std::vector<Job> all = jobs;
    for (size_t i = 0; i < all.size(); ++i)
      all[i].arrive_step = static_cast<uint32_t>(all.size() - i);
    for (const Job& visitor : visitors(90, GetParam().vocabulary, 4)) all.push_back(visitor);
    expect_equal(expected, (*lab)->run(all), all);
  }
}

TEST_P(Shapes, InstructionSetsAgree) {
  // The portable kernels are slow: past a split of positions only on the narrow models.
  std::vector<uint32_t> lengths{1, 16, 17, 66};
  if (GetParam().heads * GetParam().head_dim <= 64) lengths.push_back(261);
  const std::vector<Job> jobs = jobs_of(lengths, GetParam().vocabulary, 5);
  const std::vector<Record> expected = reference(jobs);
  uint32_t compared = 0;
  for (const char* isa : {"portable", "avx2", "avx512", "avx512vnni"}) {
    SCOPED_TRACE(isa);
    auto lab = open(2, 0, isa);
    if (!lab.ok()) {
      ASSERT_EQ(lab.error().code(), ErrorCode::kUnsupported) << lab.error().message();
      continue;
    }
    expect_equal(expected, (*lab)->run(jobs), jobs);
    ++compared;
  }
  EXPECT_GE(compared, 1u);
}

INSTANTIATE_TEST_SUITE_P(All, Shapes, testing::ValuesIn(kShapes),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace inferd::isolation
