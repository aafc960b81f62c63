// Changes that end with a block.
// Owner: text/jinja.
#pragma once

#include <cstdint>
#include <utility>

namespace inferd::jinja {

// Counts a level of recursion while it lives.
class DepthGuard {
 public:
  explicit DepthGuard(uint32_t* depth) : depth_(depth) { ++*depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;
  ~DepthGuard() { --*depth_; }

 private:
  uint32_t* depth_;
};

// Sets a variable while it lives.
template <typename T>
class Restore {
 public:
  Restore(T* variable, T value) : variable_(variable), old_(std::exchange(*variable, value)) {}
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;
  ~Restore() { *variable_ = std::move(old_); }

 private:
  T* variable_;
  T old_;
};

}  // namespace inferd::jinja
