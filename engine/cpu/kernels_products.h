// Matrix products of kernels_vector.h: packed weights of every type times activations.
// Owner: engine/cpu, private to it; included by kernels_vector.h alone. Orders of summation: see kernels.h.
#pragma once

#include <cstring>

#include "base/check.h"
#include "engine/cpu/kernels.h"

namespace inferd::engine::cpu {
namespace {

using formats::TensorType;


template <class S>
inline void write_results(const PackedMatrix& w, uint32_t tile, const ProductOut& out, uint32_t token,
                          typename S::F y) {
  const uint32_t row = tile * S::kLanes;
  float* place = out.values + token * out.stride + row;
  if (row + S::kLanes <= w.rows) {
    if (out.bias != nullptr) y = S::add(y, S::load(out.bias + row));
    S::store(place, out.accumulate ? S::add(S::load(place), y) : y);
    return;
  }
  float lanes[S::kLanes];
  S::store(lanes, y);
  for (uint32_t i = 0; row + i < w.rows; ++i) {
    float result = lanes[i];
    if (out.bias != nullptr) result = result + out.bias[row + i];
    place[i] = out.accumulate ? place[i] + result : result;
  }
}

constexpr int code_bits(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0:
    case TensorType::kQ4_1:
    case TensorType::kQ4_K: return 4;
    case TensorType::kQ5_0:
    case TensorType::kQ5_1:
    case TensorType::kQ5_K: return 5;
    case TensorType::kQ6_K: return 6;
    default: return 8;
  }
}

// Calls use(c, codes) for the block's eight vectors of unsigned codes, in order.
template <class S, TensorType kType, class Use>
inline void for_codes(const uint8_t* block, const Use& use) {
  using I = typename S::I;
  constexpr uint32_t kVector = 4 * S::kLanes;
  const I nibble = S::code_set1(15);
  I high0{}, high1{};
  if constexpr (code_bits(kType) == 5) high0 = S::load_codes(block + 4 * kVector);
  if constexpr (code_bits(kType) == 6) {
    high0 = S::load_codes(block + 4 * kVector);
    high1 = S::load_codes(block + 5 * kVector);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const I packed = S::load_codes(block + static_cast<uint32_t>(j) * kVector);
    I low = S::and_(packed, nibble), high = S::and_(S::shift_right(packed, 4), nibble);
    const int c = 2 * j;
    if constexpr (code_bits(kType) == 5) {
      const I bit = S::code_set1(16);
      low = S::or_(low, S::and_(c < 4 ? S::shift_left(high0, 4 - c) : S::shift_right(high0, c - 4), bit));
      high = S::or_(high, S::and_(c + 1 < 4 ? S::shift_left(high0, 3 - c) : S::shift_right(high0, c - 3), bit));
    }
    if constexpr (code_bits(kType) == 6) {
      const I bits = S::code_set1(48);
      const I source = j < 2 ? high0 : high1;
      low = S::or_(low, S::and_(j % 2 == 0 ? S::shift_left(source, 4) : source, bits));
      high = S::or_(high, S::and_(j % 2 == 0 ? S::shift_left(source, 2) : S::shift_right(source, 2), bits));
    }
    use(c, low);
    use(c + 1, high);
  }
}

template <TensorType kType>
inline constexpr bool kHasMinimum = kType != TensorType::kQ8_0 && kType != TensorType::kQ6_K;

// Scale and minimum of one block for the tile's lanes: weight = scale * code + minimum.
template <class S, TensorType kType>
inline void block_scales(const uint8_t* scales, uint32_t b, typename S::F* d, typename S::F* min) {
  constexpr uint32_t L = S::kLanes;
  const auto half = [](const uint8_t* p) { return S::from_half(reinterpret_cast<const uint16_t*>(p)); };
  if constexpr (kType == TensorType::kQ4_1 || kType == TensorType::kQ5_1) {
    *d = half(scales + size_t{b} * 4 * L);
    *min = half(scales + size_t{b} * 4 * L + 2 * L);
  } else if constexpr (kType == TensorType::kQ4_K || kType == TensorType::kQ5_K) {
    const uint8_t* super = scales + size_t{b / 8} * 20 * L;
    const uint8_t* pair = super + 4 * L + (b % 8) * 2 * L;
    *d = S::mul(half(super), S::from_u8(pair));
    *min = S::mul(half(super + 2 * L), S::sub(S::zero(), S::from_u8(pair + L)));
  } else {
    *d = half(scales + size_t{b} * 2 * L);
    *min = S::mul(*d, S::set1(kType == TensorType::kQ4_0 ? -8.0f : -16.0f));
  }
}

// Integer results of one block: for every token the weights' codes times the token's, and times one.
template <class S, TensorType kType, uint32_t kColumns>
struct BlockDots {
  using I = typename S::I;
  I dot[kColumns];
  I ones;

