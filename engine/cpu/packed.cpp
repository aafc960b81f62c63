#include "engine/cpu/packed.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace inferd::engine::cpu {

using formats::TensorType;

namespace {

uint16_t load_u16(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

size_t element_bytes(TensorType type) { return type == TensorType::kF32 ? 4 : 2; }

bool is_super(TensorType type) {
  return type == TensorType::kQ4_K || type == TensorType::kQ5_K || type == TensorType::kQ6_K;
}

// Scale and min of sub-block j (0..7) of a Q4_K or Q5_K super-block: six bits each, packed in 12 bytes.
void unpack_k_scale(const uint8_t* scales, uint32_t j, uint8_t* scale, uint8_t* min) {
  if (j < 4) {
    *scale = scales[j] & 63;
    *min = scales[j + 4] & 63;
  } else {
    *scale = static_cast<uint8_t>((scales[j + 4] & 15) | ((scales[j - 4] >> 6) << 4));
    *min = static_cast<uint8_t>((scales[j + 4] >> 4) | ((scales[j] >> 6) << 4));
  }
}

// One row's codes for 32 inputs, and its scales, in the file's form taken apart.
struct BlockCodes {
  std::array<uint8_t, kBlock> codes;
};

// Codes of the 32 inputs from `block` (a multiple of 32 inputs) of one row.
BlockCodes read_codes(TensorType type, const uint8_t* row, uint32_t block) {
  BlockCodes out{};
  const uint32_t sub = block % 8;
  switch (type) {
    case TensorType::kQ8_0:
      std::memcpy(out.codes.data(), row + size_t{block} * 34 + 2, 32);
      break;
    case TensorType::kQ4_0:
    case TensorType::kQ4_1: {
      const uint8_t* quants = row + (type == TensorType::kQ4_0 ? size_t{block} * 18 + 2 : size_t{block} * 20 + 4);
      for (uint32_t i = 0; i < 16; ++i) {
        out.codes[i] = quants[i] & 15;
        out.codes[i + 16] = quants[i] >> 4;
      }
      break;
    }
    case TensorType::kQ5_0:
    case TensorType::kQ5_1: {
      const uint8_t* base = row + (type == TensorType::kQ5_0 ? size_t{block} * 22 + 2 : size_t{block} * 24 + 4);
      uint32_t high;
      std::memcpy(&high, base, 4);
      const uint8_t* quants = base + 4;
      for (uint32_t i = 0; i < 16; ++i) {
        out.codes[i] = static_cast<uint8_t>((quants[i] & 15) | (((high >> i) & 1) << 4));
        out.codes[i + 16] = static_cast<uint8_t>((quants[i] >> 4) | (((high >> (i + 16)) & 1) << 4));
      }
      break;
    }
    case TensorType::kQ4_K:
    case TensorType::kQ5_K: {
      const bool five = type == TensorType::kQ5_K;
      const uint8_t* super = row + size_t{block / 8} * (five ? 176 : 144);
      const uint8_t* high = super + 16;
      const uint8_t* quants = super + (five ? 48 : 16) + (sub / 2) * 32;
      for (uint32_t i = 0; i < 32; ++i) {
        uint32_t code = sub % 2 == 0 ? quants[i] & 15u : quants[i] >> 4;
        if (five) code |= ((high[i] >> sub) & 1u) << 4;
        out.codes[i] = static_cast<uint8_t>(code);
      }
      break;
    }
    case TensorType::kQ6_K: {
      const uint8_t* super = row + size_t{block / 8} * 210;
      const uint32_t half = sub / 4, quarter = sub % 4;
      const uint8_t* low = super + half * 64 + (quarter % 2) * 32;
      const uint8_t* high = super + 128 + half * 32;
      for (uint32_t i = 0; i < 32; ++i) {
        const uint32_t nibble = quarter < 2 ? low[i] & 15u : low[i] >> 4;
        out.codes[i] = static_cast<uint8_t>(nibble | (((high[i] >> (2 * quarter)) & 3u) << 4));
      }
      break;
    }
    default:
      INFERD_CHECK(!"a type without codes");
  }
  return out;
}

void pack_codes(const PackedMatrix& shape, uint32_t lane, uint32_t block, const BlockCodes& row, uint8_t* tile) {
  const uint32_t vector = 4 * shape.lanes;
  uint8_t* out = tile + size_t{block} * shape.block_code_bytes();
  if (shape.type == TensorType::kQ8_0) {
    for (uint32_t c = 0; c < 8; ++c) std::memcpy(out + c * vector + 4 * lane, &row.codes[4 * c], 4);
    return;
  }
  for (uint32_t c = 0; c < 8; ++c) {
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t code = row.codes[4 * c + i];
      const uint32_t place = 4 * lane + i;
      out[(c / 2) * vector + place] |= static_cast<uint8_t>((code & 15) << (4 * (c % 2)));
      if (shape.type == TensorType::kQ6_K) {
        out[(4 + c / 4) * vector + place] |= static_cast<uint8_t>((code >> 4) << (2 * (c % 4)));
      } else if (code >> 4 != 0) {
        out[4 * vector + place] |= static_cast<uint8_t>(1u << c);
      }
    }
  }
}

void pack_scales(const PackedMatrix& shape, uint32_t lane, const uint8_t* row, uint8_t* tile) {
  const uint32_t lanes = shape.lanes;
  uint8_t* out = tile + shape.scale_offset;
  const uint32_t blocks = shape.columns / kBlock;
  switch (shape.type) {
    case TensorType::kQ4_0:
    case TensorType::kQ5_0:
    case TensorType::kQ8_0: {
      const size_t stride = shape.type == TensorType::kQ4_0 ? 18 : shape.type == TensorType::kQ5_0 ? 22 : 34;
      for (uint32_t b = 0; b < blocks; ++b) {
        std::memcpy(out + size_t{b} * lanes * 2 + 2 * lane, row + b * stride, 2);
      }
      break;
    }
    case TensorType::kQ4_1:
    case TensorType::kQ5_1: {
      const size_t stride = shape.type == TensorType::kQ4_1 ? 20 : 24;
      for (uint32_t b = 0; b < blocks; ++b) {
        uint8_t* at = out + size_t{b} * lanes * 4;
        std::memcpy(at + 2 * lane, row + b * stride, 2);
        std::memcpy(at + 2 * (lanes + lane), row + b * stride + 2, 2);
      }
      break;
    }
    case TensorType::kQ4_K:
    case TensorType::kQ5_K: {
      const size_t stride = shape.type == TensorType::kQ4_K ? 144 : 176;
      for (uint32_t s = 0; s < blocks / 8; ++s) {
        const uint8_t* super = row + s * stride;
        uint8_t* at = out + size_t{s} * lanes * 20;
        std::memcpy(at + 2 * lane, super, 2);
        std::memcpy(at + 2 * (lanes + lane), super + 2, 2);
        for (uint32_t j = 0; j < 8; ++j) {
          uint8_t* pair = at + 4 * lanes + j * 2 * lanes;
          unpack_k_scale(super + 4, j, pair + lane, pair + lanes + lane);
        }
      }
      break;
    }
    case TensorType::kQ6_K:
      for (uint32_t s = 0; s < blocks / 8; ++s) {
        const uint8_t* super = row + size_t{s} * 210;
        uint8_t* at = out + size_t{s} * lanes * 18;
        std::memcpy(at + 2 * lane, super + 208, 2);
        for (uint32_t j = 0; j < 16; ++j) at[2 * lanes + j * lanes + lane] = super[192 + j];
      }
      break;
    default:
      INFERD_CHECK(!"a type without scales");
  }
}

// Code of input `column` of lane `lane`.
uint32_t code_at(const PackedMatrix& m, const uint8_t* tile, uint32_t lane, uint32_t column) {
  const uint32_t vector = 4 * m.lanes;
  const uint8_t* block = tile + size_t{column / kBlock} * m.block_code_bytes();
  const uint32_t c = column % kBlock / 4, place = 4 * lane + column % 4;
  if (m.type == TensorType::kQ8_0) return block[c * vector + place];
  uint32_t code = (block[(c / 2) * vector + place] >> (4 * (c % 2))) & 15u;
  if (m.type == TensorType::kQ6_K) {
    code |= ((block[(4 + c / 4) * vector + place] >> (2 * (c % 4))) & 3u) << 4;
  } else if (m.block_code_bytes() == 5 * vector) {
    code |= ((block[4 * vector + place] >> c) & 1u) << 4;
  }
  return code;
}

float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

}  // namespace

