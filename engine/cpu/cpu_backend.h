// The operators on the CPU: activations in plain memory, weights packed, KV pages in the arena.
// Owner: the engine object. Engine thread only; kernels run on the worker pool inside each operator.
// Must not know architectures or who owns a sequence. Allocates at construction, never in a step.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/cpu/kernels.h"
#include "engine/cpu/kv_arena.h"
#include "engine/cpu/weights.h"
#include "engine/cpu/worker_pool.h"
#include "engine/engine.h"
#include "engine/ops/ops.h"

namespace inferd::engine::cpu {

KvLayout kv_layout(const ModelShape& shape);

class CpuBackend final : public Ops {
 public:
  CpuBackend(const ModelShape& shape, const Kernels& kernels, WorkerPool& pool, const Weights& weights,
             KvArena& arena, uint32_t step_tokens_max, uint32_t step_logits_max);

  // Takes the plan of the next step; it must outlive the operators that follow.
  void begin(const scheduler::BatchPlan& plan);
  // [logits of the step, vocabulary] f32, after logits().
  std::span<const float> logits_rows() const;
  EngineCounters counters() const;

  void embed(MatrixId table) override;
  void norm_products(VectorId weight, float epsilon, std::span<const Product> products) override;
  void rope_store(uint32_t layer) override;
  void attention(uint32_t layer) override;
  void product_add(Slot x, MatrixId matrix, VectorId bias) override;
  void gated_product_add(MatrixId matrix, VectorId bias) override;
  void logits(VectorId weight, float epsilon, MatrixId matrix) override;

 private:
  static constexpr uint32_t kProductsMax = 4;   // matrices of one group
  static constexpr uint32_t kPartialRows = 4096;  // query rows x splits kept apart in one step

  // Where a token of the step belongs.
  struct TokenPlace {
    const scheduler::BatchItem* item;
    uint32_t position;
  };
  // Attention of up to kTokenTile tokens of one sequence, one KV head, over splits [split_first, split_last).
  struct AttentionTask {
    const scheduler::BatchItem* item;
    uint32_t token_first;  // row in the step
    uint32_t token_count;
    uint32_t kv_head;
    uint32_t split_first, split_last;
    // Row of the tile's first split among those kept apart, or kNoPartial if the task sees every split.
    uint32_t partial;
    uint64_t work;  // tokens x positions
  };
  static constexpr uint32_t kNoPartial = UINT32_MAX;
  struct ProductOutput {
    MatrixId matrix;
    ProductOut out;
  };

  float* slot(Slot s) { return slots_[static_cast<uint32_t>(s)].data(); }
  uint32_t width(Slot s) const;
  // Quantizes `tokens` rows of `columns` values for the following products, if any matrix needs codes.
  Activations activations(const float* values, uint32_t columns, uint32_t tokens, bool quantized, bool done);
  void quantize_blocks(const float* values, uint32_t columns, uint32_t token, uint32_t block_first, uint32_t block_count);
  // Every tile of every product, handed out in units of about kUnitBytes of weights.
  void run_products(std::span<const ProductOutput> products, Activations x, uint32_t tokens);
  // The inputs rounded to bf16 if a matrix and the kernels want them so, else null.
  const uint16_t* bfloats(std::span<const ProductOutput> products, const Activations& x, uint32_t tokens);
  void norm_rows(const float* rows, uint32_t tokens, VectorId weight, float epsilon, bool quantized);
  void plan_attention();
  void plan_tile(const AttentionTask& tile, uint64_t work_max, uint32_t& partial_rows);
  void attend(const AttentionTask& task, uint32_t layer, uint32_t thread);
  // One split of a task, into [token_count * group] states from `states` on. Returns the first token that
  // reaches the split; the states of those before it are left alone.
  uint32_t attend_split(const AttentionTask& task, uint32_t layer, uint32_t split, float* states);
  void join_state(bool first, float* into, const float* next) const;
  void join_apart(const AttentionTask& tile);
  void write_attention(uint32_t token, uint32_t head, const float* state);

  ModelShape shape_;
  const Kernels& kernels_;
  WorkerPool& pool_;
  const Weights& weights_;
  KvArena& arena_;
  KvLayout layout_;
  uint32_t step_tokens_max_, step_logits_max_;
  uint32_t group_;            // heads per KV head
  size_t state_floats_;       // of one running softmax (kernels.h)
  const scheduler::BatchPlan* plan_ = nullptr;
  uint32_t tokens_ = 0;

  std::array<std::vector<float>, kSlotCount> slots_;
  std::vector<float> normed_;    // [tokens, embedding]
  std::vector<float> queries_;   // [tokens, heads, padded head_dim], rotated and scaled
  std::vector<float> angles_;    // [tokens, pairs, 2]: cosine, sine
  std::vector<int8_t> codes_;    // [tokens, widest]
  std::vector<float> scales_, offsets_, sums_;
  std::vector<int32_t> half_sums_;
  std::vector<uint16_t> bfloats_;  // [tokens, widest], only for kernels that round inputs to bf16
  std::vector<float> gathered_;  // [logits, embedding]
  std::vector<float> logits_;    // [logits, vocabulary]
  std::vector<TokenPlace> places_;
  std::vector<AttentionTask> tasks_;        // the largest first
  std::vector<AttentionTask> apart_;        // tiles whose splits run as tasks of their own
  std::vector<float> partials_;      // [kPartialRows] states
  std::vector<float> thread_state_;  // [threads][2][kTokenTile][group] states
  // Tiles of each matrix that each thread multiplied with, all steps together: counted where a thread takes
  // its tiles, so that a product which went over a matrix twice would count twice. [threads, matrix_stride_]
  std::vector<uint64_t> tiles_read_;
  size_t matrix_stride_;  // matrices, padded so that no two threads share a cache line
  EngineCounters counters_;  // steps and tokens
};

}  // namespace inferd::engine::cpu
