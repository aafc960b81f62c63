// Attention of kernels_vector.h: a block of positions, and the joining of splits.
// Owner: engine/cpu, private to it; included by kernels_vector.h alone. Orders of summation: see kernels.h.
#pragma once

#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/ids.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/kernels_exponential.h"

namespace inferd::engine::cpu {
namespace {

// Rows whose weights lie in the first cache together with a page.
constexpr uint32_t kSlabRows = 24;

// A page of keys or values, and another one that is fetched line by line while this one is used.
struct HalfPage {
  const uint16_t* data;
  const uint16_t* ahead;
};

// Scores of the page's 16 positions for kRows queries. Rows of weights are kAttentionBlock apart.
template <class S, uint32_t kRows>
inline void page_scores(const float* const* queries, const HalfPage& keys, uint32_t head_dim, float* weights) {
  using F = typename S::F;
  constexpr uint32_t kVectors = 32 / S::kLanes;  // 16 positions x 2 dimensions
  F sums[kRows][kVectors];
  for (uint32_t r = 0; r < kRows; ++r) {
    for (uint32_t v = 0; v < kVectors; ++v) sums[r][v] = S::zero();
  }
  for (uint32_t d = 0; d < head_dim; d += 2) {
    F query[kRows];
    for (uint32_t r = 0; r < kRows; ++r) query[r] = S::set_pair(queries[r] + d);
    S::prefetch(reinterpret_cast<const uint8_t*>(keys.ahead + size_t{d} * kPageTokens));
    for (uint32_t v = 0; v < kVectors; ++v) {
      const F key = S::from_half(keys.data + size_t{d} * kPageTokens + v * S::kLanes);
      for (uint32_t r = 0; r < kRows; ++r) sums[r][v] = S::fma(key, query[r], sums[r][v]);
    }
  }
  for (uint32_t r = 0; r < kRows; ++r) {
    for (uint32_t v = 0; v < kVectors; v += 2) {
      S::store(weights + r * kAttentionBlock + v / 2 * S::kLanes, S::pair_sums(sums[r][v], sums[r][v + 1]));
    }
  }
}

// outputs[r][d..] += sum over the page's positions of weight j of row r * values[j][d..], kParts registers wide.
template <class S, uint32_t kRows, uint32_t kParts>
inline void page_values(float* const* outputs, const float* weights, const HalfPage& values,
                        uint32_t head_dim, uint32_t d) {
  using F = typename S::F;
  F sums[kRows][kParts];
  for (uint32_t r = 0; r < kRows; ++r) {
    for (uint32_t v = 0; v < kParts; ++v) sums[r][v] = S::load(outputs[r] + d + v * S::kLanes);
  }
  for (uint32_t j = 0; j < kPageTokens; ++j) {
    F weight[kRows];
    for (uint32_t r = 0; r < kRows; ++r) weight[r] = S::set1(weights[r * kAttentionBlock + j]);
    S::prefetch(reinterpret_cast<const uint8_t*>(values.ahead + size_t{j} * head_dim + d));
    for (uint32_t v = 0; v < kParts; ++v) {
      const F value = S::from_half(values.data + size_t{j} * head_dim + d + v * S::kLanes);
      for (uint32_t r = 0; r < kRows; ++r) sums[r][v] = S::fma(weight[r], value, sums[r][v]);
    }
  }
  for (uint32_t r = 0; r < kRows; ++r) {
    for (uint32_t v = 0; v < kParts; ++v) S::store(outputs[r] + d + v * S::kLanes, sums[r][v]);
  }
}

template <class S, uint32_t kRows>
inline void page_output(float* const* outputs, const float* weights, const HalfPage& values,
                        uint32_t head_dim) {
  constexpr uint32_t L = S::kLanes;
  uint32_t d = 0;
  for (; d + 4 * L <= head_dim; d += 4 * L) page_values<S, kRows, 4>(outputs, weights, values, head_dim, d);
  for (; d < head_dim; d += L) page_values<S, kRows, 1>(outputs, weights, values, head_dim, d);
}

// Calls f(the number as a constant) for a number of 1 .. kMax.
template <uint32_t kMax, class F>
inline void with_count(uint32_t count, F&& f) {
  if constexpr (kMax > 1) {
    if (count < kMax) return with_count<kMax - 1>(count, f);
  }
  f(std::integral_constant<uint32_t, kMax>{});
}

// The scores of one row become weights, and its state is rescaled. kPositions are those scored.
template <class S, uint32_t kPositions>
inline void soften(float* weights, uint32_t valid, uint32_t head_dim, float* state) {
  using F = typename S::F;
  constexpr uint32_t L = S::kLanes;
  for (uint32_t j = valid / L * L; j < kPositions; j += L) {
    const F score = S::load(weights + j);
    S::store(weights + j, S::first_lanes(valid > j ? valid - j : 0, score, S::set1(-INFINITY)));
  }
  F largest = S::load(weights);
  for (uint32_t j = L; j < kPositions; j += L) largest = S::max(largest, S::load(weights + j));
  const float block_maximum = S::max_lane(largest);
  const float maximum = state[0] > block_maximum ? state[0] : block_maximum;
  const float rescale = exp_one<S>(state[0] - maximum);
  F partial[16 / L];
  for (F& part : partial) part = S::zero();
  for (uint32_t j = 0; j < kPositions; j += 16) {
    for (uint32_t v = 0; v < 16 / L; ++v) {
      float* at = weights + j + v * L;
      const F weight = exp_polynomial<S>(S::sub(S::load(at), S::set1(maximum)));
      S::store(at, weight);
      partial[v] = S::add(partial[v], weight);
    }
  }
  state[0] = maximum;
  state[1] = std::fmaf(state[1], rescale, S::join(partial));
  float* output = state + kStateOutput;
  for (uint32_t d = 0; d < head_dim; d += L) {
    S::store(output + d, S::add(S::mul(S::load(output + d), S::set1(rescale)), S::zero()));
  }
}

// Rows [first, first + rows) of the tile, at most kSlabRows. Positions behind a row's own weigh nothing, so that
// rows of several tokens go together.
template <class S>
void attention_slab(const AttentionBlockArgs& a, uint32_t first, uint32_t rows) {
  alignas(64) float weights[kSlabRows * kAttentionBlock];
  const float* queries[kSlabRows];
  float* outputs[kSlabRows];
  for (uint32_t r = 0; r < rows; ++r) {
    const uint32_t token = (first + r) / a.group, head = (first + r) % a.group;
    queries[r] = a.queries + token * a.query_stride + size_t{head} * a.head_dim;
    outputs[r] = a.states + (first + r) * a.state_stride + kStateOutput;
  }
  const uint32_t valid_max = a.valid[(first + rows - 1) / a.group];
  const uint32_t pages = (valid_max + kPageTokens - 1) / kPageTokens;
  // As even a cut as the registers allow.
  const uint32_t parts = (rows + S::kQueryRows - 1) / S::kQueryRows;
  const auto each_part = [&](auto&& f) {
    for (uint32_t part = 0; part < parts; ++part) {
      const uint32_t begin = rows * part / parts, end = rows * (part + 1) / parts;
      with_count<S::kQueryRows>(end - begin, [&](auto count) { f(count, begin); });
    }
  };
  for (uint32_t p = 0; p < pages; ++p) {
    const HalfPage keys{a.keys[p], a.values[p]};
    each_part([&](auto count, uint32_t begin) {
      page_scores<S, decltype(count)::value>(queries + begin, keys, a.head_dim,
                                             weights + begin * kAttentionBlock + p * kPageTokens);
    });
  }
  for (uint32_t r = 0; r < rows; ++r) {
    with_count<kAttentionBlock / kPageTokens>(pages, [&](auto count) {
      soften<S, decltype(count)::value * kPageTokens>(weights + r * kAttentionBlock,
                                                      a.valid[(first + r) / a.group], a.head_dim,
                                                      a.states + (first + r) * a.state_stride);
    });
  }
  for (uint32_t p = 0; p < pages; ++p) {
    const HalfPage values{a.values[p], a.next_keys[p] != nullptr ? a.next_keys[p] : a.values[p]};
    each_part([&](auto count, uint32_t begin) {
      page_output<S, decltype(count)::value>(
          outputs + begin, weights + begin * kAttentionBlock + p * kPageTokens, values, a.head_dim);
    });
  }
}

template <class S>
void attention_block(const AttentionBlockArgs& a) {
  const uint32_t rows = a.token_count * a.group;
  const uint32_t slabs = (rows + kSlabRows - 1) / kSlabRows;
  for (uint32_t slab = 0; slab < slabs; ++slab) {
    const uint32_t first = rows * slab / slabs;
    attention_slab<S>(a, first, rows * (slab + 1) / slabs - first);
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
