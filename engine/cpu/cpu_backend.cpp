#include "engine/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace inferd::engine::cpu {

using scheduler::BatchItem;
using scheduler::BatchPlan;

namespace {

// Weights that one unit of a product covers: large enough to hide handing it out, small enough that two
// threads end at nearly the same time and that they stay in the second-level cache.
constexpr size_t kUnitBytes = 48 * 1024;
constexpr uint32_t kQuantizeBlocks = 32;  // blocks of 32 values per unit
// Attention is cut so that no task is more than this part of what a thread has to do.
constexpr uint64_t kTasksPerThread = 4;

uint32_t round_up(uint32_t value, uint32_t multiple) { return (value + multiple - 1) / multiple * multiple; }

uint32_t split_count(uint32_t length) { return (length + kAttentionSplit - 1) / kAttentionSplit; }

}  // namespace

KvLayout kv_layout(const ModelShape& shape) {
  return KvLayout{shape.layers, shape.kv_heads, round_up(shape.head_dim, 16)};
}

CpuBackend::CpuBackend(const ModelShape& shape, const Kernels& kernels, WorkerPool& pool, const Weights& weights,
                       KvArena& arena, uint32_t step_tokens_max, uint32_t step_logits_max)
    : shape_(shape),
      kernels_(kernels),
      pool_(pool),
      weights_(weights),
      arena_(arena),
      layout_(kv_layout(shape)),
      step_tokens_max_(step_tokens_max),
      step_logits_max_(step_logits_max),
      group_(shape.heads / shape.kv_heads),
      state_floats_(kStateOutput + layout_.head_dim),
      matrix_stride_(round_up(weights.matrix_count(), 8) + 8) {
  INFERD_CHECK(group_ >= 1 && group_ <= kGroupMax && layout_.head_dim <= kHeadDimMax);
  const size_t tokens = step_tokens_max;
  for (uint32_t i = 0; i < kSlotCount; ++i) slots_[i].resize(tokens * width(static_cast<Slot>(i)));
  const uint32_t widest = round_up(
      std::max({shape.embedding, shape.feed_forward, shape.heads * shape.head_dim}), kBlock);
  normed_.resize(tokens * shape.embedding);
  queries_.resize(tokens * shape.heads * layout_.head_dim);
  angles_.resize(tokens * shape.rope_frequencies.size() * 2);
  const size_t rows = std::max(step_tokens_max, step_logits_max);
  codes_.resize(rows * widest);
  scales_.resize(rows * widest / kBlock);
  offsets_.resize(rows * widest / kBlock);
  sums_.resize(rows * widest / kBlock);
  half_sums_.resize(rows * widest / 16);
  if (kernels.to_bfloat != nullptr) bfloats_.resize(rows * widest);
  gathered_.resize(size_t{step_logits_max} * shape.embedding);
  logits_.resize(size_t{step_logits_max} * shape.vocabulary);
  places_.resize(tokens);
  tasks_.reserve(tokens * shape.kv_heads + kPartialRows);
  apart_.reserve(kPartialRows);
  partials_.resize(kPartialRows * state_floats_);
  thread_state_.resize(size_t{pool.threads()} * 2 * kTokenTile * group_ * state_floats_);
  tiles_read_.resize(pool.threads() * matrix_stride_);
}

uint32_t CpuBackend::width(Slot s) const {
  switch (s) {
    case Slot::kResidual: return shape_.embedding;
    case Slot::kQuery:
    case Slot::kAttention: return shape_.heads * shape_.head_dim;
    case Slot::kKey:
    case Slot::kValue: return shape_.kv_heads * shape_.head_dim;
    case Slot::kGate:
    case Slot::kUp: return shape_.feed_forward;
  }
  return 0;
}

