// Weights in use by the CPU backend: one sealed memfd with every matrix packed for the instruction set.
// Owner: the engine object. Built once; immutable and readable by any thread afterwards.
// Must not know architectures: a model names its tensors (WeightBuilder).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "engine/cpu/packed.h"
#include "engine/cpu/worker_pool.h"
#include "engine/models/llama.h"
#include "engine/ops/ops.h"
#include "formats/gguf.h"

namespace inferd::engine::cpu {

class Weights {
 public:
  Weights() = default;
  Weights(Weights&& other) noexcept;
  Weights& operator=(Weights&&) = delete;
  ~Weights();

  const PackedMatrix& matrix(MatrixId id) const { return matrices_[id.index]; }
  uint32_t matrix_count() const { return static_cast<uint32_t>(matrices_.size()); }
  // [count] f32, CPU; nullptr for VectorId() (none).
  const float* vector(VectorId id) const { return id.none() ? nullptr : vectors_[id.index]; }
  Bytes bytes() const { return Bytes(region_bytes_); }
  int fd() const { return fd_.get(); }

 private:
  friend class CpuWeightBuilder;

  UniqueFd fd_;
  uint8_t* region_ = nullptr;
  size_t region_bytes_ = 0;
  std::vector<PackedMatrix> matrices_;
  std::vector<const float*> vectors_;
};

// Collects the tensors that a model declares, then reads and packs them all.
class CpuWeightBuilder final : public WeightBuilder {
 public:
  CpuWeightBuilder(const formats::GgufFile& file, uint32_t lanes) : file_(file), lanes_(lanes) {}

  Result<MatrixId> matrix(const std::string& name, uint32_t rows, uint32_t columns) override;
  Result<VectorId> vector(const std::string& name, uint32_t count) override;

  // Reads every declared tensor (pool threads help) into a new memfd and seals it. Errors: kIo, kDataCorrupt.
  Result<Weights> build(WorkerPool& pool);

 private:
  struct Declared {
    const formats::TensorInfo* tensor;
    PackedMatrix shape;      // of matrices
    uint32_t count = 0;      // of vectors
    size_t offset = 0;       // in the region
  };

  Result<void> fill_matrix(const Declared& declared, uint32_t tile_first, uint32_t tile_last, uint8_t* region) const;
  Result<void> fill_vector(const Declared& declared, uint8_t* region) const;

  const formats::GgufFile& file_;
  uint32_t lanes_;
  std::vector<Declared> matrices_;
  std::vector<Declared> vectors_;
};

}  // namespace inferd::engine::cpu
