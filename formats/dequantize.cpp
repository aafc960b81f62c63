#include "formats/dequantize.h"

#include <bit>
#include <string>

#include "formats/half.h"

// Block layouts: the GGUF specification's tensor types. Every number is little endian.

namespace inferd::formats {

namespace {

uint16_t load16(const uint8_t* at) { return static_cast<uint16_t>(at[0] | (uint16_t{at[1]} << 8)); }
uint32_t load32(const uint8_t* at) {
  return uint32_t{load16(at)} | (uint32_t{load16(at + 2)} << 16);
}
float load_f16(const uint8_t* at) { return f16_to_f32(load16(at)); }

void f32(const uint8_t* block, float* out) { *out = std::bit_cast<float>(load32(block)); }
void f16(const uint8_t* block, float* out) { *out = load_f16(block); }
void bf16(const uint8_t* block, float* out) { *out = bf16_to_f32(load16(block)); }

// f16 scale, 32 int8.
void q8_0(const uint8_t* block, float* out) {
  const float scale = load_f16(block);
  for (int i = 0; i < 32; ++i) {
    out[i] = scale * static_cast<float>(static_cast<int8_t>(block[2 + i]));
  }
}

// f16 scale, 16 bytes: byte i holds elements i (low) and i + 16 (high), offset by 8.
void q4_0(const uint8_t* block, float* out) {
  const float scale = load_f16(block);
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>((block[2 + i] & 0xF) - 8);
    out[i + 16] = scale * static_cast<float>((block[2 + i] >> 4) - 8);
  }
}

// f16 scale, f16 minimum, 16 bytes as in q4_0 without the offset.
void q4_1(const uint8_t* block, float* out) {
  const float scale = load_f16(block), minimum = load_f16(block + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>(block[4 + i] & 0xF) + minimum;
    out[i + 16] = scale * static_cast<float>(block[4 + i] >> 4) + minimum;
  }
}

// f16 scale, 32 fifth bits (bit i: element i), 16 bytes as in q4_0; offset 16.
void q5_0(const uint8_t* block, float* out) {
  const float scale = load_f16(block);
  const uint32_t high = load32(block + 2);
  for (int i = 0; i < 16; ++i) {
    const int low = static_cast<int>((block[6 + i] & 0xFu) | ((high >> i & 1u) << 4));
    const int upper = static_cast<int>((block[6 + i] >> 4) | ((high >> (i + 16) & 1u) << 4));
    out[i] = scale * static_cast<float>(low - 16);
    out[i + 16] = scale * static_cast<float>(upper - 16);
  }
}

// f16 scale, f16 minimum, fifth bits and 16 bytes as in q5_0 without the offset.
void q5_1(const uint8_t* block, float* out) {
  const float scale = load_f16(block), minimum = load_f16(block + 2);
  const uint32_t high = load32(block + 4);
  for (int i = 0; i < 16; ++i) {
    const uint32_t low = (block[8 + i] & 0xFu) | ((high >> i & 1u) << 4);
    const uint32_t upper = (uint32_t{block[8 + i]} >> 4) | ((high >> (i + 16) & 1u) << 4);
    out[i] = scale * static_cast<float>(low) + minimum;
    out[i + 16] = scale * static_cast<float>(upper) + minimum;
  }
}

struct ScaleMin {
  uint32_t scale;
  uint32_t minimum;
};

// Sub-block j's 6-bit scale and minimum from the 12 bytes that q4_K and q5_K share: the first four
// pairs lie in the low 6 bits of bytes 0-3 and 4-7, the others' low 4 bits in bytes 8-11 and their
// upper 2 bits on top of the first four.
ScaleMin scale_min(const uint8_t* packed, int j) {
  if (j < 4) return {packed[j] & 63u, packed[j + 4] & 63u};
  const uint32_t low = packed[j + 4];
  return {(low & 0xFu) | (uint32_t{packed[j - 4]} >> 6 << 4),
          (low >> 4) | (uint32_t{packed[j]} >> 6 << 4)};
}

// f16 scale, f16 minimum, 12 bytes of 6-bit scales and minima, 128 bytes: each 32 bytes hold one
// sub-block of 32 in their low and the next in their high nibbles.
void q4_k(const uint8_t* block, float* out) {
  const float scale = load_f16(block), minimum = load_f16(block + 2);
  for (int j = 0; j < 8; ++j) {
    const ScaleMin sub = scale_min(block + 4, j);
    const float d = scale * static_cast<float>(sub.scale);
    const float m = minimum * static_cast<float>(sub.minimum);
    const uint8_t* quants = block + 16 + 32 * (j / 2);
    for (int i = 0; i < 32; ++i) {
      const int quant = (quants[i] >> (4 * (j % 2))) & 0xF;
      out[32 * j + i] = d * static_cast<float>(quant) - m;
    }
  }
}

// As q4_k, with 32 bytes of fifth bits between: bit j of byte i belongs to element i of sub-block
// j.
void q5_k(const uint8_t* block, float* out) {
  const float scale = load_f16(block), minimum = load_f16(block + 2);
  for (int j = 0; j < 8; ++j) {
    const ScaleMin sub = scale_min(block + 4, j);
    const float d = scale * static_cast<float>(sub.scale);
    const float m = minimum * static_cast<float>(sub.minimum);
    const uint8_t* quants = block + 48 + 32 * (j / 2);
    for (int i = 0; i < 32; ++i) {
      const int low = (quants[i] >> (4 * (j % 2))) & 0xF;
      const int quant = low | (((block[16 + i] >> j) & 1) << 4);
      out[32 * j + i] = d * static_cast<float>(quant) - m;
    }
  }
}

// 128 bytes of low nibbles, 64 bytes of upper 2-bit pairs, 16 int8 scales (one for 16 elements),
// f16 scale; offset 32. Each half (128 elements) has 64 low and 32 upper bytes: the quarters of 32
// elements take low nibbles of bytes 0-31 and 32-63, then high nibbles of the same; upper bits 0-1,
// 2-3, 4-5, 6-7.
void q6_k(const uint8_t* block, float* out) {
  const float scale = load_f16(block + 208);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* low = block + 64 * half;
    const uint8_t* upper = block + 128 + 32 * half;
    for (int quarter = 0; quarter < 4; ++quarter) {
      for (int i = 0; i < 32; ++i) {
        const int four = (low[32 * (quarter % 2) + i] >> (4 * (quarter / 2))) & 0xF;
        const int two = (upper[i] >> (2 * quarter)) & 3;
        const auto sub = static_cast<int8_t>(block[192 + 8 * half + 2 * quarter + i / 16]);
        const float d = scale * static_cast<float>(sub);
        out[128 * half + 32 * quarter + i] = d * static_cast<float>((four | (two << 4)) - 32);
      }
    }
  }
}

