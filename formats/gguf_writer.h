// Writes GGUF files, version 3, little endian: metadata of every type, tensors, alignment.
// Owner: formats. One thread builds and writes. For tests, fuzzing corpora and generated models;
// tensor data is produced in pieces while writing, so a file may be larger than memory.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "formats/gguf.h"

namespace inferd::formats {

class GgufWriter {
 public:
  // Fills `bytes` with a tensor's data from `offset_bytes` on. Called for tensor 0, 1, … in the
  // order of add_tensor and within a tensor from front to back, whole blocks of its type at a time.
  using Source =
      std::function<Result<void>(size_t tensor, uint64_t offset_bytes, std::span<uint8_t> bytes)>;

  // alignment: of each tensor's data, in bytes, a power of two (INFERD_CHECK); other than 32 it
  // becomes the key general.alignment.
  explicit GgufWriter(uint32_t alignment = 32);

  // Metadata, in the file's order. A key may be given once (write() refuses otherwise).
  template <typename T>
  void add(std::string_view key, T value) {
    begin_key(key, type_of<T>());
    append_value(value);
  }
  void add_string(std::string_view key, std::string_view value);
  template <typename T>
  void add_array(std::string_view key, std::span<const T> values) {
    begin_array(key, type_of<T>(), values.size());
    for (const T value : values) append_value(value);
  }
  void add_string_array(std::string_view key, std::span<const std::string> values);

  // dims[0] is the row length; 1 to 4 dimensions. Data follows at write().
  void add_tensor(std::string_view name, TensorType type, std::span<const uint64_t> dims);
  size_t tensor_count() const noexcept { return tensors_.size(); }
  // What was added; offset and bytes are filled in by write() and bytes().
  const TensorInfo& tensor(size_t index) const { return tensors_[index]; }

  // Writes the file (through a temporary beside it, renamed when complete). Blocks on the disk.
  // Errors: kInvalidArgument for keys or tensors given twice, rows that are no whole blocks, types
  // that cannot be read; kIo; whatever `source` returns.
  Result<void> write(const std::string& path, const Source& source);
  // The same into memory.
  Result<std::vector<uint8_t>> bytes(const Source& source);

 private:
  using Sink = std::function<Result<void>(std::span<const uint8_t>)>;

  template <typename T>
  static constexpr ValueType type_of() {
    if constexpr (std::is_same_v<T, uint8_t>)
      return ValueType::kUint8;
    else if constexpr (std::is_same_v<T, int8_t>)
      return ValueType::kInt8;
    else if constexpr (std::is_same_v<T, uint16_t>)
      return ValueType::kUint16;
    else if constexpr (std::is_same_v<T, int16_t>)
      return ValueType::kInt16;
    else if constexpr (std::is_same_v<T, uint32_t>)
      return ValueType::kUint32;
    else if constexpr (std::is_same_v<T, int32_t>)
      return ValueType::kInt32;
    else if constexpr (std::is_same_v<T, float>)
      return ValueType::kFloat32;
    else if constexpr (std::is_same_v<T, bool>)
      return ValueType::kBool;
    else if constexpr (std::is_same_v<T, uint64_t>)
      return ValueType::kUint64;
    else if constexpr (std::is_same_v<T, int64_t>)
      return ValueType::kInt64;
    else {
      static_assert(std::is_same_v<T, double>, "use one of the twelve types of GGUF");
      return ValueType::kFloat64;
    }
  }
  template <typename T>
  void append_value(T value) {
    if constexpr (std::is_same_v<T, float>)
      append(std::bit_cast<uint32_t>(value), 4);
    else if constexpr (std::is_same_v<T, double>)
      append(std::bit_cast<uint64_t>(value), 8);
    else
      append(static_cast<uint64_t>(value), sizeof(T));
  }

  void append(uint64_t value, size_t bytes);
  void append_string(std::string_view text);
  void begin_key(std::string_view key, ValueType type);
  void begin_array(std::string_view key, ValueType type, uint64_t count);
  Result<void> place_tensors();
  std::vector<uint8_t> front() const;
  Result<void> write_all(const Source& source, const Sink& sink);

  const uint32_t alignment_;
  std::vector<uint8_t> metadata_;
  std::vector<std::string> keys_;
  std::vector<TensorInfo> tensors_;
};

}  // namespace inferd::formats
