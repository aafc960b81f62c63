#include "engine/cpu/isa.h"

#include <array>

namespace inferd::engine::cpu {

namespace {
constexpr std::array<Isa, 4> kAll{Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni};

bool runs(Isa isa) noexcept {
#if defined(__x86_64__)
  // libgcc's detection includes the operating system's support for the registers.
  switch (isa) {
    case Isa::kPortable: return true;
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    case Isa::kAvx512:
      return runs(Isa::kAvx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    case Isa::kAvx512Vnni: return runs(Isa::kAvx512) && __builtin_cpu_supports("avx512vnni");
  }
  return false;
#else
  return isa == Isa::kPortable;
#endif
}
}  // namespace

std::string_view isa_name(Isa isa) noexcept {
  switch (isa) {
    case Isa::kPortable: return "portable";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx512Vnni: return "avx512vnni";
  }
  return "unknown";
}

Isa detect_isa() noexcept {
  Isa best = Isa::kPortable;
  for (Isa isa : kAll) {
    if (runs(isa)) best = isa;
  }
  return best;
}

Result<Isa> parse_isa(std::string_view name) {
  if (name == "auto") return detect_isa();
  for (Isa isa : kAll) {
    if (isa_name(isa) != name) continue;
    if (runs(isa)) return isa;
    return Error(ErrorCode::kUnsupported, "this processor cannot run instruction set '" + std::string(name) +
                                              "'; the widest that it runs is '" +
                                              std::string(isa_name(detect_isa())) + "'");
  }
  return Error(ErrorCode::kInvalidArgument,
               "unknown instruction set '" + std::string(name) +
                   "'; choose auto, portable, avx2, avx512 or avx512vnni");
}

}  // namespace inferd::engine::cpu
