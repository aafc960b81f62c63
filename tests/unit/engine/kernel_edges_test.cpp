// Where vector kernels could part from the portable ones: codes at the ends of their range, values without ordinary
// size, rows that fill no tile, results that are added to what is there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/prng.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/packed.h"
#include "formats/gguf.h"
#include "tests/unit/engine/kernels_fixture.h"
#include "tests/unit/engine/vector_tables.h"

namespace inferd::engine::cpu {
namespace {

std::vector<float> multiply(const Kernels& kernels, TensorType type, const std::vector<uint8_t>& bytes, uint32_t rows,
                            const std::vector<float>& values, uint32_t tokens, const float* bias,
                            std::vector<float> out) {
  const auto columns = static_cast<uint32_t>(values.size() / tokens);
  const bool accumulate = !out.empty();
  out.resize(size_t{tokens} * rows);
  const Packed packed = pack(type, bytes, rows, columns, isa_lanes(kernels.isa));
  const Inputs in = make_inputs(kernels, values, tokens, columns);
  kernels.product(packed.matrix, 0, packed.matrix.tiles, in.view, tokens, {out.data(), rows, bias, accumulate});
  return out;
}

bool skips(const VectorTable& table, TensorType type) {
  return type == TensorType::kBF16 && table.kernels->to_bfloat != nullptr;  // see bfloat_test.cpp
}

class EveryTypesEdges : public testing::TestWithParam<TensorType> {};

// All weights' codes the smallest, or the largest, times inputs at both ends: 16-bit sums must not overflow.
TEST_P(EveryTypesEdges, ExtremeCodesSumExactly) {
  const TensorType type = GetParam();
  const auto* traits = formats::tensor_type_traits(type);
  if (traits->block_elements == 1) return;  // no codes
  constexpr uint32_t kRows = 17, kColumns = 512, kTokens = 5;
  std::vector<float> values(size_t{kTokens} * kColumns);
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t token = i / kColumns;
    values[i] = token == 0 ? (i % 32 == 0 ? -1.0f : 1.0f) : token == 1 ? (i % 32 == 0 ? 1.0f : -1.0f)
                : i % (token + 1) == 0 ? 2.0f : -2.0f;
  }
  for (const int fill : {0x00, 0x7F, 0x80, 0xFF}) {
    std::vector<uint8_t> bytes(size_t{kRows} * kColumns / traits->block_elements * traits->block_bytes,
                               static_cast<uint8_t>(fill));
    const uint16_t half = float_to_half_saturating(0.5f);
    for (size_t i = 0; i < bytes.size(); i += traits->block_bytes) {
      for (const size_t at : half_fields(type)) std::memcpy(bytes.data() + i + at, &half, 2);
    }
    const auto expected = multiply(kernels_for(Isa::kPortable), type, bytes, kRows, values, kTokens, nullptr, {});
    for (const VectorTable& table : vector_tables()) {
      EXPECT_TRUE(same_bits(multiply(*table.kernels, type, bytes, kRows, values, kTokens, nullptr, {}), expected))
          << table.name << " fill " << fill;
    }
  }
}

TEST_P(EveryTypesEdges, BiasAndResidualAreAddedToEveryRow) {
  const TensorType type = GetParam();
  Prng prng(31);
  constexpr uint32_t kColumns = 256, kTokens = 3;
  for (const uint32_t rows : {1u, 8u, 16u, 23u, 67u}) {
    const auto bytes = random_rows(type, rows, kColumns, prng);
    std::vector<float> values(size_t{kTokens} * kColumns), bias(rows), start(size_t{kTokens} * rows);
    for (auto* numbers : {&values, &bias, &start}) {
      for (float& number : *numbers) number = random_value(prng);
    }
    const auto expected = multiply(kernels_for(Isa::kPortable), type, bytes, rows, values, kTokens, bias.data(), start);
    for (const VectorTable& table : vector_tables()) {
      if (skips(table, type)) continue;
      EXPECT_TRUE(same_bits(multiply(*table.kernels, type, bytes, rows, values, kTokens, bias.data(), start), expected))
          << table.name << ' ' << rows << " rows";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, EveryTypesEdges, testing::ValuesIn(kTypes),
                         [](const auto& info) { return formats::tensor_type_name(info.param); });

// Float weights have no blocks: any number of columns goes, and more tokens than one run of the cache holds.
TEST(KernelEdges, FloatWeightsTakeAnyWidthAndManyTokens) {
  Prng prng(32);
  for (const auto& [columns, tokens] : {std::pair{1u, 3u}, {7u, 9u}, {100u, 2u}, {8200u, 8u}}) {
    for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16}) {
      const auto bytes = random_rows(type, 35, columns, prng);
      std::vector<float> values(size_t{tokens} * columns);
      for (float& value : values) value = random_value(prng);
      const Activations x{columns, values.data(), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
      std::vector<float> expected(size_t{tokens} * 35), got(expected.size());
      const Packed reference = pack(type, bytes, 35, columns, isa_lanes(Isa::kPortable));
      kernels_for(Isa::kPortable)
          .product(reference.matrix, 0, reference.matrix.tiles, x, tokens, {expected.data(), 35, nullptr, false});
      for (const VectorTable& table : vector_tables()) {
        if (skips(table, type)) continue;
        const Packed packed = pack(type, bytes, 35, columns, isa_lanes(table.kernels->isa));
        table.kernels->product(packed.matrix, 0, packed.matrix.tiles, x, tokens, {got.data(), 35, nullptr, false});
        EXPECT_TRUE(same_bits(got, expected)) << table.name << ' ' << columns << " columns";
      }
    }
  }
}

// Values at the limits of f32 and f16, at ties of rounding, and where the exponential is clamped.
std::vector<float> odd_values() {
  std::vector<float> values{0.0f,     -0.0f,    FLT_MIN,  -FLT_MIN, 1e-40f,   -1e-40f,  1e-30f,  -1e30f,   3e38f,   -3e38f,
                            65504.0f, 65519.0f, 65520.0f, -1e9f,    6.1e-5f,  5.9e-8f,  2.9e-8f, 2.98e-8f, 0.5f,    1.5f,
                            2.5f,     -0.5f,    79.99f,   80.0f,    80.01f,   87.9f,    88.0f,   88.1f,    -79.99f, -80.0f,
                            -80.01f,  -88.0f,   1000.0f,  -1000.0f, 2049.0f,  4098.0f,  1.0f,    -1.0f,    0.1f,    33.3f};
  for (int i = 0; i < 24; ++i) values.push_back(static_cast<float>(i) + 0.5f);
  return values;
}

TEST(KernelEdges, OddValuesGiveThePortableBits) {
  const std::vector<float> values = odd_values();
  ASSERT_EQ(values.size() % kBlock, 0u);
  const Kernels& portable = kernels_for(Isa::kPortable);
  const auto count = static_cast<uint32_t>(values.size());
  std::vector<float> up(count, 0.75f), gate = values;
  std::vector<uint16_t> halves(count);
  portable.silu_multiply(gate.data(), up.data(), count);
  portable.to_half(values.data(), count, halves.data());
  // A block of each value alone, and one in which it stands among ordinary ones.
  std::vector<float> blocks;
  for (const float value : values) {
    blocks.insert(blocks.end(), kBlock, value);
    for (uint32_t i = 0; i < kBlock; ++i) blocks.push_back(i == 7 ? value : static_cast<float>(i) - 13.5f);
  }
  const auto columns = static_cast<uint32_t>(blocks.size());
  const Inputs expected = make_inputs(portable, blocks, 1, columns);
  for (const VectorTable& table : vector_tables()) {
    std::vector<float> own = values;
    table.kernels->silu_multiply(own.data(), up.data(), count);
    EXPECT_TRUE(same_bits(own, gate)) << table.name;
    std::vector<uint16_t> got(count);
    table.kernels->to_half(values.data(), count, got.data());
    EXPECT_EQ(got, halves) << table.name;
    const Inputs in = make_inputs(*table.kernels, blocks, 1, columns);
    EXPECT_EQ(in.codes, expected.codes) << table.name;
    EXPECT_EQ(in.half_sums, expected.half_sums) << table.name;
    EXPECT_TRUE(same_bits(in.scales, expected.scales)) << table.name;
    EXPECT_TRUE(same_bits(in.offsets, expected.offsets)) << table.name;
    EXPECT_TRUE(same_bits(in.sums, expected.sums)) << table.name;
  }
}

TEST(KernelEdges, JoinedSplitsGiveThePortableBits) {
  Prng prng(33);
  for (const uint32_t head_dim : {16u, 48u, 256u}) {
    for (const float distance : {0.0f, 3.0f, -3.0f, 100.0f, -100.0f}) {
      std::vector<float> left(head_dim), right(head_dim);
      for (float& value : left) value = random_value(prng);
      for (float& value : right) value = random_value(prng);
      const auto joined = [&](const Kernels& kernels, bool first) {
        std::vector<float> state = left;
        float m1 = 1.25f, l1 = 3.5f;
        const float m2 = m1 + distance, l2 = 2.25f;
        kernels.attention_join(first, head_dim, &m1, &l1, state.data(), &m2, &l2, right.data());
        state.insert(state.end(), {m1, l1});
        return state;
      };
      for (const bool first : {false, true}) {
        const auto expected = joined(kernels_for(Isa::kPortable), first);
        for (const VectorTable& table : vector_tables()) {
          EXPECT_TRUE(same_bits(joined(*table.kernels, first), expected)) << table.name << ' ' << distance;
        }
      }
    }
  }
}

}  // namespace
}  // namespace inferd::engine::cpu
