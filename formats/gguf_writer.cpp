#include "formats/gguf_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>

#include "base/check.h"
#include "base/unique_fd.h"
#include "formats/gguf_table.h"

namespace inferd::formats {

namespace {

constexpr uint64_t kPieceBytes = uint64_t{1} << 20;  // of tensor data, asked for at a time

void append_to(std::vector<uint8_t>& out, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) out.push_back(static_cast<uint8_t>(value >> (8 * i)));
}

void append_to(std::vector<uint8_t>& out, std::string_view text) {
  append_to(out, text.size(), 8);
  out.insert(out.end(), text.begin(), text.end());
}

uint64_t aligned(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

Result<void> write_fully(int fd, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(fd, bytes.data(), bytes.size());
    if (done < 0) {
      if (errno == EINTR) continue;
      return errno_error("cannot write the model file", errno);
    }
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
  return {};
}

Error refuse(std::string message) { return Error(ErrorCode::kInvalidArgument, std::move(message)); }

}  // namespace

GgufWriter::GgufWriter(uint32_t alignment) : alignment_(alignment) {
  INFERD_CHECK(std::has_single_bit(alignment));
  if (alignment != 32) add<uint32_t>("general.alignment", alignment);
}

void GgufWriter::append(uint64_t value, size_t bytes) { append_to(metadata_, value, bytes); }

void GgufWriter::append_string(std::string_view text) { append_to(metadata_, text); }

void GgufWriter::begin_key(std::string_view key, ValueType type) {
  keys_.emplace_back(key);
  append_string(key);
  append(static_cast<uint32_t>(type), 4);
}

void GgufWriter::begin_array(std::string_view key, ValueType type, uint64_t count) {
  begin_key(key, ValueType::kArray);
  append(static_cast<uint32_t>(type), 4);
  append(count, 8);
}

void GgufWriter::add_string(std::string_view key, std::string_view value) {
  begin_key(key, ValueType::kString);
  append_string(value);
}

void GgufWriter::add_string_array(std::string_view key, std::span<const std::string> values) {
  begin_array(key, ValueType::kString, values.size());
  for (const std::string& value : values) append_string(value);
}

void GgufWriter::add_tensor(std::string_view name, TensorType type,
                            std::span<const uint64_t> dims) {
  TensorInfo& tensor = tensors_.emplace_back();
  INFERD_CHECK(!dims.empty() && dims.size() <= tensor.dims.size());
  tensor.name = name;
  tensor.type = type;
  tensor.dim_count = static_cast<uint32_t>(dims.size());
  std::copy(dims.begin(), dims.end(), tensor.dims.begin());
}

Result<void> GgufWriter::place_tensors() {
  std::vector<std::string> names = keys_;
  for (int round = 0; round < 2; ++round) {
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) return refuse(gguf_quoted(*twice) + " was added twice");
    names.clear();
    for (const TensorInfo& tensor : tensors_) names.push_back(tensor.name);
  }
  uint64_t offset = 0;
  for (TensorInfo& tensor : tensors_) {
    const TensorTypeTraits* traits = tensor_type_traits(tensor.type);
    if (traits == nullptr) {
      return refuse("tensor " + gguf_quoted(tensor.name) + " is of " +
                    tensor_type_name(tensor.type) + ", which cannot be written");
    }
    if (tensor.dims[0] == 0 || tensor.dims[0] % traits->block_elements != 0) {
      return refuse("tensor " + gguf_quoted(tensor.name) + " has rows of " +
                    std::to_string(tensor.dims[0]) + " elements; " + std::string(traits->name) +
                    " needs a multiple of " + std::to_string(traits->block_elements));
    }
    tensor.bytes = tensor.dims[0] / traits->block_elements * traits->block_bytes;
    for (uint32_t i = 1; i < tensor.dim_count; ++i) tensor.bytes *= tensor.dims[i];
    tensor.offset = offset;
    offset = aligned(offset + tensor.bytes, alignment_);
  }
  const uint64_t data_start = front().size();
  for (TensorInfo& tensor : tensors_) tensor.offset += data_start;
  return {};
}

// Header, metadata and tensor table, padded to where the data begins. Offsets in the table count
// from there, whatever tensors_ says of the file.
std::vector<uint8_t> GgufWriter::front() const {
  std::vector<uint8_t> out{'G', 'G', 'U', 'F'};
  append_to(out, 3, 4);
  append_to(out, tensors_.size(), 8);
  append_to(out, keys_.size(), 8);
  out.insert(out.end(), metadata_.begin(), metadata_.end());
  uint64_t offset = 0;
  for (const TensorInfo& tensor : tensors_) {
    append_to(out, tensor.name);
    append_to(out, tensor.dim_count, 4);
    for (uint32_t i = 0; i < tensor.dim_count; ++i) append_to(out, tensor.dims[i], 8);
    append_to(out, static_cast<uint32_t>(tensor.type), 4);
    append_to(out, offset, 8);
    offset = aligned(offset + tensor.bytes, alignment_);
  }
  out.resize(aligned(out.size(), alignment_));
  return out;
}

Result<void> GgufWriter::write_all(const Source& source, const Sink& sink) {
  INFERD_TRY(place_tensors());
  INFERD_TRY(sink(front()));
  std::vector<uint8_t> piece;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const TensorInfo& tensor = tensors_[i];
    const uint64_t block = tensor_type_traits(tensor.type)->block_bytes;
    const uint64_t step = kPieceBytes / block * block;
    for (uint64_t at = 0; at < tensor.bytes; at += step) {
      piece.resize(std::min(step, tensor.bytes - at));
      INFERD_TRY(source(i, at, piece));
      INFERD_TRY(sink(piece));
    }
    piece.assign(aligned(tensor.bytes, alignment_) - tensor.bytes, 0);
    INFERD_TRY(sink(piece));
  }
  return {};
}

Result<std::vector<uint8_t>> GgufWriter::bytes(const Source& source) {
  std::vector<uint8_t> out;
  INFERD_TRY(write_all(source, [&](std::span<const uint8_t> piece) -> Result<void> {
    out.insert(out.end(), piece.begin(), piece.end());
    return {};
  }));
  return out;
}

Result<void> GgufWriter::write(const std::string& path, const Source& source) {
  const std::string temporary = path + ".part";
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd) return errno_error(temporary, errno);
  auto written = write_all(
      source, [&](std::span<const uint8_t> piece) { return write_fully(fd.get(), piece); });
  if (!written) {
    ::unlink(temporary.c_str());
    return written.error().with_context(path);
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const Error error = errno_error(path, errno);
    ::unlink(temporary.c_str());
    return error;
  }
  return {};
}

}  // namespace inferd::formats
