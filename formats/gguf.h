// GGUF model files: bytes to checked tables.
// Owner: formats. A GgufFile is immutable after open and may be read by any thread. It knows
// nothing of architectures or tokenizers, and it never trusts a count, length, offset or type that
// the file states. Source: the GGUF specification, versions 2 and 3 (little endian).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace inferd::formats {

// Tensor types by their number in the file. Only those listed in tensor_type_traits() can be read.
enum class TensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kBF16 = 30,
};

struct TensorTypeTraits {
  std::string_view name;        // "Q4_K"
  uint32_t block_elements = 0;  // elements in a block
  uint32_t block_bytes = 0;     // bytes of a block
};
// nullptr for a type that this build does not read.
const TensorTypeTraits* tensor_type_traits(TensorType type) noexcept;
// "Q4_K", or "type 99" for one that is not known.
std::string tensor_type_name(TensorType type);

enum class ValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

struct TensorInfo {
  std::string name;
  TensorType type{};
  // dims[0] is the contiguous one (the row length of a matrix); absent dimensions are 1.
  std::array<uint64_t, 4> dims{1, 1, 1, 1};
  uint32_t dim_count = 0;
  uint64_t offset = 0;  // from the start of the file
  uint64_t bytes = 0;  // offset + bytes <= file size, checked at open; 0 if the type cannot be read
};

class GgufFile {
 public:
  // Reads and checks the header, metadata and tensor table; tensor data stays in the file.
  // Everything that is allocated is bounded by the file's size (gguf_table.h has the sum). Errors:
  // kNotFound, kPermissionDenied, kIo, kDataCorrupt, kUnsupported (big endian, version 1, arrays of
  // arrays, more than 512 MiB of metadata); each names the key or tensor and says what was
  // expected. A tensor of a type that this build does not read is listed all the same, with bytes
  // == 0, so that such a file's metadata and vocabulary stay readable; reading its data is what
  // fails.
  static Result<GgufFile> open(const std::string& path);
  // The same over bytes in memory, whole file; they are copied as far as they are kept. For tests
  // and fuzzing.
  static Result<GgufFile> parse(std::span<const uint8_t> bytes);

  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;
  ~GgufFile();

  uint64_t file_bytes() const noexcept;
  const std::string& path() const noexcept;

  // Metadata. The getters return kNotFound if the key is absent and kDataCorrupt if its type does
  // not fit; integers of any width convert if the value fits, floats of either width convert.
  bool has(std::string_view key) const noexcept;
  Result<uint64_t> get_uint(std::string_view key) const;
  Result<int64_t> get_int(std::string_view key) const;
  Result<double> get_float(std::string_view key) const;
  Result<bool> get_bool(std::string_view key) const;
  Result<std::string_view> get_string(
      std::string_view key) const;  // lives as long as the file object
  // An array of N elements takes 16 N, 8 N and 4 N bytes in the form returned.
  Result<std::vector<std::string_view>> get_string_array(std::string_view key) const;
  Result<std::vector<int64_t>> get_int_array(std::string_view key) const;
  Result<std::vector<float>> get_float_array(std::string_view key) const;
  // Every key, in the file's order, with its type (of the elements, for an array) and its count (1
  // for a scalar).
  struct Key {
    std::string_view name;
    ValueType type;
    bool is_array;
    uint64_t count;
  };
  std::span<const Key> keys() const noexcept;

  std::span<const TensorInfo> tensors() const noexcept;
  // nullptr if there is none of that name.
  const TensorInfo* find_tensor(std::string_view name) const noexcept;

  // Copies `bytes.size()` bytes of a tensor's data, from `offset_bytes` within the tensor. Blocks
  // on the disk. Errors: kInvalidArgument beyond the tensor, kUnsupported for a type that this
  // build does not read, kIo, kDataCorrupt if the file shrank meanwhile.
  Result<void> read_tensor(const TensorInfo& tensor, uint64_t offset_bytes,
                           std::span<uint8_t> bytes) const;

 private:
  struct Impl;
  explicit GgufFile(Impl* impl) noexcept;
  Impl* impl_ = nullptr;
};

}  // namespace inferd::formats
