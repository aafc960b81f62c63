// The portable kernels' results are the same bits on every processor and with every compiler; with the other tests
// here, so are those of the other tables. Whoever changes an order of summation on purpose raises kNumericsVersion
// (engine/cpu/cpu_engine.cpp) and writes the new digests down.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "base/ids.h"
#include "base/prng.h"
#include "engine/cpu/kernels.h"
#include "tests/unit/engine/digest.h"
#include "tests/unit/engine/kernels_fixture.h"

namespace inferd::engine::cpu {
namespace {

const Kernels& portable() { return kernels_for(Isa::kPortable); }

std::vector<float> random_values(size_t count, float size, Prng& prng) {
  std::vector<float> values(count);
  for (float& value : values) value = random_value(prng) * size;
  return values;
}

const std::map<TensorType, uint64_t> kProducts{
    {TensorType::kF32, 0xb7e7b666d56e40b3u},
    {TensorType::kF16, 0x99e688ca70e49af3u},
    {TensorType::kBF16, 0xed9d6c27736a7405u},
    {TensorType::kQ8_0, 0x0d8f9047f88b8d7au},
    {TensorType::kQ4_0, 0xaa79d70d93f3dd69u},
    {TensorType::kQ4_1, 0x6f551b194ca4f62eu},
    {TensorType::kQ5_0, 0xbd854f943419fb6cu},
    {TensorType::kQ5_1, 0xabdd67275746d286u},
    {TensorType::kQ4_K, 0xec76f0e52d82d500u},
    {TensorType::kQ5_K, 0x76703d4439c8356bu},
    {TensorType::kQ6_K, 0x9f69fe1753356051u}};

class GoldenBits : public testing::TestWithParam<TensorType> {};

TEST_P(GoldenBits, OfProducts) {
  Prng prng(41);
  constexpr uint32_t kRows = 21, kColumns = 768, kTokens = 3;
  const auto bytes = random_rows(GetParam(), kRows, kColumns, prng);
  const Packed packed = pack(GetParam(), bytes, kRows, kColumns, isa_lanes(Isa::kPortable));
  const Inputs in = make_inputs(portable(), random_values(size_t{kTokens} * kColumns, 30, prng), kTokens, kColumns);
  std::vector<float> out(size_t{kTokens} * kRows);
  portable().product(packed.matrix, 0, packed.matrix.tiles, in.view, kTokens, {out.data(), kRows, nullptr, false});
  EXPECT_EQ(digest(out), kProducts.at(GetParam())) << std::hex << "0x" << digest(out);
}

INSTANTIATE_TEST_SUITE_P(Types, GoldenBits, testing::ValuesIn(kTypes),
                         [](const auto& info) { return formats::tensor_type_name(info.param); });

TEST(GoldenBits, OfElementwiseOperators) {
  Prng prng(42);
  constexpr uint32_t kCount = 1000;
  const auto x = random_values(kCount, 20, prng), weight = random_values(kCount, 1, prng);
  std::vector<float> normed(kCount), gate = x;
  std::vector<uint16_t> halves(kCount);
  portable().rms_norm(x.data(), weight.data(), kCount, 1e-5f, normed.data());
  portable().silu_multiply(gate.data(), weight.data(), kCount);
  portable().to_half(x.data(), kCount, halves.data());
  EXPECT_EQ(digest(normed), 0x2ff85ab20ac3646eu) << std::hex << "0x" << digest(normed);
  EXPECT_EQ(digest(gate), 0xa9df1879f5b2357fu) << std::hex << "0x" << digest(gate);
  EXPECT_EQ(digest(halves), 0x8d4c760a4745425cu) << std::hex << "0x" << digest(halves);
}

TEST(GoldenBits, OfAttention) {
  Prng prng(43);
  constexpr uint32_t kHeadDim = 64;
  std::vector<uint16_t> page(size_t{kPageTokens} * kHeadDim);
  for (uint16_t& half : page) half = float_to_half_saturating(random_value(prng));
  const auto query = random_values(kHeadDim, 3, prng);
  std::vector<float> state(kStateOutput + kHeadDim, 0.0f);
  state[0] = -INFINITY;
  AttentionBlockArgs args{};
  args.queries = query.data();
  args.states = state.data();
  args.query_stride = kHeadDim;
  args.state_stride = state.size();
  args.token_count = args.group = 1;
  args.head_dim = kHeadDim;
  args.valid[0] = 35;
  for (uint32_t p = 0; p < 4; ++p) args.keys[p] = args.values[p] = page.data();
  portable().attention_block(args);
  portable().attention_block(args);
  std::vector<float> both = state;
  float* const output = both.data() + kStateOutput;
  portable().attention_join(false, kHeadDim, &both[0], &both[1], output, &state[0], &state[1],
                            state.data() + kStateOutput);
  std::vector<float> joined{both[0], both[1]};
  joined.insert(joined.end(), output, output + kHeadDim);
  EXPECT_EQ(digest(joined), 0x66c4cba765e7d88bu) << std::hex << "0x" << digest(joined);
}

}  // namespace
}  // namespace inferd::engine::cpu
