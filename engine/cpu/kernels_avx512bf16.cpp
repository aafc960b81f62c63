// The kernel table for AVX-512 with 8-bit dot products and those of bf16 pairs.
#include "base/check.h"
#include "engine/cpu/kernels_tables.h"
#include "engine/cpu/simd_avx512bf16.h"

#include "engine/cpu/kernels_vector.h"

namespace inferd::engine::cpu {

const Kernels kKernelsAvx512Bf16 = make_table<Avx512Bf16>(Isa::kAvx512Bf16);

}  // namespace inferd::engine::cpu