void CpuBackend::begin(const BatchPlan& plan) {
  INFERD_CHECK(plan.token_count > 0 && plan.token_count <= step_tokens_max_);
  INFERD_CHECK(plan.logits_count <= step_logits_max_);
  plan_ = &plan;
  tokens_ = plan.token_count;
  for (const scheduler::PageCopy& copy : plan.copies) arena_.copy(copy.from, copy.to);
  uint32_t row = 0;
  for (const BatchItem& item : plan.items) {
    INFERD_CHECK(!item.tokens.empty() && item.logits_count <= item.tokens.size());
    INFERD_CHECK(item.pages.size() * kPageTokens >= item.position_first + item.tokens.size());
    for (uint32_t i = 0; i < item.tokens.size(); ++i) places_[row++] = {&item, item.position_first + i};
  }
  INFERD_CHECK(row == tokens_);
  const size_t pairs = shape_.rope_frequencies.size();
  pool_.run((tokens_ + 15) / 16, [&](uint32_t unit, uint32_t) {
    for (uint32_t t = unit * 16; t < std::min(tokens_, unit * 16 + 16); ++t) {
      for (size_t i = 0; i < pairs; ++i) {
        const double angle = places_[t].position * shape_.rope_frequencies[i];
        angles_[(t * pairs + i) * 2] = static_cast<float>(std::cos(angle) * shape_.rope_magnitude);
        angles_[(t * pairs + i) * 2 + 1] = static_cast<float>(std::sin(angle) * shape_.rope_magnitude);
      }
    }
  });
  plan_attention();
  ++counters_.steps;
  counters_.tokens += tokens_;
}

EngineCounters CpuBackend::counters() const {
  EngineCounters counters = counters_;
  for (uint32_t m = 0; m < weights_.matrix_count(); ++m) {
    const PackedMatrix& matrix = weights_.matrix(MatrixId{m});
    uint64_t tiles = 0;
    for (uint32_t thread = 0; thread < pool_.threads(); ++thread) tiles += tiles_read_[thread * matrix_stride_ + m];
    counters.weight_reads += tiles / matrix.tiles;
    counters.weight_bytes_read += tiles * matrix.tile_bytes;
  }
  return counters;
}

std::span<const float> CpuBackend::logits_rows() const {
  return {logits_.data(), size_t{plan_->logits_count} * shape_.vocabulary};
}

void CpuBackend::embed(MatrixId table) {
  const PackedMatrix& matrix = weights_.matrix(table);
  pool_.run((tokens_ + 3) / 4, [&](uint32_t unit, uint32_t) {
    for (uint32_t t = unit * 4; t < std::min(tokens_, unit * 4 + 4); ++t) {
      const BatchItem& item = *places_[t].item;
      const TokenId token = item.tokens[places_[t].position - item.position_first];
      INFERD_CHECK(token >= 0 && static_cast<uint32_t>(token) < matrix.rows);
      unpack_row(matrix, static_cast<uint32_t>(token), slot(Slot::kResidual) + size_t{t} * shape_.embedding);
    }
  });
}

void CpuBackend::quantize_blocks(const float* values, uint32_t columns, uint32_t token, uint32_t block_first,
                                 uint32_t block_count) {
  const size_t block = size_t{token} * (columns / kBlock) + block_first;
  kernels_.quantize(values + block * kBlock, block_count,
                    {codes_.data() + block * kBlock, scales_.data() + block, offsets_.data() + block,
                     sums_.data() + block, half_sums_.data() + 2 * block});
}

Activations CpuBackend::activations(const float* values, uint32_t columns, uint32_t tokens, bool quantized,
                                    bool done) {
  if (quantized && !done) {
    const uint32_t blocks = columns / kBlock * tokens;  // rows are contiguous, so are their blocks
    pool_.run((blocks + kQuantizeBlocks - 1) / kQuantizeBlocks, [&](uint32_t unit, uint32_t) {
      const uint32_t first = unit * kQuantizeBlocks;
      quantize_blocks(values, columns, 0, first, std::min(kQuantizeBlocks, blocks - first));
    });
  }
  return Activations{columns, values, codes_.data(), scales_.data(), offsets_.data(), sums_.data(), half_sums_.data()};
}

