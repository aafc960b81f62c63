// A laboratory with one small model of 8-bit weights, for tests of what surrounds a model.
// Owner: tests/isolation. One thread.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "jobs.h"
#include "lab.h"

namespace inferd::isolation {

inline constexpr uint32_t kSmallVocabulary = 384;

inline bench::MakeModelOptions small_shape(uint32_t context = 1024) {
  bench::MakeModelOptions options;
  options.type = formats::TensorType::kQ8_0;
  options.embedding = 64;
  options.feed_forward = 96;
  options.vocabulary = kSmallVocabulary;
  options.context = context;
  return options;
}

// With that model in place of options.model; nullptr, and a failure of the test, if it does not
// open.
inline std::unique_ptr<Lab> open_small_lab(LabOptions options) {
  static const TemporaryModel model(small_shape());
  options.model = model.path();
  auto lab = Lab::create(options);
  EXPECT_TRUE(lab.ok()) << lab.error().message();
  return lab.ok() ? std::move(lab).value() : nullptr;
}

// Room, chunks and threads that something has to give the same bits under.
struct Layout {
  uint32_t pages, chunk_tokens, threads;  // pages 0: enough for all
};

inline std::string layout_name(const testing::TestParamInfo<Layout>& info) {
  return (info.param.pages == 0 ? "RoomForAllChunks" : "RoomForFewChunks") +
         std::to_string(info.param.chunk_tokens) + "Threads" + std::to_string(info.param.threads);
}

}  // namespace inferd::isolation
