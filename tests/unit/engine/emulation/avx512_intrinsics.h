// The AVX-512 intrinsics that the kernels use, in AVX2 instructions: by SIMDe, and below by hand what
// Debian 12's SIMDe lacks. With it the kernel templates of the AVX-512 tables run on a processor without
// AVX-512; the numbers are the instruction set's, only the speed is not.
// Owner: the engine's unit tests. Included before engine/cpu/simd_avx512.h, with INFERD_EMULATE_AVX512.
#pragma once

#if !defined(INFERD_EMULATE_AVX512) || !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "compile with INFERD_EMULATE_AVX512 defined, for AVX2, FMA and F16C"
#endif
#ifdef __AVX512F__
#error "an emulation compiled for AVX-512 would test the real instructions on machines that lack them"
#endif

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/fma.h>
#include <simde/x86/f16c.h>
// After the narrower sets, which these headers build upon.
#include <simde/x86/avx512/abs.h>
#include <simde/x86/avx512/add.h>
#include <simde/x86/avx512/and.h>
#include <simde/x86/avx512/blend.h>
#include <simde/x86/avx512/cast.h>
#include <simde/x86/avx512/cmp.h>
#include <simde/x86/avx512/cvts.h>
#include <simde/x86/avx512/div.h>
#include <simde/x86/avx512/dpbusd.h>
#include <simde/x86/avx512/extract.h>
#include <simde/x86/avx512/fmadd.h>
#include <simde/x86/avx512/loadu.h>
#include <simde/x86/avx512/madd.h>
#include <simde/x86/avx512/maddubs.h>
#include <simde/x86/avx512/max.h>
#include <simde/x86/avx512/min.h>
#include <simde/x86/avx512/mov.h>
#include <simde/x86/avx512/mov_mask.h>
#include <simde/x86/avx512/mul.h>
#include <simde/x86/avx512/mullo.h>
#include <simde/x86/avx512/or.h>
#include <simde/x86/avx512/permutex2var.h>
#include <simde/x86/avx512/permutexvar.h>
#include <simde/x86/avx512/set.h>
#include <simde/x86/avx512/set1.h>
#include <simde/x86/avx512/setr.h>
#include <simde/x86/avx512/setzero.h>
#include <simde/x86/avx512/slli.h>
#include <simde/x86/avx512/srli.h>
#include <simde/x86/avx512/storeu.h>
#include <simde/x86/avx512/sub.h>
#include <simde/x86/avx512/xor.h>

#include <array>
#include <bit>

#include "tests/unit/engine/emulation/bfloat.h"

namespace inferd::engine::cpu::emulated {

// A 512-bit register as two halves.
struct FloatHalves {
  __m256 low, high;
};
struct IntHalves {
  __m256i low, high;
};
inline FloatHalves halves(__m512 x) { return std::bit_cast<FloatHalves>(x); }
inline IntHalves halves(__m512i x) { return std::bit_cast<IntHalves>(x); }
inline __m512 join(__m256 low, __m256 high) { return std::bit_cast<__m512>(FloatHalves{low, high}); }
inline __m512i join(__m256i low, __m256i high) { return std::bit_cast<__m512i>(IntHalves{low, high}); }

inline __m512 cvtph_ps(__m256i x) {
  return join(_mm256_cvtph_ps(_mm256_castsi256_si128(x)), _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1)));
}
// Rounds to nearest even, whatever the caller passes for the mode: the kernels know no other.
inline __m256i cvtps_ph(__m512 x, int) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return _mm256_set_m128i(_mm256_cvtps_ph(halves(x).high, kMode), _mm256_cvtps_ph(halves(x).low, kMode));
}
inline __m512i cvtepu16_epi32(__m256i x) {
  return join(_mm256_cvtepu16_epi32(_mm256_castsi256_si128(x)),
              _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1)));
}
inline __m512i cvtepu8_epi32(__m128i x) {
  return join(_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128(x, 8)));
}
inline __m512i cvtepi8_epi32(__m128i x) {
  return join(_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)));
}
inline __m512 cvtepi32_ps(__m512i x) {
  return join(_mm256_cvtepi32_ps(halves(x).low), _mm256_cvtepi32_ps(halves(x).high));
}
inline __m512i cvtps_epi32(__m512 x) {
  return join(_mm256_cvtps_epi32(halves(x).low), _mm256_cvtps_epi32(halves(x).high));
}
// Counts that are no constants: SIMDe refuses those under clang.
inline __m512i slli_epi16(__m512i x, unsigned count) {
  const auto n = static_cast<int>(count);
  return join(_mm256_slli_epi16(halves(x).low, n), _mm256_slli_epi16(halves(x).high, n));
}
inline __m512i srli_epi16(__m512i x, unsigned count) {
  const auto n = static_cast<int>(count);
  return join(_mm256_srli_epi16(halves(x).low, n), _mm256_srli_epi16(halves(x).high, n));
}