  // `codes` and `half_sums` are the first token's, `stride` columns apart.
  void compute(const uint8_t* block, const uint8_t* scales, uint32_t b, const int8_t* codes,
               const int32_t* half_sums, size_t stride) {
    if constexpr (kType == TensorType::kQ8_0) {
      signed_codes(block, codes, half_sums, stride);
    } else if constexpr (kType == TensorType::kQ6_K) {
      scaled_halves(block, scales, b, codes, half_sums, stride);
    } else {
      typename S::template Dot<code_bits(kType)> dots[kColumns];
      I bytes = S::izero();  // at most 8 * 31 each
      for_codes<S, kType>(block, [&](int v, I weights) {
        bytes = S::add_bytes(bytes, weights);
        for (uint32_t c = 0; c < kColumns; ++c) dots[c].add(weights, S::set_codes(codes + c * stride + 4 * v));
      });
      for (uint32_t c = 0; c < kColumns; ++c) dot[c] = dots[c].total();
      ones = S::sum_bytes(bytes);
    }
  }

  void signed_codes(const uint8_t* block, const int8_t* codes, const int32_t* half_sums, size_t stride) {
    typename S::DotSigned dots[kColumns];
    typename S::SumSigned sum;
    for (int v = 0; v < 8; ++v) {
      const I weights = S::load_codes(block + static_cast<size_t>(v) * 4 * S::kLanes);
      sum.add(weights);
      for (uint32_t c = 0; c < kColumns; ++c) dots[c].add(weights, S::set_codes(codes + c * stride + 4 * v));
    }
    for (uint32_t c = 0; c < kColumns; ++c) dot[c] = dots[c].total(half_sums + c * (stride / 16));
    ones = sum.total();
  }

