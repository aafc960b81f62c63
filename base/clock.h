// Time as an interface, so that scheduler and memory run in virtual time in the simulator.
// Owner: base. now_ns() may be called by any thread.
#pragma once

#include <cstdint>

namespace inferd {

class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds since an arbitrary fixed moment; never goes back.
  virtual int64_t now_ns() const = 0;
};

// CLOCK_MONOTONIC.
class MonotonicClock final : public Clock {
 public:
  int64_t now_ns() const override;
};

// A clock that a test moves by hand. Not thread-safe.
class ManualClock final : public Clock {
 public:
  int64_t now_ns() const override { return now_ns_; }
  void advance_ns(int64_t delta_ns) { now_ns_ += delta_ns; }

 private:
  int64_t now_ns_ = 0;
};

}  // namespace inferd
