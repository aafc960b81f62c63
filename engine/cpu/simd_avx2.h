// 256-bit registers for the kernel templates: 8 lanes of 32 bits. Included only by files compiled for AVX2.
// Owner: engine/cpu, private to it. The other registers' header offers the same names.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace inferd::engine::cpu {

struct Avx2 {
  static constexpr uint32_t kLanes = 8;
  static constexpr uint32_t kColumnsMax = 4;  // tokens per pass of a quantized product
  static constexpr uint32_t kQueryRows = 3;   // queries per pass of attention
  static constexpr bool kBfloatDots = false;  // no products of bf16 pairs
  using F = __m256;
  using I = __m256i;

  // The 64-byte line at p will be needed; p may be anything.
  static void prefetch(const uint8_t* p) { _mm_prefetch(p, _MM_HINT_T0); }
  static F zero() { return _mm256_setzero_ps(); }
  static F set1(float x) { return _mm256_set1_ps(x); }
  // The pair p[0], p[1] in every two lanes.
  static F set_pair(const float* p) {
    double pair;
    std::memcpy(&pair, p, sizeof pair);
    return _mm256_castpd_ps(_mm256_set1_pd(pair));
  }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F x) { _mm256_storeu_ps(p, x); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm256_max_ps(a, b); }  // a > b ? a : b
  static F min(F a, F b) { return _mm256_min_ps(a, b); }  // a < b ? a : b
  static F abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
  // x where x >= bound (ordered), else 0, applied to value.
  static F keep_if_ge(F value, F x, F bound) {
    return _mm256_and_ps(value, _mm256_cmp_ps(x, bound, _CMP_GE_OQ));
  }
  // Lanes below `count` keep a, the others take b.
  static F first_lanes(uint32_t count, F a, F b) {
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), index);
    return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(mask));
  }
  static F from_half(const uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static void to_half(uint16_t* p, F x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static F from_bfloat(const uint16_t* p) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  static F from_u8(const uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  static I from_i8(const uint8_t* p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  static F from_int(I x) { return _mm256_cvtepi32_ps(x); }
  static I round_to_int(F x) { return _mm256_cvtps_epi32(x); }

  static I izero() { return _mm256_setzero_si256(); }
  static I iset1(int32_t x) { return _mm256_set1_epi32(x); }
  static I iadd(I a, I b) { return _mm256_add_epi32(a, b); }
  static I isub(I a, I b) { return _mm256_sub_epi32(a, b); }
  static I imul(I a, I b) { return _mm256_mullo_epi32(a, b); }
  static I load_codes(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
  static I code_set1(uint8_t x) { return _mm256_set1_epi8(static_cast<char>(x)); }
  static I and_(I a, I b) { return _mm256_and_si256(a, b); }
  static I or_(I a, I b) { return _mm256_or_si256(a, b); }
  static I shift_right(I a, int n) { return _mm256_srli_epi16(a, n); }
  static I shift_left(I a, int n) { return _mm256_slli_epi16(a, n); }
  // Four consecutive codes in every lane.
  static I set_codes(const int8_t* p) {
    int32_t four;
    std::memcpy(&four, p, sizeof four);
    return _mm256_set1_epi32(four);
  }

  // Sums of products of unsigned (u < 2^kBits) and signed codes, exact. 16-bit sums are widened before they
  // could overflow: a product pair is at most 2 * (2^kBits - 1) * 127.
  template <int kBits>
  struct Dot {
    static constexpr int kPairsMax = 32767 / (2 * ((1 << kBits) - 1) * 127);
    I narrow = izero();
    I wide = izero();
    int pairs = 0;
    void add(I u, I s) {
      if (pairs == kPairsMax) widen();
      const I product = _mm256_maddubs_epi16(u, s);
      narrow = pairs == 0 ? product : _mm256_add_epi16(narrow, product);
      ++pairs;
    }
    void widen() {
      wide = _mm256_add_epi32(wide, _mm256_madd_epi16(narrow, _mm256_set1_epi16(1)));
      pairs = 0;
    }
    I total() {
      widen();
      return wide;
    }
  };
  // Signed 8-bit weight codes.
  struct DotSigned {
    I wide = izero();
    void add(I weights, I s) {
      const I product = _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(s, weights));
      wide = _mm256_add_epi32(wide, _mm256_madd_epi16(product, _mm256_set1_epi16(1)));
    }
    // `half_sums` are the sums of the token's codes; not needed here.
    I total(const int32_t*) { return wide; }
  };

  // Sum of signed 8-bit weight codes: eight vectors at most.
  struct SumSigned {
    I narrow = izero();
    void add(I weights) { narrow = _mm256_add_epi16(narrow, _mm256_maddubs_epi16(code_set1(1), weights)); }
    I total() { return _mm256_madd_epi16(narrow, _mm256_set1_epi16(1)); }
  };
  static I add_bytes(I a, I b) { return _mm256_add_epi8(a, b); }
  // Sum of the four unsigned bytes of every lane.
  static I sum_bytes(I x) { return _mm256_madd_epi16(_mm256_maddubs_epi16(x, code_set1(1)), _mm256_set1_epi16(1)); }

  // kLanes sums of neighbours: lane i is pair i of (a, b).
  static F pair_sums(F a, F b) {
    const F even = _mm256_shuffle_ps(a, b, 0x88), odd = _mm256_shuffle_ps(a, b, 0xDD);
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_add_ps(even, odd)), 0xD8));
  }
  // 16 partial sums in p[0], p[1], joined by halving.
  static float join(const F* p) {
    const F eight = _mm256_add_ps(p[0], p[1]);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
  }
  static float max_lane(F x) {
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_shuffle_ps(four, four, 1)));
  }
  // p * 2^n where `shifted` holds n in its low mantissa bits.
  static F scale_by_power(F p, F shifted) {
    const I exponent = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
  }
  // 32-bit lanes to bytes, kLanes of them; the values fit.
  static void store_codes(int8_t* p, I x) {
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
  }
  static int32_t sum_lanes(I x) {
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xB1));
    return _mm_cvtsi128_si32(four);
  }
};

}  // namespace inferd::engine::cpu
