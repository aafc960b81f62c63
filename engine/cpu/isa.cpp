#include "engine/cpu/isa.h"

#include <array>

namespace inferd::engine::cpu {

namespace {

constexpr std::array kAll{Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni, Isa::kAvx512Bf16};

// The widest that "auto" takes. All up to it give the same bits, so that a machine may be exchanged for another;
// the one beyond has to be asked for.
constexpr Isa kAutoMax = Isa::kAvx512Vnni;

// An instruction set needs its own rows and those of every narrower one.
struct Need {
  Isa isa;
  const char* feature;
  uint32_t CpuidRegisters::*word;
  uint32_t bit;
};
[[maybe_unused]] constexpr std::array kNeeds{
    Need{Isa::kAvx2, "FMA", &CpuidRegisters::leaf1_ecx, 12},
    Need{Isa::kAvx2, "AVX", &CpuidRegisters::leaf1_ecx, 28},
    Need{Isa::kAvx2, "F16C", &CpuidRegisters::leaf1_ecx, 29},
    Need{Isa::kAvx2, "AVX2", &CpuidRegisters::leaf7_ebx, 5},
    Need{Isa::kAvx512, "AVX512F", &CpuidRegisters::leaf7_ebx, 16},
    Need{Isa::kAvx512, "AVX512DQ", &CpuidRegisters::leaf7_ebx, 17},
    Need{Isa::kAvx512, "AVX512BW", &CpuidRegisters::leaf7_ebx, 30},
    Need{Isa::kAvx512, "AVX512VL", &CpuidRegisters::leaf7_ebx, 31},
    Need{Isa::kAvx512Vnni, "AVX512_VNNI", &CpuidRegisters::leaf7_ecx, 11},
    Need{Isa::kAvx512Bf16, "AVX512_BF16", &CpuidRegisters::leaf7_1_eax, 5},
};
[[maybe_unused]] constexpr uint32_t kYmmStates = 0x06;  // XCR0: the registers xmm and the upper halves of ymm
[[maybe_unused]] constexpr uint32_t kZmmStates = 0xE6;  // and masks, upper halves of zmm, and zmm16 to zmm31

// What is missing for an instruction set, as the rest of a sentence; empty if it runs.
std::string missing(Isa isa, const CpuidRegisters& cpu) {
#if defined(__x86_64__)
  std::string features;
  for (const Need& need : kNeeds) {
    if (need.isa > isa || (cpu.*need.word >> need.bit & 1) != 0) continue;
    features += (features.empty() ? "" : ", ") + std::string(need.feature);
  }
  if (!features.empty()) return "the processor lacks " + features;
  const uint32_t states = isa >= Isa::kAvx512 ? kZmmStates : isa >= Isa::kAvx2 ? kYmmStates : 0;
  if ((cpu.xcr0 & states) == states) return {};
  return "the processor has it, but the operating system (or the virtual machine) has not enabled its registers";
#else
  static_cast<void>(cpu);
  return isa == Isa::kPortable ? std::string() : "this is no x86-64 processor";
#endif
}

}  // namespace

std::string_view isa_name(Isa isa) noexcept {
  switch (isa) {
    case Isa::kPortable: return "portable";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx512Vnni: return "avx512vnni";
    case Isa::kAvx512Bf16: return "avx512bf16";
  }
  return "unknown";
}

Isa detect_isa(const CpuidRegisters& cpu) noexcept {
  Isa best = Isa::kPortable;
  for (const Isa isa : kAll) {
    if (isa <= kAutoMax && missing(isa, cpu).empty()) best = isa;
  }
  return best;
}

Result<Isa> parse_isa(std::string_view name, const CpuidRegisters& cpu) {
  if (name == "auto") return detect_isa(cpu);
  std::string names = "auto";
  for (const Isa isa : kAll) {
    names += ", " + std::string(isa_name(isa));
    if (isa_name(isa) != name) continue;
    const std::string reason = missing(isa, cpu);
    if (reason.empty()) return isa;
    return Error(ErrorCode::kUnsupported, "instruction set '" + std::string(name) + "' does not run here: " + reason +
                                              "; choose 'auto', which takes '" +
                                              std::string(isa_name(detect_isa(cpu))) + "' on this machine");
  }
  return Error(ErrorCode::kInvalidArgument,
               "unknown instruction set '" + std::string(name) + "'; choose one of " + names);
}

}  // namespace inferd::engine::cpu
