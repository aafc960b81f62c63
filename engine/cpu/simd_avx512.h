// 512-bit registers for the kernel templates: 16 lanes of 32 bits. Included only by files compiled for AVX-512,
// and by a test that emulates the instructions. With kVnni, 8-bit products are summed by vpdpbusd.
// Owner: engine/cpu, private to it. The other registers' header offers the same names.
#pragma once

#ifndef INFERD_EMULATE_AVX512
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>

namespace inferd::engine::cpu {

template <bool kVnni>
struct Avx512 {
  static constexpr uint32_t kLanes = 16;
  static constexpr uint32_t kColumnsMax = 4;  // tokens per pass of a quantized product
  static constexpr uint32_t kQueryRows = 4;   // queries per pass of attention
  static constexpr bool kBfloatDots = false;  // products of bf16 pairs: simd_avx512bf16.h
  using F = __m512;
  using I = __m512i;

  // The 64-byte line at p will be needed; p may be anything.
  static void prefetch(const uint8_t* p) { _mm_prefetch(p, _MM_HINT_T0); }
  static F zero() { return _mm512_setzero_ps(); }
  static F set1(float x) { return _mm512_set1_ps(x); }
  // The pair p[0], p[1] in every two lanes.
  static F set_pair(const float* p) {
    double pair;
    std::memcpy(&pair, p, sizeof pair);
    return _mm512_castpd_ps(_mm512_set1_pd(pair));
  }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F x) { _mm512_storeu_ps(p, x); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }  // a > b ? a : b
  static F min(F a, F b) { return _mm512_min_ps(a, b); }  // a < b ? a : b
  static F abs(F a) { return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(a), iset1(0x7FFFFFFF))); }
  // value where x >= bound (ordered), else 0.
  static F keep_if_ge(F value, F x, F bound) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, bound, _CMP_GE_OQ), value);
  }
  // Lanes below `count` keep a, the others take b.
  static F first_lanes(uint32_t count, F a, F b) {
    const auto mask = static_cast<__mmask16>(count >= 16 ? 0xFFFFu : (1u << count) - 1);
    return _mm512_mask_blend_ps(mask, b, a);
  }
  static F from_half(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static void to_half(uint16_t* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static F from_bfloat(const uint16_t* p) {
    const I wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  static F from_u8(const uint8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static I from_i8(const uint8_t* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static F from_int(I x) { return _mm512_cvtepi32_ps(x); }
  static I round_to_int(F x) { return _mm512_cvtps_epi32(x); }

  static I izero() { return _mm512_setzero_si512(); }
  static I iset1(int32_t x) { return _mm512_set1_epi32(x); }
  static I iadd(I a, I b) { return _mm512_add_epi32(a, b); }
  static I isub(I a, I b) { return _mm512_sub_epi32(a, b); }
  static I imul(I a, I b) { return _mm512_mullo_epi32(a, b); }
  static I load_codes(const uint8_t* p) { return _mm512_loadu_si512(p); }
  static I code_set1(uint8_t x) { return _mm512_set1_epi8(static_cast<char>(x)); }
  static I and_(I a, I b) { return _mm512_and_si512(a, b); }
  static I or_(I a, I b) { return _mm512_or_si512(a, b); }
  static I shift_right(I a, int n) { return _mm512_srli_epi16(a, static_cast<unsigned>(n)); }
  static I shift_left(I a, int n) { return _mm512_slli_epi16(a, static_cast<unsigned>(n)); }
  // Four consecutive codes in every lane.
  static I set_codes(const int8_t* p) {
    int32_t four;
    std::memcpy(&four, p, sizeof four);
    return _mm512_set1_epi32(four);
  }

  // Sums of products of unsigned (u < 2^kBits) and signed codes, exact. Without VNNI, 16-bit sums are widened
  // before they could overflow: a product pair is at most 2 * (2^kBits - 1) * 127.
  template <int kBits>
  struct Dot {
    static constexpr int kPairsMax = 32767 / (2 * ((1 << kBits) - 1) * 127);
    I narrow = izero();
    I wide = izero();
    int pairs = 0;
    void add(I u, I s) {
      if constexpr (kVnni) {
        wide = _mm512_dpbusd_epi32(wide, u, s);
      } else {
        if (pairs == kPairsMax) widen();
        const I product = _mm512_maddubs_epi16(u, s);
        narrow = pairs == 0 ? product : _mm512_add_epi16(narrow, product);
        ++pairs;
      }
    }
    void widen() {
      wide = _mm512_add_epi32(wide, _mm512_madd_epi16(narrow, _mm512_set1_epi16(1)));
      pairs = 0;
    }
    I total() {
      if constexpr (!kVnni) widen();
      return wide;
    }
  };
  // Signed 8-bit weight codes.
  struct DotSigned {
    I wide = izero();
    void add(I weights, I s) {
      if constexpr (kVnni) {
        // Flipping the top bit adds 128 to a signed byte; total() takes 128 times the token's sum away again.
        wide = _mm512_dpbusd_epi32(wide, _mm512_xor_si512(weights, code_set1(0x80)), s);
      } else {
        const __mmask64 negative = _mm512_movepi8_mask(weights);
        const I signs = _mm512_mask_sub_epi8(s, negative, izero(), s);
        const I product = _mm512_maddubs_epi16(_mm512_abs_epi8(weights), signs);
        wide = _mm512_add_epi32(wide, _mm512_madd_epi16(product, _mm512_set1_epi16(1)));
      }
    }
    I total(const int32_t* half_sums) {
      if constexpr (!kVnni) return wide;
      return isub(wide, iset1(128 * (half_sums[0] + half_sums[1])));
    }
  };

  // Sum of signed 8-bit weight codes: eight vectors at most.
  struct SumSigned {
    I sum = izero();
    void add(I weights) {
      if constexpr (kVnni) {
        sum = _mm512_dpbusd_epi32(sum, code_set1(1), weights);
      } else {
        sum = _mm512_add_epi16(sum, _mm512_maddubs_epi16(code_set1(1), weights));
      }
    }
    I total() {
      if constexpr (kVnni) return sum;
      return _mm512_madd_epi16(sum, _mm512_set1_epi16(1));
    }
  };
  static I add_bytes(I a, I b) { return _mm512_add_epi8(a, b); }
  // Sum of the four unsigned bytes of every lane.
  static I sum_bytes(I x) {
    return _mm512_madd_epi16(_mm512_maddubs_epi16(x, code_set1(1)), _mm512_set1_epi16(1));
  }

  // kLanes sums of neighbours: lane i is pair i of (a, b).
  static F pair_sums(F a, F b) {
    const I even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const I odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_add_ps(_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b));
  }
  // 16 partial sums, joined by halving.
  static float join(const F* p) {
    const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(p[0]), 1));
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(p[0]), high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
  }
  static float max_lane(F x) {
    const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1));
    const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x), high);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_shuffle_ps(four, four, 1)));
  }
  // p * 2^n where `shifted` holds n in its low mantissa bits.
  static F scale_by_power(F p, F shifted) {
    const I exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(p), exponent));
  }
  // 32-bit lanes to bytes, kLanes of them; the values fit.
  static void store_codes(int8_t* p, I x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(x));
  }
  static int32_t sum_lanes(I x) {
    const __m256i eight = _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xB1));
    return _mm_cvtsi128_si32(four);
  }
};

}  // namespace inferd::engine::cpu
