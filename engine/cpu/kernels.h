// The CPU kernels behind one table of functions per instruction set.
// Owner: the CPU backend picks one table at load and keeps it. Functions are pure but for their outputs
// and may run on several threads at once over disjoint outputs. They know neither models nor sequences.
//
// Order of every sum (the same in all tables, so they agree bit for bit but for the exception below):
// - Matrix products: one chain of fused multiply-adds per output, over the columns in order (float
//   weights), or over blocks of 32 whose integer dot product is exact (quantized weights).
// - RMS norm, softmax sums: 16 partial sums, element i in sum i % 16, joined by halving (i with i + 8, 4, 2, 1).
// - Attention scores: one chain over the even and one over the odd dimensions, then their sum.
// - Attention output: one chain over positions; blocks of 64 positions rescale, splits of 256 are joined in order.
//
// The exception: the table for AVX512_BF16 multiplies BF16 weights by inputs rounded to bf16, pair of columns by
// pair, the second of a pair first, denormals as zero. Its results do not depend on batch or neighbours either,
// but are not those of the other tables.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/cpu/isa.h"
#include "engine/cpu/packed.h"

namespace inferd::engine::cpu {

inline constexpr uint32_t kAttentionBlock = 64;   // positions per softmax rescale
inline constexpr uint32_t kAttentionSplit = 256;  // positions per independent partial result
inline constexpr uint32_t kHeadDimMax = 256;
// Half the spread of a block below which all its values count as equal: 127 / spread stays finite.
inline constexpr float kSmallestSpread = 1e-30f;

// Inputs of a matrix product. Either the f32 rows (float weights) or their 8-bit form (quantized weights).
// Blocks have an offset besides their scale because channels of real models stand far off zero, to one side:
// without it such a channel takes the resolution of the 31 others (mean KL divergence 2.5 times as high).
struct Activations {
  uint32_t columns = 0;
  const float* values = nullptr;      // [tokens, columns]
  const int8_t* codes = nullptr;      // [tokens, columns]: value ~ scale * code + offset, |code| <= 127
  const float* scales = nullptr;      // [tokens, columns / 32]
  const float* offsets = nullptr;     // [tokens, columns / 32]
  const float* sums = nullptr;        // [tokens, columns / 32]: sum of the block's values in 8-bit form
  const int32_t* half_sums = nullptr; // [tokens, columns / 16]: sums of 16 codes
  const uint16_t* bfloats = nullptr;  // [tokens, bfloat_stride(columns)] bf16, for tables with to_bfloat
};

// Values in a row of inputs rounded to bf16: an even number, the last one zero if it is no column.
constexpr uint32_t bfloat_stride(uint32_t columns) { return columns + columns % 2; }

// Where a product's results go: out[token * stride + row] (+)= y + bias[row].
struct ProductOut {
  float* values = nullptr;      // [tokens, stride]
  size_t stride = 0;
  const float* bias = nullptr;  // [rows], or null
  bool accumulate = false;      // add to what is there (a residual)
};

// One running softmax of a row: its maximum, its sum, and from kStateOutput on its output [head_dim].
inline constexpr uint32_t kStateOutput = 16;
// One block of positions for a tile: some tokens in a row of one sequence, and the heads that share a KV head.
// Row r is head r % group of token r / group.
inline constexpr uint32_t kTokenTile = 8;
struct AttentionBlockArgs {
  const float* queries;            // [tokens][query_stride], each [group][head_dim] f32, already scaled
  size_t query_stride;             // floats from one token to the next
  float* states;                   // [tokens * group][state_stride]
  size_t state_stride;             // floats: at least kStateOutput + head_dim
  const uint16_t* keys[4];         // up to 4 pages, each [head_dim / 2][16][2] f16
  const uint16_t* values[4];       // each [16][head_dim] f16
  const uint16_t* next_keys[4];    // what to fetch meanwhile: the next block's keys, or null
  uint32_t token_count;            // 1 .. kTokenTile
  uint32_t group;                  // heads that share the KV head
  uint32_t head_dim;               // padded: a multiple of 16, at most kHeadDimMax
  uint32_t valid[kTokenTile];      // positions of the block that a token attends to, 1 .. 64, never falling
};

// Where quantized blocks go: the arrays of Activations, from the first block to write.
struct BlockOut {
  int8_t* codes;
  float* scales;
  float* offsets;
  float* sums;
  int32_t* half_sums;
};

struct Kernels {
  Isa isa;
  // Tiles [tile_first, tile_last) of y = W x for `tokens` rows of activations.
  void (*product)(const PackedMatrix& w, uint32_t tile_first, uint32_t tile_last, const Activations& x,
                  uint32_t tokens, const ProductOut& out);
  // Quantizes `blocks` blocks of 32 values: offset = (min + max) / 2, scale = (max - min) / 2 / 127,
  // code = round to nearest even ((v - offset) / scale).
  void (*quantize)(const float* values, uint32_t blocks, const BlockOut& out);
  // out = x / sqrt(mean(x^2) + epsilon) * weight, all [count].
  void (*rms_norm)(const float* x, const float* weight, uint32_t count, float epsilon, float* out);
  // gate = gate * sigmoid(gate) * up, all [count]. (SwiGLU, Shazeer 2020)
  void (*silu_multiply)(float* gate, const float* up, uint32_t count);
  // f32 to f16, saturating at +-65504, all [count].
  void (*to_half)(const float* values, uint32_t count, uint16_t* halves);
  // One block of up to 64 positions for a tile: scores, softmax with rescaling, weighted values. Pages hold
  // finite values throughout, also behind `valid`.
  void (*attention_block)(const AttentionBlockArgs& args);
  // Joins the partial result (m2, l2, o2) into (m1, l1, o1); `first` copies it.
  void (*attention_join)(bool first, uint32_t head_dim, float* m1, float* l1, float* o1, const float* m2,
                         const float* l2, const float* o2);
  // Rounds a row of `count` values to nearest even bf16, [bfloat_stride(count)]; denormals become zero. Null in
  // tables whose products take f32 inputs for BF16 weights.
  void (*to_bfloat)(const float* values, uint32_t count, uint16_t* bfloats);
};

// The table for an instruction set that this processor runs (parse_isa checked it).
const Kernels& kernels_for(Isa isa);

}  // namespace inferd::engine::cpu
