// The kernel table for AVX2, FMA and F16C.
#include "base/check.h"
#include "engine/cpu/kernels_tables.h"
#include "engine/cpu/simd_avx2.h"

#include "engine/cpu/kernels_vector.h"

namespace inferd::engine::cpu {

const Kernels kKernelsAvx2 = make_table<Avx2>(Isa::kAvx2);

}  // namespace inferd::engine::cpu
