// Named bounds of the template interpreter, and the meter that one rendering is charged to.
// Owner: text/jinja. A Meter belongs to one rendering, thus to one thread.
//
// Objects that a template creates carry a Charge. When the meter is over its limit the next step
// fails; operations that multiply their input (repeat, pad, join, replace) ask with expect() before
// they start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/result.h"

namespace inferd::jinja {

inline constexpr size_t kSourceBytesMax = 4u << 20;
// Nested blocks, parentheses and operands: bounds the recursion of parser, evaluator and
// destructors.
inline constexpr uint32_t kSyntaxDepthMax = 200;
// Containers within containers, in the input and in what the template builds.
inline constexpr uint32_t kNestingMax = 200;
// Values in one value, each counted as often as it can be reached: [[x, x], [x, x]] holds x four
// times.
inline constexpr uint64_t kWeightMax = 1ull << 26;
// The limit of Jinja2's sandbox.
inline constexpr int64_t kRangeItemsMax = 100'000;
// Text handled for the price of one step.
inline constexpr uint64_t kBytesPerStep = 64;

struct Limits {
  uint64_t steps_max = 0;
  uint64_t output_bytes_max = 0;
  uint64_t memory_bytes_max = 0;
  uint32_t depth_max = 0;
};

class Meter {
 public:
  explicit Meter(const Limits& limits) : limits_(limits) {}
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  // Counts `count` steps. Errors: kResourceExhausted when steps or memory are over their limits.
  Result<void> step(uint64_t count = 1) {
    steps_ += count;
    if (steps_ > limits_.steps_max || live_bytes_ > limits_.memory_bytes_max) return exhausted(0);
    return {};
  }
  // Counts the steps of handling so many bytes, and fails if a text of that size would not fit.
  Result<void> expect(uint64_t bytes);
  const Limits& limits() const { return limits_; }

  void charge(uint64_t bytes) noexcept { live_bytes_ += bytes; }
  void release(uint64_t bytes) noexcept { live_bytes_ -= bytes; }

 private:
  Error exhausted(uint64_t more_bytes) const;

  Limits limits_;
  uint64_t steps_ = 0;
  uint64_t live_bytes_ = 0;
};

// Bytes of one object, given back to the meter when it dies. Without a meter (constants of a
// compiled template, which outlive renderings) it counts nothing.
class Charge {
 public:
  Charge(Meter* meter, uint64_t bytes) : meter_(meter), bytes_(bytes) {
    if (meter_ != nullptr) meter_->charge(bytes_);
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  ~Charge() {
    if (meter_ != nullptr) meter_->release(bytes_);
  }
  void grow(uint64_t bytes) {
    if (meter_ != nullptr) meter_->charge(bytes);
    bytes_ += bytes;
  }

 private:
  Meter* meter_;
  uint64_t bytes_;
};

}  // namespace inferd::jinja
