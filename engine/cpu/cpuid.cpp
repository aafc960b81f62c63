#include "engine/cpu/cpuid.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace inferd::engine::cpu {

CpuidRegisters this_processor() noexcept {
  CpuidRegisters cpu;
#if defined(__x86_64__)
  constexpr uint32_t kXsaveEnabled = 1u << 27;  // leaf 1, ecx: without it XGETBV is an invalid instruction
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  // Each call fails, and leaves the field zero, past the highest leaf that the processor has.
  if (__get_cpuid_count(1, 0, &eax, &ebx, &ecx, &edx) != 0) cpu.leaf1_ecx = ecx;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0) {
    cpu.leaf7_ebx = ebx;
    cpu.leaf7_ecx = ecx;
    if (eax >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) cpu.leaf7_1_eax = eax;
  }
  if ((cpu.leaf1_ecx & kXsaveEnabled) != 0) {
    uint32_t high = 0;
    __asm__ volatile("xgetbv" : "=a"(cpu.xcr0), "=d"(high) : "c"(0));
  }
#endif
  return cpu;
}

}  // namespace inferd::engine::cpu
