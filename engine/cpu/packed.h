// How weight matrices lie in memory while they are used by the CPU backend.
// Owner: engine/cpu. Value types, immutable once filled; any thread may read.
// Must not know files or models.
//
// A matrix of `rows` outputs and `columns` inputs is cut into tiles of `lanes` rows (8 for 256-bit
// registers, 16 for 512-bit): one register lane is one output row, so every product is summed in an
// order that depends on its own row alone. Inside a tile the inputs run by blocks of 32; a block's
// codes come four inputs of each lane at a time (what `vpdpbusd` multiplies in one go):
//
//   8-bit codes:   vector c (c = 0..7): byte 4*lane + i is the code of input 4c + i
//   nibble codes:  vector j (j = 0..3): low nibbles are vector 2j of the above, high nibbles 2j + 1
//   fifth bits:    one vector, bit c of byte b belongs to byte b of vector c
//   6-bit tops:    two vectors, bits 2(c%4).. of byte b of vector c/4 belong to byte b of vector c
//
// The tile's codes are followed by its scales, block after block (f16 unless said otherwise):
//   Q4_0 Q5_0 Q8_0   d[lanes]
//   Q4_1 Q5_1        d[lanes] m[lanes]
//   Q4_K Q5_K        per 256 inputs: d[lanes] dmin[lanes], then 8 x (u8 scale[lanes], u8 min[lanes])
//   Q6_K             per 256 inputs: d[lanes], then 16 x i8 scale[lanes]
// F32, F16 and BF16 matrices are [columns][lanes] values per tile, without scales.
// Missing rows of the last tile are zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/gguf.h"

namespace inferd::engine::cpu {

inline constexpr uint32_t kBlock = 32;         // inputs that share an activation scale
inline constexpr uint32_t kSuperBlock = 256;   // inputs of a K-quant's super-block
inline constexpr size_t kTileAlignment = 64;

// A weight matrix in use: y[row] = sum over columns of w[row][column] * x[column].
struct PackedMatrix {
  formats::TensorType type{};
  uint32_t rows = 0;
  uint32_t columns = 0;
  uint32_t lanes = 0;
  uint32_t tiles = 0;
  size_t scale_offset = 0;  // from the start of a tile
  size_t tile_bytes = 0;
  const uint8_t* data = nullptr;  // [tiles][tile_bytes], borrowed from the weights' region

  size_t bytes() const { return tile_bytes * tiles; }
  bool quantized() const;
  // 0 for F32, F16, BF16.
  size_t block_code_bytes() const;
};

// Shape and sizes of a matrix packed for `lanes`; data stays null. `columns` must suit the type's block.
PackedMatrix packed_shape(formats::TensorType type, uint32_t rows, uint32_t columns, uint32_t lanes);

// Packs up to `lanes` consecutive rows, in the file's form, into one tile. `rows` holds whole rows
// (row_count of them, row_count <= shape.lanes); the others become zero. `tile` has shape.tile_bytes.
void pack_tile(const PackedMatrix& shape, std::span<const uint8_t> rows, uint32_t row_count, uint8_t* tile);

// Writes row `row` as f32, [columns]: bit for bit what the file's form dequantizes to.
void unpack_row(const PackedMatrix& matrix, uint32_t row, float* out);

// f16 <-> f32, round to nearest even; the f32 -> f16 direction saturates to +-65504 (NaN becomes 65504).
float half_to_float(uint16_t half);
uint16_t float_to_half_saturating(float value);

}  // namespace inferd::engine::cpu
