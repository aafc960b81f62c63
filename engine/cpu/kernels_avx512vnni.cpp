// The kernel table for AVX-512 with 8-bit dot products (VNNI).
#include "base/check.h"
#include "engine/cpu/kernels_tables.h"
#include "engine/cpu/simd_avx512.h"

#include "engine/cpu/kernels_vector.h"

namespace inferd::engine::cpu {

const Kernels kKernelsAvx512Vnni = make_table<Avx512<true>>(Isa::kAvx512Vnni);

}  // namespace inferd::engine::cpu
