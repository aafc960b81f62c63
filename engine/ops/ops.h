// The operators that a model is written in, and that a backend implements.
// Owner: a backend (engine/cpu; engine/cuda later) implements Ops; engine/models calls it. Engine thread only.
// Must not know architectures, sequences' owners, or policies. A backend may run operators late, as long as
// the results are those of running them in order.
//
// Activations live in numbered slots of the backend, f32 [tokens of the step, width of the slot], on its device.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scheduler/batch_plan.h"

namespace inferd::engine {

// Activation slots. Widths come from ModelShape.
enum class Slot : uint8_t {
  kResidual,   // [tokens, embedding]
  kQuery,      // [tokens, heads * head_dim]
  kKey,        // [tokens, kv_heads * head_dim]
  kValue,      // [tokens, kv_heads * head_dim]
  kAttention,  // [tokens, heads * head_dim]
  kGate,       // [tokens, feed_forward]
  kUp,         // [tokens, feed_forward]
};
inline constexpr uint32_t kSlotCount = 7;
inline constexpr uint32_t kGroupMax = 64;  // heads that share a key-value head

// Weights as a backend numbers them; made by its weight builder.
struct MatrixId {
  uint32_t index = UINT32_MAX;
};
struct VectorId {
  uint32_t index = UINT32_MAX;
  bool none() const { return index == UINT32_MAX; }
};

// What a backend needs to know to lay out activations, KV pages and rotations.
struct ModelShape {
  uint32_t vocabulary = 0;
  uint32_t embedding = 0;
  uint32_t layers = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;     // divides heads (GQA; MQA with 1; equal to heads: MHA)
  uint32_t head_dim = 0;     // even
  uint32_t feed_forward = 0;
  float query_scale = 0;     // multiplies queries after the rotation: 1 / sqrt(head_dim)
  // Rotary embedding over neighbouring pairs (2i, 2i + 1) of the first 2 * size() dimensions: the angle at
  // position p is p * rope_frequencies[i]; both components are multiplied by rope_magnitude.
  std::vector<double> rope_frequencies;
  double rope_magnitude = 1;
};

// One product of a group that shares its input: out = x W^T + bias.
struct Product {
  MatrixId matrix;
  Slot out;
  VectorId bias;
};

class Ops {
 public:
  virtual ~Ops() = default;

  // Residual = rows of `table` for the step's tokens.
  virtual void embed(MatrixId table) = 0;
  // RMS norm of the residual (times `weight`), then every product of the group on it. One pass over each
  // matrix, whatever the number of tokens.
  virtual void norm_products(VectorId weight, float epsilon, std::span<const Product> products) = 0;
  // Rotates queries and keys to their positions, and stores keys and values in the pages of `layer`.
  virtual void rope_store(uint32_t layer) = 0;
  // Attention slot = softmax(q k^T) v over each token's own sequence, up to and including its position.
  virtual void attention(uint32_t layer) = 0;
  // Residual += x W^T + bias, with x from the slot.
  virtual void product_add(Slot x, MatrixId matrix, VectorId bias) = 0;
  // Residual += (silu(gate) * up) W^T + bias. (SwiGLU)
  virtual void gated_product_add(MatrixId matrix, VectorId bias) = 0;
  // Logits of the tokens that want them: RMS norm of the residual, then the product with `matrix`.
  virtual void logits(VectorId weight, float epsilon, MatrixId matrix) = 0;
};

}  // namespace inferd::engine
