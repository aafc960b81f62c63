// The tables that kernels_for() chooses from; each is defined in the file compiled for its instruction set.
// Owner: engine/cpu, private to it.
#pragma once

#include "engine/cpu/kernels.h"

namespace inferd::engine::cpu {

extern const Kernels kKernelsPortable;
extern const Kernels kKernelsAvx2;
extern const Kernels kKernelsAvx512;
extern const Kernels kKernelsAvx512Vnni;
extern const Kernels kKernelsAvx512Bf16;

}  // namespace inferd::engine::cpu