using BlockFunction = void (*)(const uint8_t* block, float* out);

BlockFunction block_function(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return f32;
    case TensorType::kF16:
      return f16;
    case TensorType::kBF16:
      return bf16;
    case TensorType::kQ4_0:
      return q4_0;
    case TensorType::kQ4_1:
      return q4_1;
    case TensorType::kQ5_0:
      return q5_0;
    case TensorType::kQ5_1:
      return q5_1;
    case TensorType::kQ8_0:
      return q8_0;
    case TensorType::kQ4_K:
      return q4_k;
    case TensorType::kQ5_K:
      return q5_k;
    case TensorType::kQ6_K:
      return q6_k;
    case TensorType::kQ8_1:
    case TensorType::kQ2_K:
    case TensorType::kQ3_K:
    case TensorType::kQ8_K:
      return nullptr;
  }
  return nullptr;
}

}  // namespace

Result<void> dequantize(TensorType type, std::span<const uint8_t> blocks, std::span<float> out) {
  const TensorTypeTraits* traits = tensor_type_traits(type);
  const BlockFunction function = block_function(type);
  if (traits == nullptr || function == nullptr) {
    return Error(ErrorCode::kUnsupported, tensor_type_name(type) + " cannot be dequantized");
  }
  const size_t count = blocks.size() / traits->block_bytes;
  if (count * traits->block_bytes != blocks.size() ||
      count * traits->block_elements != out.size()) {
    return Error(ErrorCode::kInvalidArgument, std::to_string(blocks.size()) + " bytes of " +
                                                  tensor_type_name(type) + " do not make " +
                                                  std::to_string(out.size()) + " values");
  }
  for (size_t i = 0; i < count; ++i) {
    function(blocks.data() + i * traits->block_bytes, out.data() + i * traits->block_elements);
  }
  return {};
}

}  // namespace inferd::formats
