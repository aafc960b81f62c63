// The kernel table for AVX-512 without 8-bit dot products.
#include "base/check.h"
#include "engine/cpu/kernels_tables.h"
#include "engine/cpu/simd_avx512.h"

#include "engine/cpu/kernels_vector.h"

namespace inferd::engine::cpu {

const Kernels kKernelsAvx512 = make_table<Avx512<false>>(Isa::kAvx512);

}  // namespace inferd::engine::cpu
