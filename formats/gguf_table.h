// The checked form of a GGUF file's front part (header, metadata, tensor table), and the parser
// that makes it. Private to formats/. Owner: formats. One thread parses; the result is immutable.
// Must not know architectures or tokenizers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/gguf.h"

namespace inferd::formats {

// Bytes that the front part may take. The largest vocabularies in use need about 20 MiB.
inline constexpr uint64_t kGgufFrontBytesMax = uint64_t{512} << 20;

// Longest key or tensor name, from the specification's limit for keys.
inline constexpr uint64_t kGgufNameBytesMax = 65535;

// Where a key's name and value lie in the front part.
struct GgufKeyPlace {
  uint64_t name_offset = 0;
  uint64_t value_offset = 0;  // of the first element, for an array
};

struct GgufTable {
  std::vector<uint8_t> front;  // the file from byte 0, at least to the end of the tensor table
  std::vector<GgufFile::Key> keys;
  std::vector<GgufKeyPlace> places;    // of keys[i]
  std::vector<uint32_t> keys_by_name;  // indices into keys, ascending by name
  std::vector<TensorInfo> tensors;
  std::vector<uint32_t> tensors_by_name;
};

// Reads bytes [offset, offset + bytes.size()) of the file, all of them or an error.
class GgufSource {
 public:
  virtual ~GgufSource() = default;
  virtual uint64_t file_bytes() const noexcept = 0;
  virtual Result<void> read(uint64_t offset, std::span<uint8_t> bytes) const = 0;
};

// Reads and checks the front part. Nothing is allocated for bytes that are not known to be there:
// the front part takes at most twice the bytes read so far while it grows; a key (at least 14 bytes
// in the file) takes 52 and a tensor (at least 33) 96 beside its name, up to three times that while
// their tables grow. In all: never more than 14 times the file's size, and less than twice for real
// files.
Result<GgufTable> parse_gguf(const GgufSource& source);

// Bytes of one element of a fixed-size type; 0 for strings and arrays.
uint64_t gguf_value_bytes(ValueType type) noexcept;
// "uint32", "string", …
std::string_view gguf_value_name(ValueType type) noexcept;
// A name from the file as it may appear in an error: quoted, shortened, other than printable ASCII
// replaced by '?'.
std::string gguf_quoted(std::string_view name);
// Little-endian number of `bytes` (1, 2, 4 or 8) bytes.
uint64_t gguf_load(const uint8_t* at, uint64_t bytes) noexcept;

}  // namespace inferd::formats
