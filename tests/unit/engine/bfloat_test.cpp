// Products of BF16 weights in the AVX512_BF16 table: the arithmetic of the instruction, in an order that neither
// batch nor tiles change, and as close to the exact product as inputs of eight bits of mantissa allow.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/prng.h"
#include "engine/cpu/isa.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/packed.h"
#include "tests/unit/engine/emulation/bfloat.h"
#include "tests/unit/engine/kernels_fixture.h"
#include "tests/unit/engine/vector_tables.h"

namespace inferd::engine::cpu {
namespace {

using emulated::bfloat_to_float;
using emulated::float_to_bfloat;
using emulated::pair_dot;

uint32_t pair_of(float low, float high) {
  return uint32_t{float_to_bfloat(high)} << 16 | float_to_bfloat(low);
}

TEST(Bfloat, RoundsToNearestEven) {
  EXPECT_EQ(float_to_bfloat(1.0f), 0x3F80);
  EXPECT_EQ(float_to_bfloat(std::bit_cast<float>(0x3F808000u)), 0x3F80);  // a tie goes to the even neighbour
  EXPECT_EQ(float_to_bfloat(std::bit_cast<float>(0x3F818000u)), 0x3F82);
  EXPECT_EQ(float_to_bfloat(std::bit_cast<float>(0x3F808001u)), 0x3F81);
  EXPECT_EQ(float_to_bfloat(-std::numeric_limits<float>::max()), 0xFF80);  // -infinity
  EXPECT_EQ(float_to_bfloat(1e-40f), 0);
  EXPECT_EQ(float_to_bfloat(-1e-40f), 0x8000);
  EXPECT_TRUE(std::isnan(bfloat_to_float(float_to_bfloat(std::bit_cast<float>(0x7F800001u)))));
}

TEST(Bfloat, PairsAreAddedUpperFirstWithARoundingEach) {
  // 1 + 2^24 is a tie that rounds to 2^24, and so does the next 1; the other way round 2 would be left.
  EXPECT_EQ(pair_dot(1.0f, pair_of(1, 4096), pair_of(1, 4096)), 16777216.0f);
  EXPECT_EQ(pair_dot(1.0f, pair_of(4096, 1), pair_of(4096, 1)), 16777218.0f);
  EXPECT_EQ(pair_dot(0, pair_of(1e-30f, 0), pair_of(1e-10f, 0)), 0);  // a denormal result
  EXPECT_EQ(pair_dot(1e-40f, 0, 0), 0);
}

// Tables with products of bf16 pairs that can run here.
std::vector<VectorTable> bfloat_tables() {
  std::vector<VectorTable> tables;
  for (const VectorTable& table : vector_tables()) {
    if (table.kernels->to_bfloat != nullptr) tables.push_back(table);
  }
  return tables;
}

struct Problem {
  uint32_t rows, columns, tokens;
  std::vector<uint16_t> weights;  // [rows, columns] bf16
  std::vector<float> inputs;      // [tokens, columns]
};

Problem random_problem(uint32_t rows, uint32_t columns, uint32_t tokens) {
  Prng prng(21 + columns);
  Problem problem{rows, columns, tokens, {}, {}};
  for (uint32_t i = 0; i < rows * columns; ++i) problem.weights.push_back(float_to_bfloat(random_value(prng)));
  for (uint32_t i = 0; i < tokens * columns; ++i) {
    problem.inputs.push_back(i % 97 == 5 ? 1e-39f : random_value(prng) * 30);
  }
  return problem;
}

// One row times one token by the definition.
float reference(const Problem& problem, uint32_t row, uint32_t token) {
  float sum = 0;
  for (uint32_t k = 0; k < problem.columns; k += 2) {
    uint32_t weights = problem.weights[row * problem.columns + k];
    uint32_t inputs = float_to_bfloat(problem.inputs[token * problem.columns + k]);
    if (k + 1 < problem.columns) {
      weights |= uint32_t{problem.weights[row * problem.columns + k + 1]} << 16;
      inputs |= uint32_t{float_to_bfloat(problem.inputs[token * problem.columns + k + 1])} << 16;
    }
    sum = pair_dot(sum, weights, inputs);
  }
  return sum;
}

// All tokens in batches, tiles in two pieces as two threads would take them; adds to `out` if it is not empty.
std::vector<float> product(const Kernels& kernels, const Problem& problem, uint32_t batch, const float* bias,
                           std::vector<float> out) {
  const bool accumulate = !out.empty();
  out.resize(size_t{problem.tokens} * problem.rows);
  std::vector<uint8_t> bytes(problem.weights.size() * 2);
  std::memcpy(bytes.data(), problem.weights.data(), bytes.size());
  const Packed packed = pack(TensorType::kBF16, bytes, problem.rows, problem.columns, isa_lanes(kernels.isa));
  const uint32_t stride = bfloat_stride(problem.columns), middle = packed.matrix.tiles / 3;
  std::vector<uint16_t> bfloats(size_t{problem.tokens} * stride, 0xFFFF);
  for (uint32_t t = 0; t < problem.tokens; ++t) {
    kernels.to_bfloat(problem.inputs.data() + t * problem.columns, problem.columns, bfloats.data() + t * stride);
  }
  for (uint32_t first = 0; first < problem.tokens; first += batch) {
    Activations x;
    x.columns = problem.columns;
    x.bfloats = bfloats.data() + size_t{first} * stride;
    const ProductOut to{out.data() + size_t{first} * problem.rows, problem.rows, bias, accumulate};
    const uint32_t count = std::min(batch, problem.tokens - first);
    kernels.product(packed.matrix, middle, packed.matrix.tiles, x, count, to);
    kernels.product(packed.matrix, 0, middle, x, count, to);
  }
  return out;
}

TEST(Bfloat, RowsAreRoundedAndPadded) {
  Prng prng(22);
  for (const VectorTable& table : bfloat_tables()) {
    for (const uint32_t count : {1u, 2u, 15u, 16u, 17u, 100u}) {
      std::vector<float> values(count);
      for (float& value : values) value = random_value(prng) * 1000;
      values[count / 2] = -1e-40f;
      std::vector<uint16_t> got(bfloat_stride(count) + 1, 0xABCD), expected(got.size(), 0xABCD);
      for (uint32_t i = 0; i < bfloat_stride(count); ++i) expected[i] = i < count ? float_to_bfloat(values[i]) : 0;
      table.kernels->to_bfloat(values.data(), count, got.data());
      EXPECT_EQ(got, expected) << table.name << ' ' << count;
    }
  }
}

TEST(Bfloat, ProductIsTheChainOfPairsWhateverTheBatch) {
  for (const uint32_t columns : {1u, 2u, 33u, 256u}) {
    const Problem problem = random_problem(93, columns, 17);
    std::vector<float> expected, bias(problem.rows), start(size_t{problem.tokens} * problem.rows);
    Prng prng(23);
    for (float& value : bias) value = random_value(prng);
    for (float& value : start) value = random_value(prng);
    std::vector<float> expected_sum = start;
    for (uint32_t t = 0; t < problem.tokens; ++t) {
      for (uint32_t r = 0; r < problem.rows; ++r) {
        expected.push_back(reference(problem, r, t));
        expected_sum[t * problem.rows + r] += expected.back() + bias[r];
      }
    }
    for (const VectorTable& table : bfloat_tables()) {
      for (uint32_t batch = 1; batch <= problem.tokens; ++batch) {
        EXPECT_EQ(product(*table.kernels, problem, batch, nullptr, {}), expected)
            << table.name << ' ' << columns << " columns, batch " << batch;
      }
      EXPECT_EQ(product(*table.kernels, problem, 5, bias.data(), start), expected_sum) << table.name;
    }
  }
}

TEST(Bfloat, ProductIsWithinTheRoundingOfItsInputs) {
  const Problem problem = random_problem(20, 512, 3);
  for (uint32_t t = 0; t < problem.tokens; ++t) {
    for (uint32_t r = 0; r < problem.rows; ++r) {
      double sum = 0, size = 0;
      for (uint32_t k = 0; k < problem.columns; ++k) {
        const double term = double{bfloat_to_float(problem.weights[r * problem.columns + k])} *
                            problem.inputs[t * problem.columns + k];
        sum += term;
        size += std::fabs(term);
      }
      EXPECT_NEAR(reference(problem, r, t), sum, size / 512) << "token " << t << " row " << r;
    }
  }
}

}  // namespace
}  // namespace inferd::engine::cpu
