// Random numbers: a counter-based generator (sampling) and a sequential one (tests, simulator).
// Owner: base. Value types; a Prng object belongs to one thread, philox4x32 is pure.
#pragma once

#include <array>
#include <cstdint>

namespace inferd {

// Philox4x32-10: ten rounds over a 128-bit counter with a 64-bit key. Pure: equal arguments give
// equal results on every machine, which is what makes sampling independent of batch and schedule.
// Source: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC11.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) noexcept;

// SplitMix64: a small sequential generator with a 64-bit state. Source: Steele, Lea, Flood,
// "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
class Prng {
 public:
  explicit Prng(uint64_t seed) : state_(seed) {}

  uint64_t next() noexcept;
  // Uniform in [0, bound); bound > 0. Without modulo bias worth speaking of (64-bit multiply-shift).
  uint64_t below(uint64_t bound) noexcept;
  // Uniform in [0, 1), 53 bits.
  double uniform() noexcept;

 private:
  uint64_t state_;
};

}  // namespace inferd
