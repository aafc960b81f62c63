#include "formats/dequantize.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/half.h"

namespace inferd::formats {
namespace {

nlohmann::json golden() {
  std::ifstream file(INFERD_SOURCE_DIR "/tests/golden/quant/quant_blocks.json");
  return nlohmann::json::parse(file);
}

std::vector<uint8_t> unhex(const std::string& text) {
  std::vector<uint8_t> bytes(text.size() / 2);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return bytes;
}

constexpr std::array kTypes{TensorType::kF32,  TensorType::kF16,  TensorType::kBF16,
                            TensorType::kQ8_0, TensorType::kQ4_0, TensorType::kQ4_1,
                            TensorType::kQ5_0, TensorType::kQ5_1, TensorType::kQ4_K,
                            TensorType::kQ5_K, TensorType::kQ6_K};

class Dequantize : public testing::TestWithParam<TensorType> {};

TEST_P(Dequantize, EqualsTheReferenceByBits) {
  const nlohmann::json row = golden().at(tensor_type_name(GetParam()));
  const std::vector<uint8_t> blocks = unhex(row.at("blocks"));
  const std::vector<uint8_t> expected = unhex(row.at("f32"));
  std::vector<float> values(expected.size() / 4);
  ASSERT_TRUE(dequantize(GetParam(), blocks, values).ok());
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits = 0;
    for (size_t b = 0; b < 4; ++b) bits |= uint32_t{expected[4 * i + b]} << (8 * b);
    ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), bits) << "element " << i;
  }
}

TEST_P(Dequantize, RefusesSizesThatDoNotFit) {
  const TensorTypeTraits& traits = *tensor_type_traits(GetParam());
  const std::vector<uint8_t> blocks(2 * traits.block_bytes);
  std::vector<float> values(2 * traits.block_elements);
  const std::span<const uint8_t> all(blocks);
  EXPECT_TRUE(dequantize(GetParam(), all, values).ok());
  EXPECT_FALSE(dequantize(GetParam(), all.first(all.size() - 1), values).ok());
  EXPECT_FALSE(dequantize(GetParam(), all.first(traits.block_bytes), values).ok());
  EXPECT_TRUE(dequantize(GetParam(), {}, {}).ok());
}

INSTANTIATE_TEST_SUITE_P(EveryType, Dequantize, testing::ValuesIn(kTypes),
                         [](const auto& info) { return tensor_type_name(info.param); });

TEST(DequantizeOthers, TypesThatCannotBeReadAreRefusedByName) {
  std::vector<float> values(256);
  const std::vector<uint8_t> blocks(84);
  const auto result = dequantize(TensorType::kQ2_K, blocks, values);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(result.error().message().find("Q2_K"), std::string::npos);
}

TEST(Half, EveryF16ConvertsExactly) {
  uint64_t digest = 0xCBF29CE484222325;
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const float value = f16_to_f32(static_cast<uint16_t>(half));
    if (std::isnan(value)) continue;
    for (int b = 0; b < 4; ++b) {
      digest ^= (std::bit_cast<uint32_t>(value) >> (8 * b)) & 0xFF;
      digest *= 0x100000001B3;
    }
  }
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(digest));
  EXPECT_EQ(golden().at("all_f16_fnv1a").get<std::string>(), text.data());
}

TEST(Half, EveryF16SurvivesTheWayThroughF32AndBack) {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const auto bits = static_cast<uint16_t>(half);
    if (std::isnan(f16_to_f32(bits))) continue;
    ASSERT_EQ(f32_to_f16(f16_to_f32(bits)), bits);
    ASSERT_EQ(f32_to_bf16(bf16_to_f32(bits)), bits) << bits;
  }
}

TEST(Half, F32ToF16RoundsToTheNearestAndTiesToEven) {
  // Between each two neighbours: the middle goes to the even one, a hair off it to the nearer one.
  for (uint16_t half = 0; half < 0x7BFF; ++half) {
    const float low = f16_to_f32(half), high = f16_to_f32(static_cast<uint16_t>(half + 1));
    const float middle = low + (high - low) / 2;
    const uint16_t even = half % 2 == 0 ? half : static_cast<uint16_t>(half + 1);
    ASSERT_EQ(f32_to_f16(middle), even) << half;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, low)), half);
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, high)), half + 1);
    ASSERT_EQ(f32_to_f16(-middle), even | 0x8000);
  }
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::infinity()), 0x7C00);
  EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace
}  // namespace inferd::formats