const uint16_t* CpuBackend::bfloats(std::span<const ProductOutput> products, const Activations& x, uint32_t tokens) {
  const bool wanted = std::any_of(products.begin(), products.end(), [&](const ProductOutput& product) {
    return weights_.matrix(product.matrix).type == formats::TensorType::kBF16;
  });
  if (kernels_.to_bfloat == nullptr || !wanted) return nullptr;
  pool_.run(tokens, [&](uint32_t t, uint32_t) {
    kernels_.to_bfloat(x.values + size_t{t} * x.columns, x.columns,
                       bfloats_.data() + size_t{t} * bfloat_stride(x.columns));
  });
  return bfloats_.data();
}

void CpuBackend::run_products(std::span<const ProductOutput> products, Activations x, uint32_t tokens) {
  x.bfloats = bfloats(products, x, tokens);
  struct Units {
    uint32_t first, tiles;
  };
  std::array<Units, kProductsMax> units{};
  INFERD_CHECK(products.size() <= kProductsMax);
  uint32_t total = 0;
  for (size_t p = 0; p < products.size(); ++p) {
    const PackedMatrix& matrix = weights_.matrix(products[p].matrix);
    INFERD_CHECK(matrix.columns == x.columns);
    const auto tiles = static_cast<uint32_t>(kUnitBytes / matrix.tile_bytes) / 4 * 4;
    units[p] = {total, std::max(tiles, 4u)};
    total += (matrix.tiles + units[p].tiles - 1) / units[p].tiles;
  }
  pool_.run(total, [&](uint32_t unit, uint32_t thread) {
    size_t p = products.size() - 1;
    while (units[p].first > unit) --p;
    const PackedMatrix& matrix = weights_.matrix(products[p].matrix);
    const uint32_t first = (unit - units[p].first) * units[p].tiles;
    const uint32_t last = std::min(first + units[p].tiles, matrix.tiles);
    tiles_read_[thread * matrix_stride_ + products[p].matrix.index] += last - first;
    kernels_.product(matrix, first, last, x, tokens, products[p].out);
  });
}

void CpuBackend::norm_rows(const float* rows, uint32_t tokens, VectorId weight, float epsilon, bool quantized) {
  const uint32_t columns = shape_.embedding;
  pool_.run(tokens, [&](uint32_t t, uint32_t) {
    float* out = normed_.data() + size_t{t} * columns;
    kernels_.rms_norm(rows + size_t{t} * columns, weights_.vector(weight), columns, epsilon, out);
    if (quantized) quantize_blocks(normed_.data(), columns, t, 0, columns / kBlock);
  });
}

void CpuBackend::norm_products(VectorId weight, float epsilon, std::span<const Product> products) {
  bool quantized = false;
  std::array<ProductOutput, kProductsMax> outputs;
  INFERD_CHECK(products.size() <= kProductsMax);
  for (size_t p = 0; p < products.size(); ++p) {
    const Product& product = products[p];
    quantized |= weights_.matrix(product.matrix).quantized();
    outputs[p] = {product.matrix, {slot(product.out), width(product.out), weights_.vector(product.bias), false}};
  }
  norm_rows(slot(Slot::kResidual), tokens_, weight, epsilon, quantized);
  run_products({outputs.data(), products.size()},
               activations(normed_.data(), shape_.embedding, tokens_, quantized, true), tokens_);
}

void CpuBackend::product_add(Slot x, MatrixId matrix, VectorId bias) {
  const bool quantized = weights_.matrix(matrix).quantized();
  const ProductOutput out{matrix, {slot(Slot::kResidual), shape_.embedding, weights_.vector(bias), true}};
  run_products({&out, 1}, activations(slot(x), width(x), tokens_, quantized, false), tokens_);
}

