// What the isolation tests run: prompts of given lengths, sampling of every kind, small random
// models. Owner: tests/isolation. Pure but for the files of TemporaryModel.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/make_model.h"
#include "lab.h"

namespace inferd::isolation {

// One job for each length: random tokens, every second one greedy, the others by the ways of
// sampling in turn. Every second pair keeps the logits of each position of its prompt.
std::vector<Job> jobs_of(std::span<const uint32_t> prompt_tokens, uint32_t vocabulary,
                         uint64_t seed);

// One that comes before each step in [0, steps) and is cancelled two steps later, every second one
// in the middle of a step.
std::vector<Job> visitors(uint32_t steps, uint32_t vocabulary, uint64_t seed);

// A model file of its own that disappears with this object.
class TemporaryModel {
 public:
  explicit TemporaryModel(const bench::MakeModelOptions& options);
  ~TemporaryModel();
  TemporaryModel(const TemporaryModel&) = delete;
  TemporaryModel& operator=(const TemporaryModel&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Fails, naming the job and the place, for each record that is not as expected.
void expect_equal(std::span<const Record> expected, std::span<const Record> actual,
                  std::span<const Job> jobs);

}  // namespace inferd::isolation