float half_to_float(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000u} << 16;
  const uint32_t exponent = (half >> 10) & 31, mantissa = half & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

uint16_t float_to_half_saturating(float value) {
  // The order of operands sends NaN to the upper bound, as the vector instructions do.
  value = value < 65504.0f ? value : 65504.0f;
  value = value > -65504.0f ? value : -65504.0f;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude < 0x38800000u) {  // below 2^-14: subnormal or zero; the sum rounds to a multiple of 2^-24
    const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x3F000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xFFFu + odd) >> 13));
}

bool PackedMatrix::quantized() const {
  return type != TensorType::kF32 && type != TensorType::kF16 && type != TensorType::kBF16;
}

size_t PackedMatrix::block_code_bytes() const {
  switch (type) {
    case TensorType::kQ8_0: return size_t{32} * lanes;
    case TensorType::kQ4_0:
    case TensorType::kQ4_1:
    case TensorType::kQ4_K: return size_t{16} * lanes;
    case TensorType::kQ5_0:
    case TensorType::kQ5_1:
    case TensorType::kQ5_K: return size_t{20} * lanes;
    case TensorType::kQ6_K: return size_t{24} * lanes;
    default: return 0;
  }
}

PackedMatrix packed_shape(TensorType type, uint32_t rows, uint32_t columns, uint32_t lanes) {
  INFERD_CHECK(lanes == 8 || lanes == 16);
  PackedMatrix m;
  m.type = type;
  m.rows = rows;
  m.columns = columns;
  m.lanes = lanes;
  m.tiles = (rows + lanes - 1) / lanes;
  size_t scale_bytes = 0;
  if (!m.quantized()) {
    m.scale_offset = size_t{columns} * lanes * element_bytes(type);
  } else {
    INFERD_CHECK(columns % (is_super(type) ? kSuperBlock : kBlock) == 0);
    m.scale_offset = columns / kBlock * m.block_code_bytes();
    switch (type) {
      case TensorType::kQ4_1:
      case TensorType::kQ5_1: scale_bytes = size_t{columns / kBlock} * lanes * 4; break;
      case TensorType::kQ4_K:
      case TensorType::kQ5_K: scale_bytes = size_t{columns / kSuperBlock} * lanes * 20; break;
      case TensorType::kQ6_K: scale_bytes = size_t{columns / kSuperBlock} * lanes * 18; break;
      default: scale_bytes = size_t{columns / kBlock} * lanes * 2; break;
    }
  }
  m.tile_bytes = (m.scale_offset + scale_bytes + kTileAlignment - 1) / kTileAlignment * kTileAlignment;
  return m;
}

