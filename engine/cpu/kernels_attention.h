// Attention of kernels_vector.h: a block of positions, and the joining of splits.
// Owner: engine/cpu, private to it; included by kernels_vector.h alone. Orders of summation: see kernels.h.
#pragma once

#include <cmath>
#include <cstring>

#include "base/ids.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/kernels_exponential.h"

namespace inferd::engine::cpu {
namespace {

// Scores of 16 positions of one page for kRows queries: scores[r][0..16).
template <class S, uint32_t kRows>
inline void page_scores(const float* const* queries, const uint16_t* keys, uint32_t head_dim,
                        float (*scores)[kAttentionBlock]) {
  using F = typename S::F;
  constexpr uint32_t kVectors = 32 / S::kLanes;  // 16 positions x 2 dimensions
  F sums[kRows][kVectors];
  for (uint32_t r = 0; r < kRows; ++r) {
    for (uint32_t v = 0; v < kVectors; ++v) sums[r][v] = S::zero();
  }
  for (uint32_t d = 0; d < head_dim; d += 2) {
    F query[kRows];
    for (uint32_t r = 0; r < kRows; ++r) query[r] = S::set_pair(queries[r] + d);
    for (uint32_t v = 0; v < kVectors; ++v) {
      const F key = S::from_half(keys + size_t{d} * kPageTokens + v * S::kLanes);
      for (uint32_t r = 0; r < kRows; ++r) sums[r][v] = S::fma(key, query[r], sums[r][v]);
    }
  }
  for (uint32_t r = 0; r < kRows; ++r) {
    for (uint32_t v = 0; v < kVectors; v += 2) {
      S::store(scores[r] + v / 2 * S::kLanes, S::pair_sums(sums[r][v], sums[r][v + 1]));
    }
  }
}

// outputs[r][d..] += sum over the page's positions of weights[r][j] * values[j][d..], kParts registers wide.
template <class S, uint32_t kRows, uint32_t kParts>
inline void page_values(float* const* outputs, const float (*weights)[kAttentionBlock], const uint16_t* values,
                        uint32_t head_dim, uint32_t d) {
  using F = typename S::F;
  F sums[kRows][kParts];
  for (uint32_t r = 0; r < kRows; ++r) {
    for (uint32_t v = 0; v < kParts; ++v) sums[r][v] = S::load(outputs[r] + d + v * S::kLanes);
  }
  for (uint32_t j = 0; j < kPageTokens; ++j) {
    F weight[kRows];
    for (uint32_t r = 0; r < kRows; ++r) weight[r] = S::set1(weights[r][j]);
    for (uint32_t v = 0; v < kParts; ++v) {
      const F value = S::from_half(values + size_t{j} * head_dim + d + v * S::kLanes);
      for (uint32_t r = 0; r < kRows; ++r) sums[r][v] = S::fma(weight[r], value, sums[r][v]);
    }
  }
  for (uint32_t r = 0; r < kRows; ++r) {
    for (uint32_t v = 0; v < kParts; ++v) S::store(outputs[r] + d + v * S::kLanes, sums[r][v]);
  }
}

template <class S, uint32_t kRows>
void attention_rows(const AttentionBlockArgs& a) {
  using F = typename S::F;
  constexpr uint32_t L = S::kLanes;
  const uint32_t pages = (a.valid + kPageTokens - 1) / kPageTokens;
  const uint32_t positions = pages * kPageTokens;
  float weights[kRows][kAttentionBlock];
  for (uint32_t p = 0; p < pages; ++p) {
    float scores[kRows][kAttentionBlock];
    page_scores<S, kRows>(a.queries, a.keys[p], a.head_dim, scores);
    for (uint32_t r = 0; r < kRows; ++r) {
      std::memcpy(weights[r] + size_t{p} * kPageTokens, scores[r], kPageTokens * sizeof(float));
    }
  }
  for (uint32_t r = 0; r < kRows; ++r) {
    F largest = S::set1(-INFINITY);
    for (uint32_t j = 0; j < positions; j += L) {
      F score = S::load(weights[r] + j);
      if (j + L > a.valid) {
        score = S::first_lanes(a.valid > j ? a.valid - j : 0, score, S::set1(-INFINITY));
        S::store(weights[r] + j, score);
      }
      largest = S::max(largest, score);
    }
    const float block_maximum = S::max_lane(largest);
    const float maximum = *a.maxima[r] > block_maximum ? *a.maxima[r] : block_maximum;
    const float rescale = exp_one<S>(*a.maxima[r] - maximum);
    F partial[16 / L];
    for (F& part : partial) part = S::zero();
    for (uint32_t j = 0; j < positions; j += L) {
      const F weight = exp_polynomial<S>(S::sub(S::load(weights[r] + j), S::set1(maximum)));
      S::store(weights[r] + j, weight);
      partial[j / L % (16 / L)] = S::add(partial[j / L % (16 / L)], weight);
    }
    *a.maxima[r] = maximum;
    *a.sums[r] = std::fmaf(*a.sums[r], rescale, S::join(partial));
    for (uint32_t d = 0; d < a.head_dim; d += L) {
      S::store(a.outputs[r] + d, S::add(S::mul(S::load(a.outputs[r] + d), S::set1(rescale)), S::zero()));
    }
  }
  for (uint32_t p = 0; p < pages; ++p) {
    float part[kRows][kAttentionBlock];
    for (uint32_t r = 0; r < kRows; ++r) {
      std::memcpy(part[r], weights[r] + size_t{p} * kPageTokens, kPageTokens * sizeof(float));
    }
    uint32_t d = 0;
    for (; d + 4 * L <= a.head_dim; d += 4 * L) {
      page_values<S, kRows, 4>(a.outputs, part, a.values[p], a.head_dim, d);
    }
    for (; d < a.head_dim; d += L) page_values<S, kRows, 1>(a.outputs, part, a.values[p], a.head_dim, d);
  }
}

template <class S>
void attention_block(const AttentionBlockArgs& a) {
  switch (a.row_count) {
    case 1: return attention_rows<S, 1>(a);
    case 2: return attention_rows<S, 2>(a);
    case 3: return attention_rows<S, 3>(a);
    default: return attention_rows<S, 4>(a);
  }
}

template <class S>
void attention_join(bool first, uint32_t head_dim, float* m1, float* l1, float* o1, const float* m2,
                    const float* l2, const float* o2) {
  if (first) {
    *m1 = *m2;
    *l1 = *l2;
    std::memcpy(o1, o2, head_dim * sizeof(float));
    return;
  }
  const float maximum = *m1 > *m2 ? *m1 : *m2;
  const float a1 = exp_one<S>(*m1 - maximum), a2 = exp_one<S>(*m2 - maximum);
  *m1 = maximum;
  *l1 = std::fmaf(*l2, a2, *l1 * a1);
  for (uint32_t d = 0; d < head_dim; d += S::kLanes) {
    S::store(o1 + d, S::fma(S::load(o2 + d), S::set1(a2), S::mul(S::load(o1 + d), S::set1(a1))));
  }
}

}  // namespace
}  // namespace inferd::engine::cpu
