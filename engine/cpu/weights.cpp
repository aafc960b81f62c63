#include "engine/cpu/weights.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>

#include "base/check.h"
#include "engine/cpu/huge_pages.h"

namespace inferd::engine::cpu {

using formats::TensorInfo;
using formats::TensorType;

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kUnitBytes = 256 * 1024;  // of packed tiles, read and packed by one worker at a time

size_t align(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool supported(TensorType type) {
  switch (type) {
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16:
    case TensorType::kQ8_0:
    case TensorType::kQ4_0:
    case TensorType::kQ4_1:
    case TensorType::kQ5_0:
    case TensorType::kQ5_1:
    case TensorType::kQ4_K:
    case TensorType::kQ5_K:
    case TensorType::kQ6_K: return true;
    default: return false;
  }
}

// The tensor, if it has this shape and a type that the kernels read.
Result<const TensorInfo*> find(const formats::GgufFile& file, const std::string& name, uint64_t columns, uint64_t rows) {
  const TensorInfo* tensor = file.find_tensor(name);
  if (tensor == nullptr) {
    return Error(ErrorCode::kDataCorrupt, "tensor '" + name + "' is missing; the file is incomplete, fetch it again");
  }
  if (tensor->dims[0] != columns || tensor->dims[1] != rows || tensor->dims[2] != 1 || tensor->dims[3] != 1) {
    return Error(ErrorCode::kDataCorrupt,
                 "tensor '" + name + "' is " + std::to_string(tensor->dims[0]) + " x " +
                     std::to_string(tensor->dims[1]) + "; the metadata asks for " + std::to_string(columns) + " x " +
                     std::to_string(rows));
  }
  if (!supported(tensor->type)) {
    return Error(ErrorCode::kUnsupported,
                 "tensor '" + name + "' has type " + formats::tensor_type_name(tensor->type) +
                     ", which this build cannot run; use a file in F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, "
                     "Q4_K, Q5_K or Q6_K");
  }
  return tensor;
}

// The first error of several workers.
class FirstError {
 public:
  void add(Result<void> result) {
    if (result.ok()) return;
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(result).error();
  }
  Result<void> take() {
    if (error_) return std::move(*error_);
    return {};
  }

 private:
  std::mutex mutex_;
  std::optional<Error> error_;
};

}  // namespace

Weights::Weights(Weights&& other) noexcept
    : fd_(std::move(other.fd_)),
      region_(std::exchange(other.region_, nullptr)),
      region_bytes_(std::exchange(other.region_bytes_, 0)),
      matrices_(std::move(other.matrices_)),
      vectors_(std::move(other.vectors_)) {}

Weights::~Weights() {
  if (region_ != nullptr) ::munmap(region_, region_bytes_);
}

Result<MatrixId> CpuWeightBuilder::matrix(const std::string& name, uint32_t rows, uint32_t columns) {
  INFERD_ASSIGN(const TensorInfo* tensor, find(file_, name, columns, rows));
  for (uint32_t i = 0; i < matrices_.size(); ++i) {
    if (matrices_[i].tensor == tensor) return MatrixId{i};
  }
  const formats::TensorTypeTraits* traits = formats::tensor_type_traits(tensor->type);
  INFERD_CHECK(traits != nullptr && columns % traits->block_elements == 0);
  matrices_.push_back({tensor, packed_shape(tensor->type, rows, columns, lanes_), 0, 0});
  return MatrixId{static_cast<uint32_t>(matrices_.size() - 1)};
}

Result<VectorId> CpuWeightBuilder::vector(const std::string& name, uint32_t count) {
  INFERD_ASSIGN(const TensorInfo* tensor, find(file_, name, count, 1));
  vectors_.push_back({tensor, packed_shape(tensor->type, 1, count, lanes_), count, 0});
  return VectorId{static_cast<uint32_t>(vectors_.size() - 1)};
}

Result<void> CpuWeightBuilder::fill_matrix(const Declared& declared, uint32_t tile_first, uint32_t tile_last,
                                           uint8_t* region) const {
  const PackedMatrix& shape = declared.shape;
  const size_t row_bytes = declared.tensor->bytes / shape.rows;
  std::vector<uint8_t> rows(row_bytes * shape.lanes);
  for (uint32_t tile = tile_first; tile < tile_last; ++tile) {
    const uint32_t row = tile * shape.lanes;
    const uint32_t count = std::min(shape.lanes, shape.rows - row);
    const std::span<uint8_t> bytes(rows.data(), row_bytes * count);
    INFERD_TRY(file_.read_tensor(*declared.tensor, row * row_bytes, bytes));
    pack_tile(shape, bytes, count, region + declared.offset + tile * shape.tile_bytes);
  }
  return {};
}

Result<void> CpuWeightBuilder::fill_vector(const Declared& declared, uint8_t* region) const {
  std::vector<uint8_t> row(declared.tensor->bytes), tile(declared.shape.tile_bytes);
  INFERD_TRY(file_.read_tensor(*declared.tensor, 0, row));
  pack_tile(declared.shape, row, 1, tile.data());
  PackedMatrix matrix = declared.shape;
  matrix.data = tile.data();
  unpack_row(matrix, 0, reinterpret_cast<float*>(region + declared.offset));
  return {};
}

Result<Weights> CpuWeightBuilder::build(WorkerPool& pool) {
  size_t total = 0;
  for (Declared& matrix : matrices_) {
    matrix.offset = total;
    total += align(matrix.shape.bytes());
  }
  for (Declared& vector : vectors_) {
    vector.offset = total;
    total += align(vector.count * sizeof(float));
  }
  Weights weights;
  weights.fd_.reset(::memfd_create("inferd-weights", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!weights.fd_) return errno_error("cannot create shared memory for the weights", errno);
  if (::ftruncate(weights.fd_.get(), static_cast<off_t>(total)) != 0) {
    return errno_error("cannot size shared memory for the weights", errno);
  }
  void* writable = map_aligned(weights.fd_.get(), total, PROT_READ | PROT_WRITE);
  if (writable == MAP_FAILED) return errno_error("cannot map shared memory for the weights", errno);
  back_with_huge_pages(writable, total);
  auto* region = static_cast<uint8_t*>(writable);

  struct Unit {
    const Declared* matrix;
    uint32_t tile_first, tile_last;
  };
  std::vector<Unit> units;
  for (const Declared& matrix : matrices_) {
    const auto step = static_cast<uint32_t>(std::max<size_t>(1, kUnitBytes / matrix.shape.tile_bytes));
    for (uint32_t tile = 0; tile < matrix.shape.tiles; tile += step) {
      units.push_back({&matrix, tile, std::min(tile + step, matrix.shape.tiles)});
    }
  }
  FirstError failed;
  constexpr uint32_t kBatch = 1u << 18;  // units per loop
  for (size_t first = 0; first < units.size(); first += kBatch) {
    const auto count = static_cast<uint32_t>(std::min<size_t>(kBatch, units.size() - first));
    pool.run(count, [&](uint32_t i, uint32_t) {
      const Unit& unit = units[first + i];
      failed.add(fill_matrix(*unit.matrix, unit.tile_first, unit.tile_last, region));
    });
  }
  for (const Declared& vector : vectors_) failed.add(fill_vector(vector, region));
  ::munmap(writable, total);
  INFERD_TRY(failed.take());

  // No writable mapping is left, so the content can be sealed for good.
  if (::fcntl(weights.fd_.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return errno_error("cannot seal the weights", errno);
  }
  void* mapped = map_aligned(weights.fd_.get(), total, PROT_READ);
  if (mapped == MAP_FAILED) return errno_error("cannot map the weights", errno);
  weights.region_ = static_cast<uint8_t*>(mapped);
  weights.region_bytes_ = total;
  for (const Declared& matrix : matrices_) {
    weights.matrices_.push_back(matrix.shape);
    weights.matrices_.back().data = weights.region_ + matrix.offset;
  }
  for (const Declared& vector : vectors_) {
    weights.vectors_.push_back(reinterpret_cast<const float*>(weights.region_ + vector.offset));
  }
  return weights;
}

}  // namespace inferd::engine::cpu