void CpuBackend::gated_product_add(MatrixId matrix, VectorId bias) {
  const bool quantized = weights_.matrix(matrix).quantized();
  const uint32_t columns = shape_.feed_forward;
  float* gate = slot(Slot::kGate);
  const float* up = slot(Slot::kUp);
  // Rows are contiguous: units of whole blocks, each quantized as soon as it is there. Values beyond the
  // last whole block (a width that is no multiple of 32, float weights only) ride with the last unit.
  const size_t count = size_t{tokens_} * columns;
  const size_t step = size_t{kQuantizeBlocks} * kBlock;
  pool_.run(static_cast<uint32_t>((count + step - 1) / step), [&](uint32_t unit, uint32_t) {
    const size_t first = unit * step, size = std::min(step, count - first);
    kernels_.silu_multiply(gate + first, up + first, static_cast<uint32_t>(size));
    if (quantized) {
      quantize_blocks(gate, columns, 0, static_cast<uint32_t>(first / kBlock), static_cast<uint32_t>(size / kBlock));
    }
  });
  const ProductOutput out{matrix, {slot(Slot::kResidual), shape_.embedding, weights_.vector(bias), true}};
  run_products({&out, 1}, activations(gate, columns, tokens_, quantized, true), tokens_);
}

void CpuBackend::logits(VectorId weight, float epsilon, MatrixId matrix) {
  const uint32_t columns = shape_.embedding;
  uint32_t row = 0, wanted = 0;
  for (const BatchItem& item : plan_->items) {
    row += static_cast<uint32_t>(item.tokens.size());
    for (uint32_t i = item.logits_count; i > 0; --i) {
      std::memcpy(gathered_.data() + size_t{wanted++} * columns, slot(Slot::kResidual) + size_t{row - i} * columns,
                  columns * sizeof(float));
    }
  }
  INFERD_CHECK(wanted == plan_->logits_count);
  if (wanted == 0) return;
  const bool quantized = weights_.matrix(matrix).quantized();
  // normed_ holds a step's tokens, which are at least as many as the logits.
  norm_rows(gathered_.data(), wanted, weight, epsilon, quantized);
  const ProductOutput out{matrix, {logits_.data(), shape_.vocabulary, nullptr, false}};
  run_products({&out, 1}, activations(normed_.data(), columns, wanted, quantized, true), wanted);
}

void CpuBackend::rope_store(uint32_t layer) {
  const uint32_t head_dim = shape_.head_dim, padded = layout_.head_dim;
  const auto pairs = static_cast<uint32_t>(shape_.rope_frequencies.size());
  const auto rotate = [&](const float* in, const float* angles, float scale, float* out) {
    for (uint32_t i = 0; i < pairs; ++i) {
      const float a = in[2 * i], b = in[2 * i + 1], cosine = angles[2 * i], sine = angles[2 * i + 1];
      out[2 * i] = (a * cosine - b * sine) * scale;
      out[2 * i + 1] = (a * sine + b * cosine) * scale;
    }
    for (uint32_t d = 2 * pairs; d < head_dim; ++d) out[d] = in[d] * scale;
    for (uint32_t d = head_dim; d < padded; ++d) out[d] = 0;
  };
  pool_.run((tokens_ + 3) / 4, [&](uint32_t unit, uint32_t) {
    float rotated[kHeadDimMax] = {};
    uint16_t halves[kHeadDimMax] = {};
    for (uint32_t t = unit * 4; t < std::min(tokens_, unit * 4 + 4); ++t) {
      const float* angles = angles_.data() + size_t{t} * pairs * 2;
      for (uint32_t h = 0; h < shape_.heads; ++h) {
        rotate(slot(Slot::kQuery) + (size_t{t} * shape_.heads + h) * head_dim, angles, shape_.query_scale,
               queries_.data() + (size_t{t} * shape_.heads + h) * padded);
      }
      const uint32_t position = places_[t].position;
      const PageId page = places_[t].item->pages[position / kPageTokens];
      const uint32_t place = position % kPageTokens;
      for (uint32_t h = 0; h < shape_.kv_heads; ++h) {
        const size_t at = (size_t{t} * shape_.kv_heads + h) * head_dim;
        rotate(slot(Slot::kKey) + at, angles, 1.0f, rotated);
        kernels_.to_half(rotated, padded, halves);
        uint16_t* keys = arena_.keys(page, layer, h) + size_t{place} * 2;
        for (uint32_t d = 0; d < padded; d += 2) std::memcpy(keys + size_t{d} * kPageTokens, halves + d, 4);
        // The padding of a page is zero from the start and stays so.
        kernels_.to_half(slot(Slot::kValue) + at, head_dim, arena_.values(page, layer, h) + size_t{place} * padded);
      }
    }
  });
}

