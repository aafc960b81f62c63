#include "formats/gguf.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <limits>
#include <memory>
#include <utility>

#include "formats/gguf_table.h"

namespace inferd::formats {

namespace {

class FileSource final : public GgufSource {
 public:
  FileSource(UniqueFd fd, uint64_t file_bytes) : fd_(std::move(fd)), file_bytes_(file_bytes) {}
  uint64_t file_bytes() const noexcept override { return file_bytes_; }
  Result<void> read(uint64_t offset, std::span<uint8_t> bytes) const override;

 private:
  UniqueFd fd_;
  uint64_t file_bytes_;
};

Result<void> FileSource::read(uint64_t offset, std::span<uint8_t> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0) {
      if (errno == EINTR) continue;
      return errno_error("cannot read at byte " + std::to_string(offset), errno);
    }
    if (got == 0) {
      return Error(ErrorCode::kDataCorrupt, "the file had " + std::to_string(file_bytes_) +
                                                " bytes when it was opened and now ends at byte " +
                                                std::to_string(offset) +
                                                "; it was changed meanwhile, load it again");
    }
    bytes = bytes.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return {};
}

class MemorySource final : public GgufSource {
 public:
  explicit MemorySource(std::span<const uint8_t> bytes) : bytes_(bytes.begin(), bytes.end()) {}
  uint64_t file_bytes() const noexcept override { return bytes_.size(); }
  Result<void> read(uint64_t offset, std::span<uint8_t> bytes) const override {
    INFERD_CHECK(offset <= bytes_.size() && bytes.size() <= bytes_.size() - offset);
    std::copy_n(bytes_.begin() + static_cast<ptrdiff_t>(offset), bytes.size(), bytes.begin());
    return {};
  }

 private:
  std::vector<uint8_t> bytes_;
};

Result<std::unique_ptr<GgufSource>> open_source(const std::string& path) {
  // O_NONBLOCK: a pipe of that name must not hang the caller; regular files ignore it.
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) {
    const Error error = errno_error("cannot open the model file", errno);
    if (errno == ENOENT) return Error(ErrorCode::kNotFound, error.message());
    if (errno == EACCES) return Error(ErrorCode::kPermissionDenied, error.message());
    return error;
  }
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return errno_error("cannot examine the model file", errno);
  if (!S_ISREG(status.st_mode)) {
    return Error(ErrorCode::kInvalidArgument, "not a regular file; name a GGUF model file");
  }
  return std::unique_ptr<GgufSource>(
      std::make_unique<FileSource>(std::move(fd), static_cast<uint64_t>(status.st_size)));
}

double load_float(const uint8_t* at, ValueType type) {
  if (type == ValueType::kFloat64) return std::bit_cast<double>(gguf_load(at, 8));
  return std::bit_cast<float>(static_cast<uint32_t>(gguf_load(at, 4)));
}

bool is_float(ValueType type) { return type == ValueType::kFloat32 || type == ValueType::kFloat64; }
bool is_unsigned(ValueType type) {
  return type == ValueType::kUint8 || type == ValueType::kUint16 || type == ValueType::kUint32 ||
         type == ValueType::kUint64;
}
bool is_signed(ValueType type) {
  return type == ValueType::kInt8 || type == ValueType::kInt16 || type == ValueType::kInt32 ||
         type == ValueType::kInt64;
}

// Sign-extended from the type's own width.
int64_t load_signed(const uint8_t* at, ValueType type) {
  const uint64_t bytes = gguf_value_bytes(type);
  const unsigned shift = static_cast<unsigned>(64 - 8 * bytes);
  return static_cast<int64_t>(gguf_load(at, bytes) << shift) >> shift;
}

}  // namespace

struct GgufFile::Impl {
  std::string path;
  std::unique_ptr<GgufSource> source;
  GgufTable table;

  // A key of the wanted shape, and where its value lies.
  struct Found {
    const Key* key;
    const uint8_t* value;
    uint64_t offset;
  };
  Result<Found> find(std::string_view name, bool is_array) const;
  // kDataCorrupt: "key 'x' at byte N is a string; an integer was expected".
  Error wrong_type(const Found& found, std::string_view expected) const;
  Result<int64_t> to_int(const Found& found, uint64_t index) const;