// AVX512_BF16, lane by lane.
inline __m512 dpbf16_ps(__m512 sum, __m512bh a, __m512bh b) {
  auto sums = std::bit_cast<std::array<float, 16>>(sum);
  const auto as = std::bit_cast<std::array<uint32_t, 16>>(a), bs = std::bit_cast<std::array<uint32_t, 16>>(b);
  for (size_t i = 0; i < 16; ++i) sums[i] = pair_dot(sums[i], as[i], bs[i]);
  return std::bit_cast<__m512>(sums);
}
inline __m256bh cvtneps_pbh(__m512 x) {
  const auto values = std::bit_cast<std::array<float, 16>>(x);
  std::array<uint16_t, 16> rounded;
  for (size_t i = 0; i < 16; ++i) rounded[i] = float_to_bfloat(values[i]);
  return std::bit_cast<__m256bh>(rounded);
}

}  // namespace inferd::engine::cpu::emulated

// Macros of these names stand before the compiler's own declarations, which are for AVX-512 alone. SIMDe's
// alias of the first takes a mask's operands, too.
#undef _mm512_madd_epi16
#undef _mm512_cvtph_ps
#undef _mm512_cvtps_ph
#undef _mm512_cvtepu16_epi32
#undef _mm512_cvtepu8_epi32
#undef _mm512_cvtepi8_epi32
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtps_epi32
#undef _mm512_slli_epi16
#undef _mm512_srli_epi16
#undef _mm512_dpbf16_ps
#undef _mm512_cvtneps_pbh
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)
#define _mm512_cvtph_ps(a) ::inferd::engine::cpu::emulated::cvtph_ps(a)
#define _mm512_cvtps_ph(a, mode) ::inferd::engine::cpu::emulated::cvtps_ph(a, mode)
#define _mm512_cvtepu16_epi32(a) ::inferd::engine::cpu::emulated::cvtepu16_epi32(a)
#define _mm512_cvtepu8_epi32(a) ::inferd::engine::cpu::emulated::cvtepu8_epi32(a)
#define _mm512_cvtepi8_epi32(a) ::inferd::engine::cpu::emulated::cvtepi8_epi32(a)
#define _mm512_cvtepi32_ps(a) ::inferd::engine::cpu::emulated::cvtepi32_ps(a)
#define _mm512_cvtps_epi32(a) ::inferd::engine::cpu::emulated::cvtps_epi32(a)
#define _mm512_slli_epi16(a, n) ::inferd::engine::cpu::emulated::slli_epi16(a, n)
#define _mm512_srli_epi16(a, n) ::inferd::engine::cpu::emulated::srli_epi16(a, n)
#define _mm512_dpbf16_ps(sum, a, b) ::inferd::engine::cpu::emulated::dpbf16_ps(sum, a, b)
#define _mm512_cvtneps_pbh(a) ::inferd::engine::cpu::emulated::cvtneps_pbh(a)
