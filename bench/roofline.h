// What this machine can do at best: read bandwidth and arithmetic peaks, by thread count. The
// floors that engine measurements are held against, measured in the same run. Owner: bench. Main
// thread; starts its own threads for each measurement. Must not know models.
#pragma once

#include <cstdint>
#include <string>

#include "base/ids.h"

namespace inferd::bench {

// One loop of arithmetic on registers alone.
struct PeakKernel {
  const char* name = nullptr;  // instruction that it is made of; nullptr: this machine has none
  uint64_t operations = 0;     // multiplications and additions of one iteration
  void (*run)(uint64_t iterations) = nullptr;
};

// The widest forms that this processor has. Implemented in one file per processor family.
PeakKernel int8_peak_kernel();  // 8-bit products summed in 32 bits
PeakKernel f32_peak_kernel();   // fused multiply-add
PeakKernel bf16_peak_kernel();  // bfloat16 products summed in f32; often none
// Reads every byte once, in order; the result only keeps the compiler from leaving the reads out.
uint64_t read_bytes(const uint8_t* bytes, size_t count);

struct MachineFloor {
  uint32_t threads = 0;
  Bytes read_buffer;  // read in a loop by all threads together, each its own part
  double read_bytes_per_s = 0;
  double int8_ops_per_s = 0;
  double f32_ops_per_s = 0;
  double bf16_ops_per_s = 0;  // 0: no such instruction
};

// Takes about half a second. `read_buffer` at least 1 MiB; choose the size of what is to be
// compared, so that caches help both alike.
MachineFloor measure_floor(uint32_t threads, Bytes read_buffer);

}  // namespace inferd::bench
