// Random weights in every file form and the activations that go with them, packed for a table.
// Owner: the engine's unit tests. Pure functions.
#pragma once

#include <cstring>
#include <vector>

#include "base/prng.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/packed.h"
#include "formats/gguf.h"

namespace inferd::engine::cpu {

using formats::TensorType;

inline constexpr TensorType kTypes[] = {TensorType::kF32,  TensorType::kF16,  TensorType::kBF16, TensorType::kQ8_0,
                                 TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ5_0, TensorType::kQ5_1,
                                 TensorType::kQ4_K, TensorType::kQ5_K, TensorType::kQ6_K};

// Offsets of the f16 fields within a block of the file's form.
inline std::vector<size_t> half_fields(TensorType type) {
  switch (type) {
    case TensorType::kQ4_1:
    case TensorType::kQ5_1:
    case TensorType::kQ4_K:
    case TensorType::kQ5_K: return {0, 2};
    case TensorType::kQ6_K: return {208};
    default: return {0};
  }
}

inline float random_value(Prng& prng) { return static_cast<float>(prng.uniform() * 2 - 1); }

// Random rows in the file's form, with scales of ordinary size.
inline std::vector<uint8_t> random_rows(TensorType type, uint32_t rows, uint32_t columns, Prng& prng) {
  const auto* traits = formats::tensor_type_traits(type);
  std::vector<uint8_t> bytes(size_t{rows} * columns / traits->block_elements * traits->block_bytes);
  for (size_t i = 0; i < bytes.size(); i += traits->block_bytes) {
    uint8_t* block = bytes.data() + i;
    if (type == TensorType::kF32) {
      const float value = random_value(prng);
      std::memcpy(block, &value, 4);
    } else if (type == TensorType::kF16) {
      const uint16_t half = float_to_half_saturating(random_value(prng));
      std::memcpy(block, &half, 2);
    } else if (type == TensorType::kBF16) {
      const float value = random_value(prng);
      std::memcpy(block, reinterpret_cast<const uint8_t*>(&value) + 2, 2);
    } else {
      for (uint32_t b = 0; b < traits->block_bytes; ++b) block[b] = static_cast<uint8_t>(prng.next());
      for (const size_t at : half_fields(type)) {
        const uint16_t half = float_to_half_saturating(random_value(prng) * 0.01f);
        std::memcpy(block + at, &half, 2);
      }
    }
  }
  return bytes;
}

struct Packed {
  std::vector<uint8_t> data;
  PackedMatrix matrix;
};

inline Packed pack(TensorType type, const std::vector<uint8_t>& bytes, uint32_t rows, uint32_t columns, uint32_t lanes) {
  Packed packed{{}, packed_shape(type, rows, columns, lanes)};
  packed.data.resize(packed.matrix.bytes());
  const size_t row_bytes = bytes.size() / rows;
  for (uint32_t tile = 0; tile < packed.matrix.tiles; ++tile) {
    const uint32_t count = std::min(lanes, rows - tile * lanes);
    pack_tile(packed.matrix, {bytes.data() + tile * lanes * row_bytes, count * row_bytes}, count,
              packed.data.data() + tile * packed.matrix.tile_bytes);
  }
  packed.matrix.data = packed.data.data();
  return packed;
}

struct Inputs {
  std::vector<float> values;
  std::vector<int8_t> codes;
  std::vector<float> scales, offsets, sums;
  std::vector<int32_t> half_sums;
  Activations view;
};

inline Inputs make_inputs(const Kernels& kernels, const std::vector<float>& values, uint32_t tokens, uint32_t columns) {
  Inputs in;
  in.values = values;
  const size_t blocks = size_t{tokens} * columns / kBlock;
  in.codes.resize(values.size());
  in.scales.resize(blocks);
  in.offsets.resize(blocks);
  in.sums.resize(blocks);
  in.half_sums.resize(blocks * 2);
  kernels.quantize(in.values.data(), static_cast<uint32_t>(blocks),
                   {in.codes.data(), in.scales.data(), in.offsets.data(), in.sums.data(), in.half_sums.data()});
  in.view = {columns,           in.values.data(), in.codes.data(),    in.scales.data(),
             in.offsets.data(), in.sums.data(),   in.half_sums.data()};
  return in;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace inferd::engine::cpu
