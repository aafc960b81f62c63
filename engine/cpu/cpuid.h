// What a processor says that it can do, and which registers the operating system keeps for a program.
// Owner: engine/cpu (isa.cpp chooses by it). Plain data and one pure function, any thread.
// Must not know kernels.
#pragma once

#include <cstdint>

namespace inferd::engine::cpu {

// The registers of CPUID that matter here (Intel SDM volume 2A, CPUID) and XCR0 (volume 1, 13.3). All zero on
// other processors, and past the highest leaf that there is.
struct CpuidRegisters {
  uint32_t leaf1_ecx = 0;
  uint32_t leaf7_ebx = 0;
  uint32_t leaf7_ecx = 0;
  uint32_t leaf7_1_eax = 0;  // sub-leaf 1
  uint32_t xcr0 = 0;         // register states that the system saves; 0 where it does not say
};

CpuidRegisters this_processor() noexcept;

}  // namespace inferd::engine::cpu
