// The 512-bit registers with VNNI, and dot products of bf16 pairs (AVX512_BF16). Included only by files compiled
// for it, and by a test that emulates the instructions.
// Owner: engine/cpu, private to it.
#pragma once

#include "engine/cpu/simd_avx512.h"

namespace inferd::engine::cpu {

struct Avx512Bf16 : Avx512<true> {
  static constexpr bool kBfloatDots = true;

  // Two columns of a tile, [2][kLanes] bf16, as the pair of every lane.
  static I load_pairs(const uint8_t* p) {
    alignas(64) static constexpr uint16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                        21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                        11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return _mm512_permutexvar_epi16(_mm512_loadu_si512(kOrder), _mm512_loadu_si512(p));
  }
  // One column, [kLanes] bf16, each in a pair with zero.
  static I load_single(const uint8_t* p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  // The pair p[0], p[1] in every lane.
  static I set_bfloats(const uint16_t* p) {
    int32_t pair;
    std::memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
  }
  // sum + a1 * b1, rounded, + a0 * b0, rounded; denormals count and come out as zero.
  static F dot_bfloats(F sum, I a, I b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  // Rounds to nearest even; denormals become zero.
  static void to_bfloat(uint16_t* p, F x) {
    const __m256bh rounded = _mm512_cvtneps_pbh(x);
    std::memcpy(p, &rounded, sizeof rounded);
  }
};

}  // namespace inferd::engine::cpu
