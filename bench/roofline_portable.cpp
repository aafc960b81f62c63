// Peak loops for processors without a file of their own: what the compiler makes of plain C++.
#if !defined(__x86_64__)

#include "bench/roofline.h"

namespace inferd::bench {
namespace {

constexpr int kLanes = 64;

template <typename Value, typename Sum>
void multiply_and_add(uint64_t iterations) {
  Value a[kLanes];
  Value b[kLanes];
  Sum sums[kLanes] = {};
  for (int lane = 0; lane < kLanes; ++lane) {
    a[lane] = static_cast<Value>(lane & 3);
    b[lane] = static_cast<Value>(lane & 1);
  }
  for (uint64_t i = 0; i < iterations; ++i) {
    asm volatile("" : : "r"(a), "r"(b) : "memory");  // both may have changed
    for (int lane = 0; lane < kLanes; ++lane)
      sums[lane] += static_cast<Sum>(a[lane]) * static_cast<Sum>(b[lane]);
  }
  asm volatile("" : : "r"(sums) : "memory");
}

}  // namespace

PeakKernel int8_peak_kernel() {
  return {"plain C++", uint64_t{kLanes} * 2, multiply_and_add<signed char, int32_t>};
}

PeakKernel f32_peak_kernel() {
  return {"plain C++", uint64_t{kLanes} * 2, multiply_and_add<float, float>};
}

PeakKernel bf16_peak_kernel() { return {}; }

uint64_t read_bytes(const uint8_t* bytes, size_t count) {
  uint64_t result = 0;
  for (size_t i = 0; i < count; ++i) result += bytes[i];
  return result;
}

}  // namespace inferd::bench

#endif  // !__x86_64__