  const Key* find_key(std::string_view name) const noexcept {
    const auto& order = table.keys_by_name;
    const auto at = std::lower_bound(
        order.begin(), order.end(), name,
        [&](uint32_t index, std::string_view wanted) { return table.keys[index].name < wanted; });
    if (at == order.end() || table.keys[*at].name != name) return nullptr;
    return &table.keys[*at];
  }
};

Result<GgufFile::Impl::Found> GgufFile::Impl::find(std::string_view name, bool is_array) const {
  const Key* key = find_key(name);
  if (key == nullptr) {
    return Error(ErrorCode::kNotFound, "the model file has no key " + gguf_quoted(name));
  }
  const uint64_t offset = table.places[static_cast<size_t>(key - table.keys.data())].value_offset;
  const Found found{key, table.front.data() + offset, offset};
  if (key->is_array != is_array) {
    return wrong_type(found, is_array ? "an array" : "a single value");
  }
  return found;
}

Error GgufFile::Impl::wrong_type(const Found& found, std::string_view expected) const {
  return Error(ErrorCode::kDataCorrupt, "key " + gguf_quoted(found.key->name) + " at byte " +
                                            std::to_string(found.offset) + " is " +
                                            (found.key->is_array ? "an array of " : "of type ") +
                                            std::string(gguf_value_name(found.key->type)) + "; " +
                                            std::string(expected) + " was expected");
}

Result<int64_t> GgufFile::Impl::to_int(const Found& found, uint64_t index) const {
  const uint8_t* at = found.value + index * gguf_value_bytes(found.key->type);
  if (is_signed(found.key->type)) return load_signed(at, found.key->type);
  if (!is_unsigned(found.key->type)) return wrong_type(found, "an integer");
  const uint64_t value = gguf_load(at, gguf_value_bytes(found.key->type));
  if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return Error(ErrorCode::kDataCorrupt, "key " + gguf_quoted(found.key->name) + " is " +
                                              std::to_string(value) +
                                              "; a number below 2^63 was expected");
  }
  return static_cast<int64_t>(value);
}

GgufFile::GgufFile(Impl* impl) noexcept : impl_(impl) {}
GgufFile::GgufFile(GgufFile&& other) noexcept : impl_(std::exchange(other.impl_, nullptr)) {}
GgufFile& GgufFile::operator=(GgufFile&& other) noexcept {
  std::swap(impl_, other.impl_);
  return *this;
}
GgufFile::~GgufFile() { delete impl_; }

Result<GgufFile> GgufFile::open(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  auto source = open_source(path);
  if (!source) return source.error().with_context(path);
  impl->source = std::move(source).value();
  auto table = parse_gguf(*impl->source);
  if (!table) return table.error().with_context(path);
  impl->table = std::move(table).value();
  return GgufFile(impl.release());
}

Result<GgufFile> GgufFile::parse(std::span<const uint8_t> bytes) {
  auto impl = std::make_unique<Impl>();
  impl->source = std::make_unique<MemorySource>(bytes);
  INFERD_ASSIGN(impl->table, parse_gguf(*impl->source));
  return GgufFile(impl.release());
}

uint64_t GgufFile::file_bytes() const noexcept { return impl_->source->file_bytes(); }
const std::string& GgufFile::path() const noexcept { return impl_->path; }

bool GgufFile::has(std::string_view key) const noexcept { return impl_->find_key(key) != nullptr; }

Result<uint64_t> GgufFile::get_uint(std::string_view key) const {
  INFERD_ASSIGN(const Impl::Found found, impl_->find(key, false));
  if (is_unsigned(found.key->type)) {
    return gguf_load(found.value, gguf_value_bytes(found.key->type));
  }
  INFERD_ASSIGN(const int64_t value, impl_->to_int(found, 0));
  if (value < 0) {
    return Error(ErrorCode::kDataCorrupt,
                 "key " + gguf_quoted(key) + " at byte " + std::to_string(found.offset) + " is " +
                     std::to_string(value) + "; a number of at least 0 was expected");
  }
  return static_cast<uint64_t>(value);
}

Result<int64_t> GgufFile::get_int(std::string_view key) const {
  INFERD_ASSIGN(const Impl::Found found, impl_->find(key, false));
  return impl_->to_int(found, 0);
}

Result<double> GgufFile::get_float(std::string_view key) const {
  INFERD_ASSIGN(const Impl::Found found, impl_->find(key, false));
  if (!is_float(found.key->type)) return impl_->wrong_type(found, "a floating-point number");
  return load_float(found.value, found.key->type);
}

