#include "bench/npy_writer.h"

#include <bit>
#include <cerrno>

#include "base/check.h"

namespace inferd::bench {

static_assert(std::endian::native == std::endian::little, "the file's floats are little endian");

Result<NpyWriter> NpyWriter::create(const std::string& path, uint64_t rows, uint64_t columns) {
  FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return errno_error("cannot write " + path, errno);
  NpyWriter writer(file, path, rows * columns);
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                       std::to_string(rows) + ", " + std::to_string(columns) + "), }";
  // Magic, version and length take 10 bytes; the header ends with a newline on a multiple of 64.
  constexpr size_t kPrefix = 10;
  header.resize((header.size() + 1 + kPrefix + 63) / 64 * 64 - kPrefix - 1, ' ');
  header += '\n';
  std::string start = {'\x93', 'N', 'U', 'M', 'P', 'Y', '\x01', '\x00'};
  start += static_cast<char>(header.size() & 0xff);
  start += static_cast<char>(header.size() >> 8);
  start += header;
  if (std::fwrite(start.data(), 1, start.size(), file) != start.size()) {
    return errno_error("cannot write " + path, errno);
  }
  return writer;
}

Result<void> NpyWriter::append(std::span<const float> values) {
  INFERD_CHECK(values.size() <= values_left_);
  if (std::fwrite(values.data(), sizeof(float), values.size(), file_.get()) != values.size()) {
    return errno_error("cannot write " + path_, errno);
  }
  values_left_ -= values.size();
  return {};
}

Result<void> NpyWriter::finish() {
  INFERD_CHECK(values_left_ == 0);
  if (std::fclose(file_.release()) != 0) return errno_error("cannot write " + path_, errno);
  return {};
}

}  // namespace inferd::bench
