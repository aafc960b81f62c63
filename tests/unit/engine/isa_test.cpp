// The instruction set chosen is the widest that processor and operating system both run, and asking for one that
// they lack says what is missing. Machines are written down as the registers that their CPUID shows.
#include "engine/cpu/isa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/cpu/kernels.h"

namespace inferd::engine::cpu {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Isa, IsWhatTheCompilersOwnDetectionSays) {
#if defined(__x86_64__)
  // Not asked for F16C, which clang 14 does not know: every processor with AVX2 has it.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  EXPECT_EQ(parse_isa("avx2").ok(), avx2);
  EXPECT_EQ(parse_isa("avx512").ok(), avx512);
  const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
  EXPECT_EQ(parse_isa("avx512vnni").ok(), vnni);
  EXPECT_EQ(parse_isa("avx512bf16").ok(), vnni && __builtin_cpu_supports("avx512bf16"));
#else
  EXPECT_EQ(detect_isa(), Isa::kPortable);
#endif
  EXPECT_TRUE(parse_isa("portable").ok());
  ASSERT_TRUE(parse_isa("auto").ok());
  EXPECT_EQ(parse_isa("auto").value(), detect_isa());
}

TEST(Isa, EachThatRunsHereHasATableOfItsOwn) {
  for (const char* name : {"portable", "avx2", "avx512", "avx512vnni", "avx512bf16"}) {
    const auto isa = parse_isa(name);
    if (!isa.ok()) continue;
    EXPECT_EQ(kernels_for(isa.value()).isa, isa.value());
    EXPECT_EQ(isa_name(isa.value()), name);
  }
}

TEST(Isa, UnknownNameIsAnsweredWithThoseThatThereAre) {
  const auto isa = parse_isa("avx10");
  ASSERT_FALSE(isa.ok());
  EXPECT_EQ(isa.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(isa.error().message(), HasSubstr("'avx10'; choose one of auto, portable, avx2, avx512, avx512vnni, avx512bf16"));
}

#if defined(__x86_64__)

constexpr uint32_t kFma = 1u << 12, kXsaveEnabled = 1u << 27, kAvx = 1u << 28, kF16c = 1u << 29;  // leaf 1, ecx
constexpr uint32_t kAvx2 = 1u << 5;                                                               // leaf 7, ebx
constexpr uint32_t kAvx512F = 1u << 16, kAvx512Dq = 1u << 17, kAvx512Bw = 1u << 30, kAvx512Vl = 1u << 31;
constexpr uint32_t kVnni = 1u << 11;                                                              // leaf 7, ecx

CpuidRegisters nehalem() { return {}; }
CpuidRegisters sandy_bridge() { return {kXsaveEnabled | kAvx, 0, 0, 0, 0x07}; }
CpuidRegisters haswell() { return {kXsaveEnabled | kAvx | kFma | kF16c, kAvx2, 0, 0, 0x07}; }
CpuidRegisters skylake_server() {
  CpuidRegisters cpu = haswell();
  cpu.leaf7_ebx |= kAvx512F | kAvx512Dq | kAvx512Bw | kAvx512Vl;
  cpu.xcr0 = 0xE7;
  return cpu;
}
CpuidRegisters cascade_lake() {
  CpuidRegisters cpu = skylake_server();
  cpu.leaf7_ecx |= kVnni;
  return cpu;
}
CpuidRegisters cooper_lake() {
  CpuidRegisters cpu = cascade_lake();
  cpu.leaf7_1_eax = 1u << 5;
  return cpu;
}

TEST(Isa, IsTheWidestThatAProcessorRuns) {
  EXPECT_EQ(detect_isa(nehalem()), Isa::kPortable);
  EXPECT_EQ(detect_isa(sandy_bridge()), Isa::kPortable);
  EXPECT_EQ(detect_isa(haswell()), Isa::kAvx2);
  EXPECT_EQ(detect_isa(skylake_server()), Isa::kAvx512);
  EXPECT_EQ(detect_isa(cascade_lake()), Isa::kAvx512Vnni);
}

TEST(Isa, WhoseResultsDifferMustBeAskedFor) {
  EXPECT_EQ(detect_isa(cooper_lake()), Isa::kAvx512Vnni);
  ASSERT_TRUE(parse_isa("avx512bf16", cooper_lake()).ok());
  EXPECT_EQ(parse_isa("avx512bf16", cooper_lake()).value(), Isa::kAvx512Bf16);
  EXPECT_FALSE(parse_isa("avx512bf16", cascade_lake()).ok());
}

TEST(Isa, EveryFeatureOfASetIsNeeded) {
  for (const uint32_t bit : {kFma, kAvx, kF16c}) {
    CpuidRegisters cpu = cascade_lake();
    cpu.leaf1_ecx &= ~bit;
    EXPECT_EQ(detect_isa(cpu), Isa::kPortable) << bit;
  }
  CpuidRegisters cpu = cascade_lake();
  cpu.leaf7_ebx &= ~kAvx2;
  EXPECT_EQ(detect_isa(cpu), Isa::kPortable);
  for (const uint32_t bit : {kAvx512F, kAvx512Dq, kAvx512Bw, kAvx512Vl}) {
    cpu = cascade_lake();
    cpu.leaf7_ebx &= ~bit;
    EXPECT_EQ(detect_isa(cpu), Isa::kAvx2) << bit;
  }
}

TEST(Isa, RegistersThatTheSystemDoesNotSaveAreNotUsed) {
  CpuidRegisters cpu = cascade_lake();
  for (const uint32_t state : {0x20u, 0x40u, 0x80u}) {  // masks, upper halves, upper registers
    cpu.xcr0 = 0xE7 & ~state;
    EXPECT_EQ(detect_isa(cpu), Isa::kAvx2) << state;
  }
  cpu.xcr0 = 0xE3;  // not even the upper halves of ymm
  EXPECT_EQ(detect_isa(cpu), Isa::kPortable);
  cpu.xcr0 = 0;
  EXPECT_EQ(detect_isa(cpu), Isa::kPortable);
}

std::string refusal(std::string_view name, const CpuidRegisters& cpu) {
  const auto isa = parse_isa(name, cpu);
  if (isa.ok()) return "accepted";
  EXPECT_EQ(isa.error().code(), ErrorCode::kUnsupported);
  return isa.error().message();
}

TEST(Isa, AskingForWhatIsMissingSaysWhatAndWhatToDo) {
  EXPECT_EQ(refusal("avx512", haswell()),
            "instruction set 'avx512' does not run here: the processor lacks AVX512F, AVX512DQ, AVX512BW, AVX512VL; "
            "choose 'auto', which takes 'avx2' on this machine");
  EXPECT_THAT(refusal("avx2", sandy_bridge()), HasSubstr("lacks FMA, F16C, AVX2; choose 'auto', which takes 'portable'"));
  EXPECT_THAT(refusal("avx512vnni", skylake_server()), HasSubstr("the processor lacks AVX512_VNNI;"));
  CpuidRegisters cpu = cascade_lake();
  cpu.xcr0 = 0x07;
  EXPECT_THAT(refusal("avx512vnni", cpu), HasSubstr("the operating system (or the virtual machine) has not enabled"));
  EXPECT_THAT(refusal("avx512vnni", cpu), Not(HasSubstr("lacks")));
  EXPECT_EQ(refusal("avx2", cpu), "accepted");
  EXPECT_EQ(refusal("portable", nehalem()), "accepted");
}

#endif

}  // namespace
}  // namespace inferd::engine::cpu