void pack_tile(const PackedMatrix& shape, std::span<const uint8_t> rows, uint32_t row_count, uint8_t* tile) {
  INFERD_CHECK(row_count > 0 && row_count <= shape.lanes && rows.size() % row_count == 0);
  std::memset(tile, 0, shape.tile_bytes);
  const size_t row_bytes = rows.size() / row_count;
  for (uint32_t lane = 0; lane < row_count; ++lane) {
    const uint8_t* row = rows.data() + lane * row_bytes;
    if (!shape.quantized()) {
      const size_t size = element_bytes(shape.type);
      INFERD_CHECK(row_bytes == size * shape.columns);
      for (uint32_t k = 0; k < shape.columns; ++k) {
        std::memcpy(tile + (size_t{k} * shape.lanes + lane) * size, row + k * size, size);
      }
      continue;
    }
    for (uint32_t b = 0; b < shape.columns / kBlock; ++b) {
      pack_codes(shape, lane, b, read_codes(shape.type, row, b), tile);
    }
    pack_scales(shape, lane, row, tile);
  }
}

void unpack_row(const PackedMatrix& m, uint32_t row, float* out) {
  INFERD_CHECK(row < m.rows);
  const uint32_t lanes = m.lanes, lane = row % lanes;
  const uint8_t* tile = m.data + size_t{row / lanes} * m.tile_bytes;
  const uint8_t* scales = tile + m.scale_offset;
  for (uint32_t k = 0; k < m.columns; ++k) {
    const size_t at = size_t{k} * lanes + lane;
    switch (m.type) {
      case TensorType::kF32: std::memcpy(out + k, tile + at * 4, 4); continue;
      case TensorType::kF16: out[k] = half_to_float(load_u16(tile + at * 2)); continue;
      case TensorType::kBF16: out[k] = bf16_to_float(load_u16(tile + at * 2)); continue;
      default: break;
    }
    const auto code = static_cast<int32_t>(code_at(m, tile, lane, k));
    const size_t block = k / kBlock, super = k / kSuperBlock;
    const uint32_t sub = k / kBlock % 8;
    switch (m.type) {
      case TensorType::kQ8_0:
        out[k] = half_to_float(load_u16(scales + (block * lanes + lane) * 2)) *
                 static_cast<float>(static_cast<int8_t>(code));
        break;
      case TensorType::kQ4_0:
      case TensorType::kQ5_0:
        out[k] = half_to_float(load_u16(scales + (block * lanes + lane) * 2)) *
                 static_cast<float>(code - (m.type == TensorType::kQ4_0 ? 8 : 16));
        break;
      case TensorType::kQ4_1:
      case TensorType::kQ5_1: {
        const uint8_t* at_block = scales + block * lanes * 4;
        const float d = half_to_float(load_u16(at_block + 2 * lane));
        const float min = half_to_float(load_u16(at_block + 2 * (lanes + lane)));
        out[k] = d * static_cast<float>(code) + min;
        break;
      }
      case TensorType::kQ4_K:
      case TensorType::kQ5_K: {
        const uint8_t* at_super = scales + super * lanes * 20;
        const uint8_t* pair = at_super + 4 * lanes + sub * 2 * lanes;
        const float d = half_to_float(load_u16(at_super + 2 * lane)) * static_cast<float>(pair[lane]);
        const float min =
            half_to_float(load_u16(at_super + 2 * (lanes + lane))) * static_cast<float>(pair[lanes + lane]);
        out[k] = d * static_cast<float>(code) - min;
        break;
      }
      case TensorType::kQ6_K: {
        const uint8_t* at_super = scales + super * lanes * 18;
        const float d = half_to_float(load_u16(at_super + 2 * lane));
        const auto scale = static_cast<int8_t>(at_super[2 * lanes + (k % kSuperBlock / 16) * lanes + lane]);
        out[k] = d * static_cast<float>(scale) * static_cast<float>(code - 32);
        break;
      }
      default: INFERD_CHECK(!"a type that cannot be unpacked");
    }
  }
}

}  // namespace inferd::engine::cpu
