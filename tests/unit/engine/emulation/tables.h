// The AVX-512 kernel tables, compiled from the engine's own templates over emulated instructions, so that
// they run on any processor with AVX2. Defined in this folder, each beside the flags of its file.
// Owner: the engine's unit tests.
#pragma once

#include "engine/cpu/kernels.h"

namespace inferd::engine::cpu {

extern const Kernels kEmulatedAvx512;
extern const Kernels kEmulatedAvx512Vnni;
extern const Kernels kEmulatedAvx512Bf16;

}  // namespace inferd::engine::cpu