Result<bool> GgufFile::get_bool(std::string_view key) const {
  INFERD_ASSIGN(const Impl::Found found, impl_->find(key, false));
  if (found.key->type != ValueType::kBool) return impl_->wrong_type(found, "a truth value");
  return *found.value != 0;
}

Result<std::string_view> GgufFile::get_string(std::string_view key) const {
  INFERD_ASSIGN(const Impl::Found found, impl_->find(key, false));
  if (found.key->type != ValueType::kString) return impl_->wrong_type(found, "a string");
  return std::string_view(reinterpret_cast<const char*>(found.value) + 8,
                          gguf_load(found.value, 8));
}

Result<std::vector<std::string_view>> GgufFile::get_string_array(std::string_view key) const {
  INFERD_ASSIGN(const Impl::Found found, impl_->find(key, true));
  if (found.key->type != ValueType::kString) {
    return impl_->wrong_type(found, "an array of strings");
  }
  // The count and every length were checked when the file was opened.
  std::vector<std::string_view> strings;
  strings.reserve(found.key->count);
  const uint8_t* at = found.value;
  for (uint64_t i = 0; i < found.key->count; ++i) {
    const uint64_t bytes = gguf_load(at, 8);
    strings.emplace_back(reinterpret_cast<const char*>(at) + 8, bytes);
    at += 8 + bytes;
  }
  return strings;
}

Result<std::vector<int64_t>> GgufFile::get_int_array(std::string_view key) const {
  INFERD_ASSIGN(const Impl::Found found, impl_->find(key, true));
  if (!is_signed(found.key->type) && !is_unsigned(found.key->type)) {
    return impl_->wrong_type(found, "an array of integers");
  }
  std::vector<int64_t> values(found.key->count);
  for (uint64_t i = 0; i < values.size(); ++i) {
    INFERD_ASSIGN(values[i], impl_->to_int(found, i));
  }
  return values;
}

Result<std::vector<float>> GgufFile::get_float_array(std::string_view key) const {
  INFERD_ASSIGN(const Impl::Found found, impl_->find(key, true));
  if (!is_float(found.key->type)) {
    return impl_->wrong_type(found, "an array of floating-point numbers");
  }
  std::vector<float> values(found.key->count);
  const uint64_t size = gguf_value_bytes(found.key->type);
  for (uint64_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(load_float(found.value + i * size, found.key->type));
  }
  return values;
}

std::span<const GgufFile::Key> GgufFile::keys() const noexcept { return impl_->table.keys; }

std::span<const TensorInfo> GgufFile::tensors() const noexcept { return impl_->table.tensors; }

const TensorInfo* GgufFile::find_tensor(std::string_view name) const noexcept {
  const auto& order = impl_->table.tensors_by_name;
  const auto& tensors = impl_->table.tensors;
  const auto at = std::lower_bound(
      order.begin(), order.end(), name,
      [&](uint32_t index, std::string_view wanted) { return tensors[index].name < wanted; });
  if (at == order.end() || tensors[*at].name != name) return nullptr;
  return &tensors[*at];
}

Result<void> GgufFile::read_tensor(const TensorInfo& tensor, uint64_t offset_bytes,
                                   std::span<uint8_t> bytes) const {
  const std::string shown = "tensor " + gguf_quoted(tensor.name);
  if (tensor_type_traits(tensor.type) == nullptr) {
    return Error(ErrorCode::kUnsupported, shown + " is of type " + tensor_type_name(tensor.type) +
                                              ", which this build cannot read; use a model file "
                                              "in F16, BF16, Q8_0, Q4_0, Q4_K or the like");
  }
  const uint64_t file = file_bytes();
  if (tensor.offset > file || tensor.bytes > file - tensor.offset) {
    return Error(ErrorCode::kInvalidArgument, shown + " does not belong to this file");
  }
  if (offset_bytes > tensor.bytes || bytes.size() > tensor.bytes - offset_bytes) {
    return Error(ErrorCode::kInvalidArgument, "bytes " + std::to_string(offset_bytes) + " to " +
                                                  std::to_string(offset_bytes + bytes.size()) +
                                                  " of " + shown + " were asked for; it has " +
                                                  std::to_string(tensor.bytes));
  }
  if (auto read = impl_->source->read(tensor.offset + offset_bytes, bytes); !read) {
    const Error error = read.error().with_context(shown);
    return impl_->path.empty() ? error : error.with_context(impl_->path);
  }
  return {};
}

}  // namespace inferd::formats
