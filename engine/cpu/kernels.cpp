#include "engine/cpu/kernels.h"

#include "base/check.h"
#include "engine/cpu/kernels_tables.h"

namespace inferd::engine::cpu {

const Kernels& kernels_for(Isa isa) {
  switch (isa) {
    case Isa::kPortable: return kKernelsPortable;
#if defined(__x86_64__)
    case Isa::kAvx2: return kKernelsAvx2;
    case Isa::kAvx512: return kKernelsAvx512;
    case Isa::kAvx512Vnni: return kKernelsAvx512Vnni;
    case Isa::kAvx512Bf16: return kKernelsAvx512Bf16;
#else
    default: break;
#endif
  }
  INFERD_CHECK(!"no kernels for this instruction set");
  return kKernelsPortable;
}

}  // namespace inferd::engine::cpu