// Tiles of tokens, cut by splits where a tile is too large a part of the whole: those run apart and are
// joined afterwards. The results are the same either way, so this may depend on the batch.
void CpuBackend::plan_attention() {
  tasks_.clear();
  apart_.clear();
  uint64_t work = 0;
  for (const BatchItem& item : plan_->items) {
    work += item.tokens.size() * (item.position_first + item.tokens.size() / 2 + 1);
  }
  const uint32_t threads = pool_.threads();
  const uint64_t work_max =
      threads == 1 ? UINT64_MAX : work * shape_.kv_heads / (threads * kTasksPerThread) + 1;
  uint32_t row = 0, partial_rows = 0;
  for (const BatchItem& item : plan_->items) {
    const auto count = static_cast<uint32_t>(item.tokens.size());
    const uint32_t tiles = (count + kTokenTile - 1) / kTokenTile;
    for (uint32_t t = 0; t < tiles; ++t) {
      const uint32_t first = count * t / tiles, tile = count * (t + 1) / tiles - first;
      const uint32_t length = item.position_first + first + tile;
      for (uint32_t h = 0; h < shape_.kv_heads; ++h) {
        plan_tile({&item, row + first, tile, h, 0, split_count(length), kNoPartial, uint64_t{tile} * length},
                  work_max, partial_rows);
      }
    }
    row += count;
  }
  std::sort(tasks_.begin(), tasks_.end(),
            [](const AttentionTask& a, const AttentionTask& b) { return a.work > b.work; });
}

void CpuBackend::plan_tile(const AttentionTask& tile, uint64_t work_max, uint32_t& partial_rows) {
  const uint32_t split_rows = tile.token_count * group_;
  if (tile.work <= work_max || tile.split_last == 1 ||
      partial_rows + tile.split_last * split_rows > kPartialRows) {
    tasks_.push_back(tile);
    return;
  }
  AttentionTask part = tile;
  part.partial = partial_rows;
  partial_rows += tile.split_last * split_rows;
  apart_.push_back(part);
  const uint64_t split_work = uint64_t{tile.token_count} * kAttentionSplit;
  const auto splits = static_cast<uint32_t>(std::max<uint64_t>(work_max / split_work, 1));
  for (uint32_t split = 0; split < tile.split_last; split += splits) {
    part.split_first = split;
    part.split_last = std::min(split + splits, tile.split_last);
    part.work = split_work * (part.split_last - split);
    tasks_.push_back(part);
  }
}

