// Peak loops for x86-64: AVX2, AVX-512, VNNI and BF16, chosen by what the processor says it has.
#if defined(__x86_64__)

#include <immintrin.h>

#include "bench/roofline.h"

namespace inferd::bench {
namespace {

// Independent sums, enough to hide the latency of the longest chain.
constexpr int kSums = 10;

// Makes the compiler believe that a vector changed, so that it repeats what depends on it. No code.
// A macro, because the constraint is legal only inside a function built for the instruction set.
#define INFERD_RENEW(vector) asm volatile("" : "+x"(vector))
#define INFERD_RENEW_WIDE(vector) asm volatile("" : "+v"(vector))

[[gnu::target("avx2")]] void int8_avx2(uint64_t iterations) {
  __m256i sums[kSums] = {};
  __m256i a = _mm256_set1_epi8(1);
  const __m256i b = _mm256_set1_epi8(2);
  const __m256i ones = _mm256_set1_epi16(1);
  for (uint64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 10
    for (__m256i& sum : sums) {
      INFERD_RENEW(a);
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
    }
  }
  for (__m256i& sum : sums) INFERD_RENEW(sum);
}

[[gnu::target("avx512f,avx512bw,avx512vnni")]] void int8_avx512vnni(uint64_t iterations) {
  __m512i sums[kSums] = {};
  __m512i a = _mm512_set1_epi32(0x01010101);
  const __m512i b = _mm512_set1_epi32(0x02020202);
  for (uint64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 10
    for (__m512i& sum : sums) {
      INFERD_RENEW_WIDE(a);
      sum = _mm512_dpbusd_epi32(sum, a, b);
    }
  }
  for (__m512i& sum : sums) INFERD_RENEW_WIDE(sum);
}

[[gnu::target("avx2,fma")]] void f32_avx2(uint64_t iterations) {
  __m256 sums[kSums] = {};
  __m256 a = _mm256_set1_ps(0.5f);
  const __m256 b = _mm256_set1_ps(0.25f);
  for (uint64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 10
    for (__m256& sum : sums) {
      INFERD_RENEW(a);
      sum = _mm256_fmadd_ps(a, b, sum);
    }
  }
  for (__m256& sum : sums) INFERD_RENEW(sum);
}

[[gnu::target("avx512f")]] void f32_avx512(uint64_t iterations) {
  __m512 sums[kSums] = {};
  __m512 a = _mm512_set1_ps(0.5f);
  const __m512 b = _mm512_set1_ps(0.25f);
  for (uint64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 10
    for (__m512& sum : sums) {
      INFERD_RENEW_WIDE(a);
      sum = _mm512_fmadd_ps(a, b, sum);
    }
  }
  for (__m512& sum : sums) INFERD_RENEW_WIDE(sum);
}

[[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16")]] void bf16_avx512(uint64_t iterations) {
  __m512 sums[kSums] = {};
  __m512i a = _mm512_set1_epi32(0x3f003f00);  // pairs of 0.5
  const __m512i b = _mm512_set1_epi32(0x3e803e80);
  for (uint64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 10
    for (__m512& sum : sums) {
      INFERD_RENEW_WIDE(a);
      sum = _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
    }
  }
  for (__m512& sum : sums) INFERD_RENEW_WIDE(sum);
}

[[gnu::target("avx2")]] uint64_t read_avx2(const uint8_t* bytes, size_t count) {
  __m256i sums[4] = {};
  size_t i = 0;
  for (; i + 128 <= count; i += 128) {
    for (size_t k = 0; k < 4; ++k) {
      const __m256i* place = reinterpret_cast<const __m256i*>(bytes + i + 32 * k);
      sums[k] = _mm256_xor_si256(sums[k], _mm256_loadu_si256(place));
    }
  }
  const __m256i all =
      _mm256_xor_si256(_mm256_xor_si256(sums[0], sums[1]), _mm256_xor_si256(sums[2], sums[3]));
  uint64_t result = static_cast<uint64_t>(_mm256_extract_epi64(all, 0)) ^
                    static_cast<uint64_t>(_mm256_extract_epi64(all, 3));
  for (; i < count; ++i) result ^= bytes[i];
  return result;
}

[[gnu::target("avx512f")]] uint64_t read_avx512(const uint8_t* bytes, size_t count) {
  __m512i sums[4] = {};
  size_t i = 0;
  for (; i + 256 <= count; i += 256) {
    for (size_t k = 0; k < 4; ++k) {
      sums[k] = _mm512_xor_si512(sums[k], _mm512_loadu_si512(bytes + i + 64 * k));
    }
  }
  const __m512i all =
      _mm512_xor_si512(_mm512_xor_si512(sums[0], sums[1]), _mm512_xor_si512(sums[2], sums[3]));
  uint64_t words[8];
  _mm512_storeu_si512(words, all);
  uint64_t result = 0;
  for (uint64_t word : words) result ^= word;
  for (; i < count; ++i) result ^= bytes[i];
  return result;
}

uint64_t read_portable(const uint8_t* bytes, size_t count) {
  uint64_t result = 0;
  for (size_t i = 0; i < count; ++i) result += bytes[i];
  return result;
}

}  // namespace

PeakKernel int8_peak_kernel() {
  if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw")) {
    return {"vpdpbusd, 512 bits", uint64_t{kSums} * 64 * 2, int8_avx512vnni};
  }
  if (__builtin_cpu_supports("avx2")) {
    return {"vpmaddubsw, 256 bits", uint64_t{kSums} * 32 * 2, int8_avx2};
  }
  return {};
}

PeakKernel f32_peak_kernel() {
  if (__builtin_cpu_supports("avx512f")) {
    return {"vfmadd231ps, 512 bits", uint64_t{kSums} * 16 * 2, f32_avx512};
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {"vfmadd231ps, 256 bits", uint64_t{kSums} * 8 * 2, f32_avx2};
  }
  return {};
}

PeakKernel bf16_peak_kernel() {
  if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vl")) {
    return {"vdpbf16ps, 512 bits", uint64_t{kSums} * 32 * 2, bf16_avx512};
  }
  return {};
}

uint64_t read_bytes(const uint8_t* bytes, size_t count) {
  if (__builtin_cpu_supports("avx512f")) return read_avx512(bytes, count);
  if (__builtin_cpu_supports("avx2")) return read_avx2(bytes, count);
  return read_portable(bytes, count);
}

}  // namespace inferd::bench

#endif  // __x86_64__
