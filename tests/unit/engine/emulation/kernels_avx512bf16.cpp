// The table of engine/cpu/kernels_avx512bf16.cpp over emulated instructions.
#include "base/check.h"
#include "tests/unit/engine/emulation/avx512_intrinsics.h"
#include "tests/unit/engine/emulation/tables.h"

#include "engine/cpu/simd_avx512bf16.h"

#include "engine/cpu/kernels_vector.h"

namespace inferd::engine::cpu {

const Kernels kEmulatedAvx512Bf16 = make_table<Avx512Bf16>(Isa::kAvx512Bf16);

}  // namespace inferd::engine::cpu