  // Q6_K: a scale for 16 inputs, codes 32 above the weights.
  void scaled_halves(const uint8_t* block, const uint8_t* scales, uint32_t b, const int8_t* codes,
                     const int32_t* half_sums, size_t stride) {
    constexpr uint32_t L = S::kLanes;
    typename S::template Dot<6> dots[2][kColumns];
    I bytes[2] = {S::izero(), S::izero()};
    for_codes<S, kType>(block, [&](int v, I weights) {
      bytes[v / 4] = S::add_bytes(bytes[v / 4], weights);
      for (uint32_t c = 0; c < kColumns; ++c) dots[v / 4][c].add(weights, S::set_codes(codes + c * stride + 4 * v));
    });
    const uint8_t* pair = scales + size_t{b / 8} * 18 * L + 2 * L + (b % 8) * 2 * L;
    const I scale0 = S::from_i8(pair), scale1 = S::from_i8(pair + L), zero_point = S::iset1(16 * 32);
    for (uint32_t c = 0; c < kColumns; ++c) {
      const int32_t* sums = half_sums + c * (stride / 16);
      const I first = S::imul(scale0, S::isub(dots[0][c].total(), S::iset1(32 * sums[0])));
      const I second = S::imul(scale1, S::isub(dots[1][c].total(), S::iset1(32 * sums[1])));
      dot[c] = S::iadd(first, second);
    }
    ones = S::iadd(S::imul(scale0, S::isub(S::sum_bytes(bytes[0]), zero_point)),
                   S::imul(scale1, S::isub(S::sum_bytes(bytes[1]), zero_point)));
  }
};

// How far ahead of its use a weight is fetched while it comes from memory: a processor's own prefetching stops
// at the end of every 4 KiB page.
inline constexpr size_t kFetchAhead = 4096;

// One tile times kColumns tokens, all blocks. kFetch: the tile comes from memory, not from the cache.
template <class S, TensorType kType, uint32_t kColumns, bool kFetch>
void quantized_tile(const PackedMatrix& w, uint32_t tile_index, const Activations& x, uint32_t token,
                    const ProductOut& out) {
  using F = typename S::F;
  constexpr uint32_t L = S::kLanes;
  constexpr size_t kBlockBytes = size_t{L} * (code_bits(kType) == 8 ? 32 : 4 * code_bits(kType));
  const uint8_t* tile = w.data + size_t{tile_index} * w.tile_bytes;
  const uint8_t* scales = tile + w.scale_offset;
  const uint32_t blocks = w.columns / kBlock;
  const size_t place = size_t{token} * blocks;
  const int8_t* codes = x.codes + place * kBlock;
  const int32_t* half_sums = x.half_sums + place * 2;
  const float *x_scales = x.scales + place, *x_offsets = x.offsets + place, *x_sums = x.sums + place;
  [[maybe_unused]] const uint8_t* ahead = tile + kFetchAhead;
  [[maybe_unused]] const size_t ahead_step = w.tile_bytes / blocks;
  F sums[kColumns];
  for (uint32_t c = 0; c < kColumns; ++c) sums[c] = S::zero();

  for (uint32_t b = 0; b < blocks; ++b) {
    if constexpr (kFetch) {
      // Codes and scales together lie without gaps, so one walk fetches both.
      for (size_t i = 0; i < kBlockBytes + 4 * L; i += 64) S::prefetch(ahead + i);
      ahead += ahead_step;
    }
    BlockDots<S, kType, kColumns> block;
    block.compute(tile + b * kBlockBytes, scales, b, codes + size_t{b} * kBlock, half_sums + size_t{b} * 2, w.columns);
    F d{}, min{};
    if constexpr (kType == TensorType::kQ6_K) {
      d = S::from_half(reinterpret_cast<const uint16_t*>(scales + size_t{b / 8} * 18 * L));
    } else {
      block_scales<S, kType>(scales, b, &d, &min);
    }
    const F ones = S::from_int(block.ones);
    for (uint32_t c = 0; c < kColumns; ++c) {
      const size_t at = size_t{c} * blocks + b;
      const F scaled = S::mul(S::from_int(block.dot[c]), S::set1(x_scales[at]));
      sums[c] = S::fma(d, S::fma(ones, S::set1(x_offsets[at]), scaled), sums[c]);
      if constexpr (kHasMinimum<kType>) sums[c] = S::fma(min, S::set1(x_sums[at]), sums[c]);
    }
  }
  for (uint32_t c = 0; c < kColumns; ++c) write_results<S>(w, tile_index, out, token + c, sums[c]);
}

// Tokens are taken in runs whose codes stay in the second-level cache while all tiles pass over them.
inline constexpr size_t kTokenRunBytes = 192 * 1024;

template <class S, TensorType kType>
void quantized_product(const PackedMatrix& w, uint32_t tile_first, uint32_t tile_last, const Activations& x,
                       uint32_t tokens, const ProductOut& out) {
  constexpr uint32_t kMax = S::kColumnsMax;
  const auto fitting = static_cast<uint32_t>(kTokenRunBytes / w.columns) / kMax * kMax;
  const uint32_t run = fitting < kMax ? kMax : fitting;
  for (uint32_t first = 0; first < tokens; first += run) {
    const uint32_t last = tokens - first < run ? tokens : first + run;
    for (uint32_t tile = tile_first; tile < tile_last; ++tile) {
      uint32_t token = first;
      if (token + kMax <= last) {
        quantized_tile<S, kType, kMax, true>(w, tile, x, token, out);
        token += kMax;
      }
      for (; token + kMax <= last; token += kMax) quantized_tile<S, kType, kMax, false>(w, tile, x, token, out);
      switch (last - token) {
        case 1: quantized_tile<S, kType, 1, true>(w, tile, x, token, out); break;
        case 2: quantized_tile<S, kType, 2, true>(w, tile, x, token, out); break;
        case 3: quantized_tile<S, kType, 3, true>(w, tile, x, token, out); break;
        default:
          for (; token < last; ++token) quantized_tile<S, kType, 1, true>(w, tile, x, token, out);
      }
    }
  }
}

template <class S, TensorType kType>
inline typename S::F load_weights(const uint8_t* p) {
  if constexpr (kType == TensorType::kF32) return S::load(reinterpret_cast<const float*>(p));
  if constexpr (kType == TensorType::kF16) return S::from_half(reinterpret_cast<const uint16_t*>(p));
  return S::from_bfloat(reinterpret_cast<const uint16_t*>(p));
}

// BF16 weights times inputs rounded to bf16: pairs of columns, for instruction sets with such a dot product.
template <class S, uint32_t kTiles, uint32_t kColumns>
void bfloat_tiles(const PackedMatrix& w, uint32_t tile_index, const Activations& x, uint32_t token,
                  const ProductOut& out) {
  using F = typename S::F;
  using I = typename S::I;
  constexpr size_t kPairBytes = size_t{S::kLanes} * 4;
  const uint8_t* tile = w.data + size_t{tile_index} * w.tile_bytes;
  const uint32_t stride = bfloat_stride(w.columns), pairs = stride / 2;
  const uint16_t* bfloats = x.bfloats + size_t{token} * stride;
  F sums[kTiles][kColumns];
  for (uint32_t t = 0; t < kTiles; ++t) {
    for (uint32_t c = 0; c < kColumns; ++c) sums[t][c] = S::zero();
  }
  for (uint32_t pair = 0; pair < pairs; ++pair) {
    const bool single = 2 * pair + 1 == w.columns;  // the last of an odd number of columns
    I weights[kTiles];
    for (uint32_t t = 0; t < kTiles; ++t) {
      const uint8_t* at = tile + t * w.tile_bytes + pair * kPairBytes;
      weights[t] = single ? S::load_single(at) : S::load_pairs(at);
    }
    for (uint32_t c = 0; c < kColumns; ++c) {
      const I input = S::set_bfloats(bfloats + size_t{c} * stride + 2 * pair);
      for (uint32_t t = 0; t < kTiles; ++t) sums[t][c] = S::dot_bfloats(sums[t][c], weights[t], input);
    }
  }
  for (uint32_t t = 0; t < kTiles; ++t) {
    for (uint32_t c = 0; c < kColumns; ++c) write_results<S>(w, tile_index + t, out, token + c, sums[t][c]);
  }
}

template <class S, TensorType kType, uint32_t kTiles, uint32_t kColumns>
void float_tiles(const PackedMatrix& w, uint32_t tile_index, const Activations& x, uint32_t token,
                 const ProductOut& out) {
  if constexpr (S::kBfloatDots && kType == TensorType::kBF16) {
    return bfloat_tiles<S, kTiles, kColumns>(w, tile_index, x, token, out);
  }
  using F = typename S::F;
  constexpr size_t kStep = S::kLanes * (kType == TensorType::kF32 ? 4 : 2);
  const uint8_t* tile = w.data + size_t{tile_index} * w.tile_bytes;
  const float* values = x.values + size_t{token} * w.columns;
  F sums[kTiles][kColumns];
  for (uint32_t t = 0; t < kTiles; ++t) {
    for (uint32_t c = 0; c < kColumns; ++c) sums[t][c] = S::zero();
  }
  for (uint32_t k = 0; k < w.columns; ++k) {
    F weights[kTiles];
    for (uint32_t t = 0; t < kTiles; ++t) {
      weights[t] = load_weights<S, kType>(tile + t * w.tile_bytes + k * kStep);
    }
    for (uint32_t c = 0; c < kColumns; ++c) {
      const F input = S::set1(values[size_t{c} * w.columns + k]);
      for (uint32_t t = 0; t < kTiles; ++t) sums[t][c] = S::fma(weights[t], input, sums[t][c]);
    }
  }
  for (uint32_t t = 0; t < kTiles; ++t) {
    for (uint32_t c = 0; c < kColumns; ++c) write_results<S>(w, tile_index + t, out, token + c, sums[t][c]);
  }
}

template <class S, TensorType kType, uint32_t kTiles>
void float_columns(const PackedMatrix& w, uint32_t tile, const Activations& x, uint32_t first, uint32_t last,
                   const ProductOut& out) {
  uint32_t token = first;
  for (; token + 6 <= last; token += 6) float_tiles<S, kType, kTiles, 6>(w, tile, x, token, out);
  switch (last - token) {
    case 1: float_tiles<S, kType, kTiles, 1>(w, tile, x, token, out); break;
    case 2: float_tiles<S, kType, kTiles, 2>(w, tile, x, token, out); break;
    case 3: float_tiles<S, kType, kTiles, 3>(w, tile, x, token, out); break;
    case 4: float_tiles<S, kType, kTiles, 4>(w, tile, x, token, out); break;
    case 5: float_tiles<S, kType, kTiles, 5>(w, tile, x, token, out); break;
    default: break;
  }
}

template <class S, TensorType kType>
void float_product(const PackedMatrix& w, uint32_t tile_first, uint32_t tile_last, const Activations& x,
                   uint32_t tokens, const ProductOut& out) {
  const auto fitting = static_cast<uint32_t>(kTokenRunBytes / 4 / w.columns) / 6 * 6;
  const uint32_t run = fitting < 6 ? 6 : fitting;
  for (uint32_t first = 0; first < tokens; first += run) {
    const uint32_t last = tokens - first < run ? tokens : first + run;
    uint32_t tile = tile_first;
    if (last - first <= 2) {  // few tokens: more tiles at once keep the multipliers busy
      for (; tile + 4 <= tile_last; tile += 4) {
        if (last - first == 1) float_tiles<S, kType, 4, 1>(w, tile, x, first, out);
        if (last - first == 2) float_tiles<S, kType, 4, 2>(w, tile, x, first, out);
      }
    }
    for (; tile + 2 <= tile_last; tile += 2) float_columns<S, kType, 2>(w, tile, x, first, last, out);
    for (; tile < tile_last; ++tile) float_columns<S, kType, 1>(w, tile, x, first, last, out);
  }
}

template <class S>
void product(const PackedMatrix& w, uint32_t tile_first, uint32_t tile_last, const Activations& x,
             uint32_t tokens, const ProductOut& out) {
  switch (w.type) {
    case TensorType::kF32: return float_product<S, TensorType::kF32>(w, tile_first, tile_last, x, tokens, out);
    case TensorType::kF16: return float_product<S, TensorType::kF16>(w, tile_first, tile_last, x, tokens, out);
    case TensorType::kBF16: return float_product<S, TensorType::kBF16>(w, tile_first, tile_last, x, tokens, out);
    case TensorType::kQ8_0: return quantized_product<S, TensorType::kQ8_0>(w, tile_first, tile_last, x, tokens, out);
    case TensorType::kQ4_0: return quantized_product<S, TensorType::kQ4_0>(w, tile_first, tile_last, x, tokens, out);
    case TensorType::kQ4_1: return quantized_product<S, TensorType::kQ4_1>(w, tile_first, tile_last, x, tokens, out);
    case TensorType::kQ5_0: return quantized_product<S, TensorType::kQ5_0>(w, tile_first, tile_last, x, tokens, out);
    case TensorType::kQ5_1: return quantized_product<S, TensorType::kQ5_1>(w, tile_first, tile_last, x, tokens, out);
    case TensorType::kQ4_K: return quantized_product<S, TensorType::kQ4_K>(w, tile_first, tile_last, x, tokens, out);
    case TensorType::kQ5_K: return quantized_product<S, TensorType::kQ5_K>(w, tile_first, tile_last, x, tokens, out);
    case TensorType::kQ6_K: return quantized_product<S, TensorType::kQ6_K>(w, tile_first, tile_last, x, tokens, out);
    default: INFERD_CHECK(!"a type without a product");
  }
}

}  // namespace
}  // namespace inferd::engine::cpu
