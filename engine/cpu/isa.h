// Which instruction set the kernels use: chosen once, at run time, for every batch size.
// Owner: engine/cpu. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/cpu/cpuid.h"

namespace inferd::engine::cpu {

// Each has all that the ones before it have.
enum class Isa : uint8_t {
  kPortable,    // C++ alone; fused multiply-adds by the C library
  kAvx2,        // AVX2, FMA, F16C
  kAvx512,      // AVX-512 F, BW, VL, DQ
  kAvx512Vnni,  // and 8-bit dot products
  kAvx512Bf16,  // and dot products of bf16 pairs
};

std::string_view isa_name(Isa isa) noexcept;

// The widest that processor and operating system run, among those whose results are the same bits: not
// kAvx512Bf16, which rounds the inputs of BF16 weights.
Isa detect_isa(const CpuidRegisters& cpu = this_processor()) noexcept;

// "auto" or a name. Errors: kUnsupported if the processor lacks it, with what it lacks; kInvalidArgument
// for an unknown name, with those that there are.
Result<Isa> parse_isa(std::string_view name, const CpuidRegisters& cpu = this_processor());

// Rows in a weight tile: lanes of the register that holds one 32-bit value per output row.
constexpr uint32_t isa_lanes(Isa isa) noexcept { return isa >= Isa::kAvx512 ? 16 : 8; }

}  // namespace inferd::engine::cpu