uint32_t CpuBackend::attend_split(const AttentionTask& task, uint32_t layer, uint32_t split, float* states) {
  const auto length = [&](uint32_t token) { return places_[task.token_first + token].position + 1; };
  const uint32_t begin = split * kAttentionSplit;
  uint32_t reaching = 0;
  while (length(reaching) <= begin) ++reaching;
  for (size_t row = size_t{reaching} * group_; row < size_t{task.token_count} * group_; ++row) {
    float* state = states + row * state_floats_;
    state[0] = -INFINITY;
    std::memset(state + 1, 0, (state_floats_ - 1) * sizeof(float));
  }
  const uint32_t end = std::min(length(task.token_count - 1), begin + kAttentionSplit);
  const uint32_t task_end = std::min(length(task.token_count - 1), task.split_last * kAttentionSplit);
  AttentionBlockArgs args;
  args.head_dim = layout_.head_dim;
  args.group = group_;
  args.query_stride = size_t{shape_.heads} * layout_.head_dim;
  args.state_stride = state_floats_;
  uint32_t first = reaching;
  for (uint32_t block = begin; block < end; block += kAttentionBlock) {
    while (length(first) <= block) ++first;
    for (uint32_t p = 0; p < kAttentionBlock / kPageTokens; ++p) {
      const uint32_t position = block + p * kPageTokens, next = position + kAttentionBlock;
      const auto page_of = [&](uint32_t at) { return task.item->pages[at / kPageTokens]; };
      args.next_keys[p] = next < task_end ? arena_.keys(page_of(next), layer, task.kv_head) : nullptr;
      if (position >= end) continue;
      args.keys[p] = arena_.keys(page_of(position), layer, task.kv_head);
      args.values[p] = arena_.values(page_of(position), layer, task.kv_head);
    }
    args.token_count = task.token_count - first;
    for (uint32_t i = 0; i < args.token_count; ++i) {
      args.valid[i] = std::min(length(first + i) - block, kAttentionBlock);
    }
    const size_t head = size_t{task.token_first + first} * shape_.heads + size_t{task.kv_head} * group_;
    args.queries = queries_.data() + head * layout_.head_dim;
    args.states = states + size_t{first} * group_ * state_floats_;
    kernels_.attention_block(args);
  }
  return reaching;
}

void CpuBackend::join_state(bool first, float* into, const float* next) const {
  kernels_.attention_join(first, layout_.head_dim, into, into + 1, into + kStateOutput, next, next + 1,
                          next + kStateOutput);
}

void CpuBackend::write_attention(uint32_t token, uint32_t head, const float* state) {
  float* out = slot(Slot::kAttention) + (size_t{token} * shape_.heads + head) * shape_.head_dim;
  const float inverse = 1.0f / state[1];
  for (uint32_t d = 0; d < shape_.head_dim; ++d) out[d] = state[kStateOutput + d] * inverse;
}

void CpuBackend::attend(const AttentionTask& task, uint32_t layer, uint32_t thread) {
  const uint32_t rows = task.token_count * group_;
  if (task.partial != kNoPartial) {
    for (uint32_t split = task.split_first; split < task.split_last; ++split) {
      attend_split(task, layer, split, partials_.data() + (task.partial + size_t{split} * rows) * state_floats_);
    }
    return;
  }
  // Splits outside, tokens inside: what is read of a page serves the whole tile.
  const size_t half = size_t{kTokenTile} * group_ * state_floats_;
  float* joined = thread_state_.data() + thread * 2 * half;
  float* fresh = joined + half;
  for (uint32_t split = 0; split < task.split_last; ++split) {
    const uint32_t reaching = attend_split(task, layer, split, fresh);
    for (size_t row = size_t{reaching} * group_; row < rows; ++row) {
      join_state(split == 0, joined + row * state_floats_, fresh + row * state_floats_);
    }
  }
  for (uint32_t row = 0; row < rows; ++row) {
    write_attention(task.token_first + row / group_, task.kv_head * group_ + row % group_,
                    joined + row * state_floats_);
  }
}

void CpuBackend::attention(uint32_t layer) {
  pool_.run(static_cast<uint32_t>(tasks_.size()),
            [&](uint32_t unit, uint32_t thread) { attend(tasks_[unit], layer, thread); });
  pool_.run(static_cast<uint32_t>(apart_.size()), [&](uint32_t unit, uint32_t) { join_apart(apart_[unit]); });
}

// Joins what ran apart, split after split into the first one.
void CpuBackend::join_apart(const AttentionTask& tile) {
  const uint32_t rows = tile.token_count * group_;
  for (uint32_t row = 0; row < rows; ++row) {
    const uint32_t token = tile.token_first + row / group_;
    const uint32_t splits = split_count(places_[token].position + 1);
    const auto state = [&](size_t split) {
      return partials_.data() + (tile.partial + split * rows + row) * state_floats_;
    };
    for (uint32_t split = 1; split < splits; ++split) join_state(false, state(0), state(split));
    write_attention(token, tile.kv_head * group_ + row % group_, state(0));
  }
}

}  // namespace inferd::engine::cpu
