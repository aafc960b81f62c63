// Every instruction set's kernels give the portable kernels' bits, and packing loses nothing.
#include "engine/cpu/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/ids.h"
#include "base/prng.h"
#include "engine/cpu/isa.h"
#include "engine/cpu/packed.h"
#include "formats/dequantize.h"
#include "formats/gguf.h"
#include "tests/unit/engine/kernels_fixture.h"
#include "tests/unit/engine/vector_tables.h"

namespace inferd::engine::cpu {
namespace {

class EveryType : public testing::TestWithParam<TensorType> {};

TEST_P(EveryType, PackedRowsUnpackToTheBitsOfTheFilesForm) {
  Prng prng(11);
  constexpr uint32_t kRows = 21, kColumns = 512;
  const auto bytes = random_rows(GetParam(), kRows, kColumns, prng);
  std::vector<float> expected(size_t{kRows} * kColumns);
  ASSERT_TRUE(formats::dequantize(GetParam(), bytes, expected).ok());
  for (const uint32_t lanes : {8u, 16u}) {
    const Packed packed = pack(GetParam(), bytes, kRows, kColumns, lanes);
    for (uint32_t row = 0; row < kRows; ++row) {
      std::vector<float> got(kColumns);
      unpack_row(packed.matrix, row, got.data());
      EXPECT_EQ(std::memcmp(got.data(), expected.data() + size_t{row} * kColumns, kColumns * 4), 0) << row;
    }
  }
}

TEST_P(EveryType, ProductIsThatOfTheDequantizedWeights) {
  Prng prng(12);
  constexpr uint32_t kRows = 19, kColumns = 512, kTokens = 3;
  const auto bytes = random_rows(GetParam(), kRows, kColumns, prng);
  std::vector<float> weights(size_t{kRows} * kColumns), values(size_t{kTokens} * kColumns);
  ASSERT_TRUE(formats::dequantize(GetParam(), bytes, weights).ok());
  for (float& value : values) value = random_value(prng);
  const Kernels& kernels = kernels_for(detect_isa());
  const Packed packed = pack(GetParam(), bytes, kRows, kColumns, isa_lanes(kernels.isa));
  const Inputs in = make_inputs(kernels, values, kTokens, kColumns);
  std::vector<float> out(size_t{kTokens} * kRows);
  kernels.product(packed.matrix, 0, packed.matrix.tiles, in.view, kTokens, {out.data(), kRows, nullptr, false});
  for (uint32_t t = 0; t < kTokens; ++t) {
    for (uint32_t r = 0; r < kRows; ++r) {
      double sum = 0, size = 0;
      for (uint32_t k = 0; k < kColumns; ++k) {
        const double term = double{weights[size_t{r} * kColumns + k]} * values[size_t{t} * kColumns + k];
        sum += term;
        size += std::fabs(term);
      }
      // Eight-bit inputs are within 1/254 of their block's largest; exact inputs within rounding.
      const double tolerance = packed.matrix.quantized() ? size / 100 : size * 1e-6;
      EXPECT_NEAR(out[size_t{t} * kRows + r], sum, tolerance) << "token " << t << " row " << r;
    }
  }
}

TEST_P(EveryType, InstructionSetAndBatchDoNotChangeABit) {
  Prng prng(13);
  constexpr uint32_t kRows = 45, kColumns = 768, kTokens = 17;
  const auto bytes = random_rows(GetParam(), kRows, kColumns, prng);
  std::vector<float> values(size_t{kTokens} * kColumns);
  // Some blocks to one side of zero, one of equal values, one of zeros.
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t block = i / kBlock;
    values[i] = block == 3 ? 0 : block == 4 ? -7.5f : random_value(prng) * 30 + (block % 3 == 0 ? 90.0f : 0.0f);
  }
  const Kernels& portable = kernels_for(Isa::kPortable);
  const Packed reference = pack(GetParam(), bytes, kRows, kColumns, isa_lanes(Isa::kPortable));
  const Inputs in = make_inputs(portable, values, kTokens, kColumns);
  std::vector<float> expected(size_t{kTokens} * kRows);
  portable.product(reference.matrix, 0, reference.matrix.tiles, in.view, kTokens,
                   {expected.data(), kRows, nullptr, false});
  for (const VectorTable& table : vector_tables()) {
    const Kernels& kernels = *table.kernels;
    if (GetParam() == TensorType::kBF16 && kernels.to_bfloat != nullptr) continue;  // see bfloat_test.cpp
    const Packed packed = pack(GetParam(), bytes, kRows, kColumns, isa_lanes(kernels.isa));
    const Inputs own = make_inputs(kernels, values, kTokens, kColumns);
    ASSERT_EQ(own.codes, in.codes);
    ASSERT_TRUE(same_bits(own.scales, in.scales) && same_bits(own.offsets, in.offsets));
    ASSERT_TRUE(same_bits(own.sums, in.sums));
    ASSERT_EQ(own.half_sums, in.half_sums);
    for (uint32_t batch = 1; batch <= kTokens; ++batch) {
      std::vector<float> out(expected.size());
      for (uint32_t first = 0; first < kTokens; first += batch) {
        const uint32_t count = std::min(batch, kTokens - first);
        Activations x = own.view;
        x.values += size_t{first} * kColumns;
        x.codes += size_t{first} * kColumns;
        x.scales += size_t{first} * kColumns / kBlock;
        x.offsets += size_t{first} * kColumns / kBlock;
        x.sums += size_t{first} * kColumns / kBlock;
        x.half_sums += size_t{first} * kColumns / 16;
        // Tiles in two halves, as two threads would take them.
        const uint32_t middle = packed.matrix.tiles / 2;
        const ProductOut to{out.data() + size_t{first} * kRows, kRows, nullptr, false};
        kernels.product(packed.matrix, middle, packed.matrix.tiles, x, count, to);
        kernels.product(packed.matrix, 0, middle, x, count, to);
      }
      EXPECT_TRUE(same_bits(out, expected)) << table.name << " batch " << batch;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, EveryType, testing::ValuesIn(kTypes),
                         [](const auto& info) { return formats::tensor_type_name(info.param); });

TEST(Kernels, ElementwiseOperatorsAgreeOverInstructionSets) {
  Prng prng(14);
  const Kernels& portable = kernels_for(Isa::kPortable);
  for (const uint32_t count : {1u, 15u, 16u, 100u, 576u}) {
    std::vector<float> x(count), weight(count), expected(count), gate(count);
    for (uint32_t i = 0; i < count; ++i) {
      x[i] = random_value(prng) * 20;
      weight[i] = random_value(prng);
    }
    portable.rms_norm(x.data(), weight.data(), count, 1e-5f, expected.data());
    gate = x;
    portable.silu_multiply(gate.data(), weight.data(), count);
    std::vector<uint16_t> halves(count), got_halves(count);
    portable.to_half(x.data(), count, halves.data());
    for (const VectorTable& table : vector_tables()) {
      const Kernels& kernels = *table.kernels;
      std::vector<float> out(count), own = x;
      kernels.rms_norm(x.data(), weight.data(), count, 1e-5f, out.data());
      EXPECT_TRUE(same_bits(out, expected)) << table.name << ' ' << count;
      kernels.silu_multiply(own.data(), weight.data(), count);
      EXPECT_TRUE(same_bits(own, gate)) << table.name << ' ' << count;
      kernels.to_half(x.data(), count, got_halves.data());
      EXPECT_EQ(got_halves, halves);
    }
  }
}

struct TileShape {
  uint32_t tokens, group, head_dim;
  std::vector<uint32_t> valid;
};

// Runs two blocks for a tile, the second of which rescales the first. Returns the states, row after row.
std::vector<float> attend(const Kernels& kernels, const std::vector<std::vector<uint16_t>>& pages,
                          const float* queries, const TileShape& shape, bool fetch_ahead) {
  const size_t stride = kStateOutput + shape.head_dim;
  std::vector<float> states(shape.tokens * shape.group * stride, 0.0f);
  for (size_t at = 0; at < states.size(); at += stride) states[at] = -INFINITY;
  AttentionBlockArgs args{};
  args.token_count = shape.tokens;
  args.group = shape.group;
  args.head_dim = shape.head_dim;
  args.queries = queries;
  args.query_stride = size_t{shape.group} * shape.head_dim;
  args.states = states.data();
  args.state_stride = stride;
  std::copy(shape.valid.begin(), shape.valid.end(), args.valid);
  for (uint32_t p = 0; p < 4; ++p) {
    args.keys[p] = pages[2 * p].data();
    args.values[p] = pages[2 * p + 1].data();
    args.next_keys[p] = fetch_ahead ? pages[2 * p].data() : nullptr;
  }
  kernels.attention_block(args);
  kernels.attention_block(args);
  return states;
}

// Each row as if it were alone, by the portable table: instruction sets, tiles of any shape, and rows with less
// to attend to than their neighbours.
TEST(Kernels, AttentionAgreesOverInstructionSetsAndTiles) {
  Prng prng(15);
  for (const uint32_t head_dim : {16u, 64u, 80u, 128u, 256u}) {
    std::vector<std::vector<uint16_t>> pages(8, std::vector<uint16_t>(size_t{16} * head_dim));
    for (auto& page : pages) {
      for (uint16_t& half : page) half = float_to_half_saturating(random_value(prng));
    }
    std::vector<float> queries(size_t{kTokenTile} * 9 * head_dim);
    for (float& q : queries) q = random_value(prng);
    const std::vector<TileShape> shapes{
        {1, 1, head_dim, {1}},     {1, 3, head_dim, {7}},
        {1, 9, head_dim, {64}},    {2, 2, head_dim, {16, 17}},
        {3, 1, head_dim, {31, 32, 33}},
        {8, 3, head_dim, {57, 58, 59, 60, 61, 62, 63, 64}},
        {8, 4, head_dim, {64, 64, 64, 64, 64, 64, 64, 64}},
        {7, 9, head_dim, {1, 2, 3, 4, 5, 6, 7}}};
    for (const TileShape& shape : shapes) {
      const size_t stride = kStateOutput + head_dim;
      std::vector<float> expected;
      for (uint32_t r = 0; r < shape.tokens * shape.group; ++r) {
        const TileShape alone{1, 1, head_dim, {shape.valid[r / shape.group]}};
        const auto row = attend(kernels_for(Isa::kPortable), pages, queries.data() + size_t{r} * head_dim,
                                alone, false);
        expected.insert(expected.end(), row.begin(), row.end());
      }
      for (const VectorTable& table : vector_tables()) {
        const auto got = attend(*table.kernels, pages, queries.data(), shape, shape.tokens % 2 == 0);
        ASSERT_EQ(got.size(), shape.tokens * shape.group * stride);
        EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * 4), 0)
            << table.name << " head_dim " << head_dim << " tokens " << shape.tokens << " group " << shape.group;
      }
    }
  }
}

}  // namespace
}  // namespace inferd::engine::cpu
