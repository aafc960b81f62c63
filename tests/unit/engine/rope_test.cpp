// Rotary frequencies from GGUF metadata against implementations that this project did not write:
// tests/golden/rope/ has the values and the script that made them.
#include "engine/models/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "formats/gguf_writer.h"

namespace inferd::engine {
namespace {

using formats::GgufFile;
using formats::GgufWriter;
using nlohmann::json;

// A file of this metadata and, if there are any, factors; then what is read from it.
Result<ModelShape> read(const json& metadata, const std::vector<float>& factors, uint32_t head_dim,
                        uint32_t context) {
  GgufWriter writer;
  writer.add_string("general.architecture", "llama");
  for (const auto& [name, value] : metadata.items()) {
    const std::string key = "llama.rope." + name;
    if (value.is_string()) {
      writer.add_string(key, value.get<std::string>());
    } else if (value.is_number_float()) {
      writer.add<float>(key, value.get<float>());
    } else {
      writer.add<uint32_t>(key, value.get<uint32_t>());
    }
  }
  if (!factors.empty()) {
    const std::array<uint64_t, 1> dims{factors.size()};
    writer.add_tensor("rope_freqs.weight", formats::TensorType::kF32, dims);
  }
  const auto source = [&](size_t, uint64_t offset, std::span<uint8_t> bytes) -> Result<void> {
    std::memcpy(bytes.data(), reinterpret_cast<const uint8_t*>(factors.data()) + offset,
                bytes.size());
    return {};
  };
  INFERD_ASSIGN(const std::vector<uint8_t> bytes, writer.bytes(source));
  INFERD_ASSIGN(const GgufFile file, GgufFile::parse(bytes));
  ModelShape shape;
  shape.head_dim = head_dim;
  INFERD_TRY(read_rope(file, "llama", context, shape));
  return shape;
}

std::vector<float> factors_of(const json& row) {
  return row.contains("factors") ? row.at("factors").get<std::vector<float>>()
                                 : std::vector<float>();
}

TEST(Rope, FrequenciesAreThoseOfTheReference) {
  std::ifstream golden(INFERD_SOURCE_DIR "/tests/golden/rope/rope.json");
  const json rows = json::parse(golden);
  EXPECT_GE(rows.size(), 17u);
  for (const json& row : rows) {
    SCOPED_TRACE(row.at("name").get<std::string>());
    const auto shape =
        read(row.at("metadata"), factors_of(row), row.at("head_dim"), row.at("context"));
    ASSERT_TRUE(shape.ok()) << shape.error().message();
    EXPECT_NEAR(shape->rope_magnitude, row.at("magnitude").get<double>(), 1e-6);
    const auto expected = row.at("frequencies").get<std::vector<double>>();
    ASSERT_EQ(shape->rope_frequencies.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      // The references work in f32, one of them by multiplying from pair to pair.
      EXPECT_NEAR(shape->rope_frequencies[i] / expected[i], 1, 5e-6) << "pair " << i;
    }
  }
}

// Refused, with the key in the sentence, rather than taken for something else.
TEST(Rope, WhatIsUnknownOrImpossibleIsRefused) {
  const auto refused = [](const json& metadata, const std::string& part,
                          const std::vector<float>& factors = {}) {
    const auto shape = read(metadata, factors, 64, 2048);
    ASSERT_FALSE(shape.ok()) << metadata.dump();
    EXPECT_NE(shape.error().message().find(part), std::string::npos) << shape.error().message();
  };
  refused({{"scaling.type", "longrope"}, {"scaling.factor", 4.0}}, "'longrope'");
  refused({{"scaling.type", "linear"}, {"scaling.factor", 0.0}}, "scaling.factor");
  refused({{"scaling.type", "yarn"}, {"scaling.factor", -2.0}}, "scaling.factor");
  refused({{"dimension_count", 66}}, "dimension_count");
  refused({{"dimension_count", 31}}, "dimension_count");
  refused({{"dimension_count", 0}}, "dimension_count");
  refused({{"freq_base", 0.0}}, "freq_base");
  refused(
      {{"scaling.type", "yarn"}, {"scaling.factor", 2.0}, {"scaling.original_context_length", 0}},
      "original_context_length");
  refused({}, "rope_freqs.weight", std::vector<float>(31, 1.0f));
  refused({}, "rope_freqs.weight", std::vector<float>(32, 0.0f));
  refused({}, "rope_freqs.weight", std::vector<float>(32, INFINITY));
}

}  // namespace
}  // namespace inferd::engine
