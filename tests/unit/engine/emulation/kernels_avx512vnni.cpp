// The table of engine/cpu/kernels_avx512vnni.cpp over emulated instructions.
#include "base/check.h"
#include "tests/unit/engine/emulation/avx512_intrinsics.h"
#include "tests/unit/engine/emulation/tables.h"

#include "engine/cpu/simd_avx512.h"

#include "engine/cpu/kernels_vector.h"

namespace inferd::engine::cpu {

const Kernels kEmulatedAvx512Vnni = make_table<Avx512<true>>(Isa::kAvx512Vnni);

}  // namespace inferd::engine::cpu
