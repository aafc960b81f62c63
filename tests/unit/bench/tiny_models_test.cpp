// The engine against an implementation that this project did not write, on small models of every
// tensor type, rope scaling and head shape: tests/golden/tiny/ has the logits and the script that
// made them. The models themselves are made again from their seeds.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/command.h"
#include "bench/engine_driver.h"

namespace inferd::bench {
namespace {

using nlohmann::json;

const json& golden() {
  static const json models = [] {
    std::ifstream file(INFERD_SOURCE_DIR "/tests/golden/tiny/tiny_models.json");
    return json::parse(file).at("models");
  }();
  return models;
}

void make(const json& options, const std::string& path) {
  std::vector<std::string> words{"--output", path};
  for (const auto& [name, value] : options.items()) {
    words.push_back("--" + name);
    if (value.is_boolean()) continue;
    words.push_back(value.is_string() ? value.get<std::string>() : value.dump());
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  const Result<int> made = run_make_model_command(arguments);
  ASSERT_TRUE(made.ok()) << made.error().message();
}

std::string fnv1a_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  uint64_t hash = 0xCBF29CE484222325;
  for (int c = file.get(); c != EOF; c = file.get()) {
    hash = (hash ^ static_cast<uint64_t>(c)) * 0x100000001B3;
  }
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(hash));
  return text.data();
}

// KL divergence in nats of `row` from `expected`, both logits.
double divergence(std::span<const float> expected, std::span<const float> row) {
  const auto log_sum = [](std::span<const float> logits) {
    double sum = 0;
    for (const float logit : logits) sum += std::exp(double{logit});
    return std::log(sum);
  };
  const double expected_sum = log_sum(expected), row_sum = log_sum(row);
  double result = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    const double log_p = expected[i] - expected_sum;
    result += std::exp(log_p) * (log_p - (row[i] - row_sum));
  }
  return result;
}

// KL divergence on average; and how far the likeliest token must lead in the reference's logits to
// be the likeliest here too: an error of the logits that is much smaller than that changes nothing.
struct Limits {
  double divergence, margin;
};

// Weights in f32, f16 and bf16 meet the reference to the rounding of keys and values; those of
// fewer bits meet 8-bit activations besides.
Limits limits_of(const std::string& type) {
  const bool wide = type == "f32" || type == "f16" || type == "bf16";
  return wide ? Limits{1e-3, 0.1} : Limits{5e-3, 0.5};
}

class TinyModels : public testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "inferd_tiny_" + std::to_string(getpid()) + ".gguf";
    make(model_.at("options"), path_);
  }
  void TearDown() override { unlink(path_.c_str()); }

  // Logits of every token, [tokens, vocabulary].
  std::vector<float> score(const std::string& isa) {
    const auto ids = model_.at("tokens").get<std::vector<TokenId>>();
    DriverOptions options;
    options.model = path_;
    options.threads = 1;
    options.isa = isa;
    options.sequence_tokens = static_cast<uint32_t>(ids.size());
    auto driver = EngineDriver::create(options);
    EXPECT_TRUE(driver.ok()) << driver.error().message();
    if (!driver.ok()) return {};
    std::vector<float> rows;
    (*driver)->append((*driver)->sequences()[0], ids, static_cast<uint32_t>(ids.size()),
                      [&](std::span<const float> logits) {
                        rows.insert(rows.end(), logits.begin(), logits.end());
                      });
    return rows;
  }

  void compare(std::span<const float> rows) {
    const auto top1 = model_.at("top1").get<std::vector<size_t>>();
    const size_t width = rows.size() / top1.size();
    ASSERT_EQ(width, model_.at("options").at("vocabulary").get<size_t>());
    const auto margins = model_.at("margins").get<std::vector<double>>();
    const Limits limits = limits_of(model_.at("options").at("type"));
    size_t certain = 0;
    for (size_t i = 0; i < top1.size(); ++i) {
      if (margins.at(i) < limits.margin) continue;
      const auto row = rows.subspan(i * width, width);
      const auto best = static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin());
      EXPECT_EQ(best, top1[i]) << "position " << i << ", where it leads by " << margins[i];
      ++certain;
    }
    EXPECT_GE(certain, top1.size() / 2);
    const auto positions = model_.at("positions").get<std::vector<size_t>>();
    double sum = 0;
    for (size_t i = 0; i < positions.size(); ++i) {
      const auto expected = model_.at("logits").at(i).get<std::vector<float>>();
      const double one = divergence(expected, rows.subspan(positions[i] * width, width));
      EXPECT_LE(one, 2 * limits.divergence) << "position " << positions[i];
      sum += one;
    }
    EXPECT_LE(sum / static_cast<double>(positions.size()), limits.divergence);
  }

  const json& model_ = golden().at(GetParam());
  std::string path_;
};

TEST_P(TinyModels, LogitsAreThoseOfTheReference) {
  // The same file that the reference saw, or nothing below means anything.
  ASSERT_EQ(fnv1a_of(path_), model_.at("file_fnv1a").get<std::string>());
  for (const char* isa : {"auto", "portable"}) {
    SCOPED_TRACE(isa);
    // Slow, and shown elsewhere to give the same bytes: not the long ones once more.
    if (isa == std::string("portable") && model_.at("tokens").size() > 100) continue;
    const std::vector<float> rows = score(isa);
    ASSERT_FALSE(rows.empty());
    compare(rows);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryModel, TinyModels, testing::Range<size_t>(0, golden().size()),
                         [](const auto& info) {
                           std::string name = golden().at(info.param).at("name");
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace inferd::bench
