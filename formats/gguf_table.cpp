#include "formats/gguf_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <numeric>

namespace inferd::formats {

namespace {

constexpr uint64_t kHeaderBytes = 24;     // magic, version, tensor count, key count
constexpr uint64_t kKeyBytesMin = 14;     // length, one byte of name, type, one byte of value
constexpr uint64_t kTensorBytesMin = 33;  // length, one byte of name, dims, one dim, type, offset
constexpr uint64_t kAlignmentDefault = 32;
constexpr uint32_t kValueTypes = 13;

Error corrupt(std::string message) { return Error(ErrorCode::kDataCorrupt, std::move(message)); }

std::string at_byte(uint64_t offset) { return " at byte " + std::to_string(offset); }

class Parser {
 public:
  explicit Parser(const GgufSource& source) : source_(source), file_bytes_(source.file_bytes()) {}

  Result<GgufTable> run();

 private:
  Result<void> read_header();
  Result<void> read_key(uint64_t index);
  Result<void> read_value(std::string_view shown, GgufFile::Key& key, GgufKeyPlace& place);
  Result<void> skip_array(std::string_view shown, GgufFile::Key& key);
  Result<void> check_bools(std::string_view shown, uint64_t offset, uint64_t count);
  void rebase_names();
  Result<void> index_keys();
  Result<void> read_alignment();
  Result<void> read_tensor_entry(uint64_t index);
  Result<void> read_dims(std::string_view shown, TensorInfo& tensor);
  Result<void> size_tensor(std::string_view shown, TensorInfo& tensor);
  Result<void> place_tensors();
  Result<void> check_overlaps() const;

  // Makes `bytes` bytes from pos_ on available. `what` names them in the error.
  Result<void> need(uint64_t bytes, std::string_view what);
  Result<uint64_t> number(uint64_t bytes, std::string_view what);
  // A length and that many bytes, which stay in front_; returns the length and leaves pos_ behind
  // them.
  Result<uint64_t> string(uint64_t bytes_max, std::string_view what);
  std::string_view view(uint64_t offset, uint64_t bytes) const {
    return {reinterpret_cast<const char*>(table_.front.data()) + offset, bytes};
  }

  const GgufSource& source_;
  const uint64_t file_bytes_;
  GgufTable table_;
  uint64_t pos_ = 0;
  uint64_t key_count_ = 0;
  uint64_t tensor_count_ = 0;
  uint64_t alignment_ = kAlignmentDefault;
};

Result<void> Parser::need(uint64_t bytes, std::string_view what) {
  if (bytes > file_bytes_ - pos_) {
    return corrupt(std::string(what) + at_byte(pos_) + " takes " + std::to_string(bytes) +
                   " bytes, but the file ends at byte " + std::to_string(file_bytes_) +
                   "; it is damaged or was not copied whole");
  }
  const uint64_t end = pos_ + bytes;
  if (end <= table_.front.size()) return {};
  if (end > kGgufFrontBytesMax) {
    return Error(ErrorCode::kUnsupported,
                 std::string(what) + at_byte(pos_) + " takes " + std::to_string(bytes) +
                     " bytes; metadata and tensor table together may take " +
                     std::to_string(kGgufFrontBytesMax) + " bytes");
  }
  const uint64_t have = table_.front.size();
  const uint64_t wish = std::max({end, 2 * have, uint64_t{64} << 10});
  const uint64_t target = std::min({wish, file_bytes_, kGgufFrontBytesMax});
  table_.front.reserve(target);  // exact: resize alone would round up beyond the file's size
  table_.front.resize(target);
  return source_.read(have, std::span(table_.front).subspan(have));
}

Result<uint64_t> Parser::number(uint64_t bytes, std::string_view what) {
  INFERD_TRY(need(bytes, what));
  const uint64_t value = gguf_load(table_.front.data() + pos_, bytes);
  pos_ += bytes;
  return value;
}

Result<uint64_t> Parser::string(uint64_t bytes_max, std::string_view what) {
  const uint64_t start = pos_;
  INFERD_ASSIGN(const uint64_t length, number(8, what));
  if (length > bytes_max) {
    return corrupt(std::string(what) + at_byte(start) + " states a length of " +
                   std::to_string(length) + " bytes; at most " + std::to_string(bytes_max) +
                   " are allowed");
  }
  INFERD_TRY(need(length, what));
  pos_ += length;
  return length;
}

Result<void> Parser::read_header() {
  if (file_bytes_ < kHeaderBytes) {
    return corrupt("the file has " + std::to_string(file_bytes_) +
                   " bytes; a GGUF file has a header of 24");
  }
  INFERD_TRY(need(kHeaderBytes, "the header"));
  if (view(0, 4) != "GGUF") {
    return corrupt("the file does not begin with 'GGUF', so it is not a GGUF model file");
  }
  pos_ = 4;
  INFERD_ASSIGN(const uint64_t version, number(4, "the version"));
  if ((version & 0xFFFF) == 0 && version != 0) {
    return Error(ErrorCode::kUnsupported,
                 "the file is a big-endian GGUF file; convert it to little endian (gguf-py has "
                 "gguf_convert_endian.py for this)");
  }
  if (version != 2 && version != 3) {
    return Error(ErrorCode::kUnsupported, "the file is of GGUF version " + std::to_string(version) +
                                              "; versions 2 and 3 can be read");
  }
  INFERD_ASSIGN(tensor_count_, number(8, "the tensor count"));
  INFERD_ASSIGN(key_count_, number(8, "the key count"));
  const uint64_t rest = file_bytes_ - kHeaderBytes;
  if (key_count_ > rest / kKeyBytesMin) {
    return corrupt("the header states " + std::to_string(key_count_) + " keys at byte 16; the " +
                   std::to_string(rest) + " bytes behind it hold fewer");
  }
  if (tensor_count_ > (rest - key_count_ * kKeyBytesMin) / kTensorBytesMin) {
    return corrupt("the header states " + std::to_string(tensor_count_) +
                   " tensors at byte 8; the " + std::to_string(rest) +
                   " bytes behind it hold fewer");
  }
  return {};
}

Result<void> Parser::check_bools(std::string_view shown, uint64_t offset, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    if (table_.front[offset + i] > 1) {
      return corrupt(std::string(shown) + at_byte(offset + i) +
                     " is a truth value; 0 or 1 was expected, not " +
                     std::to_string(table_.front[offset + i]));
    }
  }
  return {};
}

Result<void> Parser::skip_array(std::string_view shown, GgufFile::Key& key) {
  const uint64_t start = pos_;
  if (key.type == ValueType::kString) {
    for (uint64_t i = 0; i < key.count; ++i) {
      // Every string takes at least its length, so a count that is too large ends at the file's
      // end.
      INFERD_TRY(string(file_bytes_, shown));
    }
    return {};
  }
  const uint64_t size = gguf_value_bytes(key.type);
  if (key.count > (file_bytes_ - pos_) / size) {
    return corrupt(std::string(shown) + at_byte(start) + " states " + std::to_string(key.count) +
                   " elements of type " + std::string(gguf_value_name(key.type)) +
                   "; the file ends at byte " + std::to_string(file_bytes_));
  }
  INFERD_TRY(need(key.count * size, shown));
  if (key.type == ValueType::kBool) INFERD_TRY(check_bools(shown, pos_, key.count));
  pos_ += key.count * size;
  return {};
}

Result<void> Parser::read_value(std::string_view shown, GgufFile::Key& key, GgufKeyPlace& place) {
  uint64_t start = pos_;
  INFERD_ASSIGN(uint64_t type, number(4, shown));
  key.is_array = type == static_cast<uint64_t>(ValueType::kArray);
  key.count = 1;
  if (key.is_array) {
    start = pos_;
    INFERD_ASSIGN(type, number(4, shown));
    if (type == static_cast<uint64_t>(ValueType::kArray)) {
      return Error(ErrorCode::kUnsupported, std::string(shown) + at_byte(start) +
                                                " is an array of arrays, which cannot be read");
    }
    INFERD_ASSIGN(key.count, number(8, shown));
  }
  if (type >= kValueTypes) {
    return corrupt(std::string(shown) + at_byte(start) + " has value type " + std::to_string(type) +
                   "; 0 to 12 were expected");
  }
  key.type = static_cast<ValueType>(type);
  place.value_offset = pos_;
  if (key.is_array) return skip_array(shown, key);
  if (key.type == ValueType::kString) {
    INFERD_TRY(string(file_bytes_, shown));
    return {};
  }
  INFERD_TRY(need(gguf_value_bytes(key.type), shown));
  if (key.type == ValueType::kBool) INFERD_TRY(check_bools(shown, pos_, 1));
  pos_ += gguf_value_bytes(key.type);
  return {};
}

Result<void> Parser::read_key(uint64_t index) {
  const uint64_t start = pos_;
  INFERD_ASSIGN(const uint64_t length,
                string(kGgufNameBytesMax, "the name of key " + std::to_string(index)));
  if (length == 0) {
    return corrupt("key " + std::to_string(index) + at_byte(start) + " has an empty name");
  }
  GgufKeyPlace place;
  place.name_offset = start + 8;
  GgufFile::Key key{};
  // The name's length now, its place when the front part has stopped moving: see rebase_names().
  key.name = view(place.name_offset, length);
  const std::string shown = "key " + gguf_quoted(key.name);
  INFERD_TRY(read_value(shown, key, place));
  table_.keys.push_back(key);
  table_.places.push_back(place);
  return {};
}

// Points the keys' names into the front part, which moves as it grows.
void Parser::rebase_names() {
  for (size_t i = 0; i < table_.keys.size(); ++i) {
    GgufFile::Key& key = table_.keys[i];
    key.name = view(table_.places[i].name_offset, key.name.size());
  }
}

Result<void> Parser::index_keys() {
  const auto& keys = table_.keys;
  table_.keys_by_name.resize(keys.size());
  std::iota(table_.keys_by_name.begin(), table_.keys_by_name.end(), 0u);
  std::sort(table_.keys_by_name.begin(), table_.keys_by_name.end(),
            [&](uint32_t a, uint32_t b) { return keys[a].name < keys[b].name; });
  for (size_t i = 1; i < keys.size(); ++i) {
    const uint32_t a = table_.keys_by_name[i - 1], b = table_.keys_by_name[i];
    if (keys[a].name == keys[b].name) {
      const uint64_t again = std::max(table_.places[a].name_offset, table_.places[b].name_offset);
      return corrupt("key " + gguf_quoted(keys[a].name) + at_byte(again) +
                     " appears a second time; each key may appear once");
    }
  }
  return {};
}

Result<void> Parser::read_alignment() {
  const auto& keys = table_.keys;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].name != "general.alignment") continue;
    const uint64_t offset = table_.places[i].value_offset;
    if (keys[i].type != ValueType::kUint32 || keys[i].is_array) {
      return corrupt("key 'general.alignment'" + at_byte(offset) + " must be of type uint32");
    }
    alignment_ = gguf_load(table_.front.data() + offset, 4);
    if (!std::has_single_bit(alignment_)) {
      return corrupt("key 'general.alignment'" + at_byte(offset) + " is " +
                     std::to_string(alignment_) + "; a power of two was expected");
    }
  }
  return {};
}

Result<void> Parser::read_dims(std::string_view shown, TensorInfo& tensor) {
  const uint64_t start = pos_;
  INFERD_ASSIGN(const uint64_t count, number(4, shown));
  if (count < 1 || count > tensor.dims.size()) {
    return corrupt(std::string(shown) + at_byte(start) + " states " + std::to_string(count) +
                   " dimensions; 1 to 4 were expected");
  }
  tensor.dim_count = static_cast<uint32_t>(count);
  uint64_t elements = 1;
  for (uint32_t i = 0; i < tensor.dim_count; ++i) {
    const uint64_t dim_at = pos_;
    INFERD_ASSIGN(tensor.dims[i], number(8, shown));
    if (tensor.dims[i] == 0) {
      return corrupt(std::string(shown) + at_byte(dim_at) + " has dimension " + std::to_string(i) +
                     " of size 0");
    }
    if (elements > (uint64_t{1} << 62) / tensor.dims[i]) {
      return corrupt(std::string(shown) + at_byte(dim_at) + " has dimension " + std::to_string(i) +
                     " of size " + std::to_string(tensor.dims[i]) +
                     ", more elements in all than any file holds");
    }
    elements *= tensor.dims[i];
  }
  return {};
}

Result<void> Parser::size_tensor(std::string_view shown, TensorInfo& tensor) {
  const TensorTypeTraits* traits = tensor_type_traits(tensor.type);
  if (traits == nullptr) return {};  // size unknown: bytes stays 0, read_tensor refuses
  if (tensor.dims[0] % traits->block_elements != 0) {
    return corrupt(std::string(shown) + " has rows of " + std::to_string(tensor.dims[0]) +
                   " elements; type " + std::string(traits->name) + " needs a multiple of " +
                   std::to_string(traits->block_elements));
  }
  uint64_t blocks = tensor.dims[0] / traits->block_elements;
  for (uint32_t i = 1; i < tensor.dim_count; ++i) blocks *= tensor.dims[i];
  if (blocks > file_bytes_ / traits->block_bytes) {
    return corrupt(std::string(shown) + " of type " + std::string(traits->name) + " needs " +
                   std::to_string(blocks) + " blocks of " + std::to_string(traits->block_bytes) +
                   " bytes; the file has " + std::to_string(file_bytes_) +
                   " bytes: it is damaged or was not copied whole");
  }
  tensor.bytes = blocks * traits->block_bytes;
  return {};
}

Result<void> Parser::read_tensor_entry(uint64_t index) {
  const uint64_t start = pos_;
  INFERD_ASSIGN(const uint64_t length,
                string(kGgufNameBytesMax, "the name of tensor " + std::to_string(index)));
  if (length == 0) {
    return corrupt("tensor " + std::to_string(index) + at_byte(start) + " has an empty name");
  }
  TensorInfo tensor;
  tensor.name = view(start + 8, length);
  const std::string shown = "tensor " + gguf_quoted(tensor.name);
  INFERD_TRY(read_dims(shown, tensor));
  INFERD_ASSIGN(const uint64_t type, number(4, shown));
  tensor.type = static_cast<TensorType>(type);
  INFERD_TRY(size_tensor(shown, tensor));
  const uint64_t offset_at = pos_;
  INFERD_ASSIGN(tensor.offset, number(8, shown));
  if (tensor.offset % alignment_ != 0) {
    return corrupt(shown + at_byte(offset_at) + " has data offset " +
                   std::to_string(tensor.offset) + "; a multiple of the alignment, " +
                   std::to_string(alignment_) + ", was expected");
  }
  table_.tensors.push_back(std::move(tensor));
  return {};
}

Result<void> Parser::place_tensors() {
  // pos_ <= 2^29 and alignment_ <= 2^31: no overflow.
  const uint64_t data_start = (pos_ + alignment_ - 1) / alignment_ * alignment_;
  for (TensorInfo& tensor : table_.tensors) {
    const uint64_t room = file_bytes_ > data_start ? file_bytes_ - data_start : 0;
    if (tensor.offset > room || tensor.bytes > room - tensor.offset) {
      return corrupt("tensor " + gguf_quoted(tensor.name) + " lies at data offset " +
                     std::to_string(tensor.offset) + " and takes " + std::to_string(tensor.bytes) +
                     " bytes; the data begins at byte " + std::to_string(data_start) +
                     " and the file ends at byte " + std::to_string(file_bytes_) +
                     ": it is damaged or was not copied whole");
    }
    tensor.offset += data_start;
  }
  auto& order = table_.tensors_by_name;
  order.resize(table_.tensors.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return table_.tensors[a].name < table_.tensors[b].name;
  });
  for (size_t i = 1; i < order.size(); ++i) {
    if (table_.tensors[order[i - 1]].name == table_.tensors[order[i]].name) {
      return corrupt("tensor " + gguf_quoted(table_.tensors[order[i]].name) +
                     " appears twice in the tensor table; each name may appear once");
    }
  }
  return {};
}

Result<void> Parser::check_overlaps() const {
  const auto& tensors = table_.tensors;
  std::vector<uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return tensors[a].offset != tensors[b].offset ? tensors[a].offset < tensors[b].offset : a < b;
  });
  const TensorInfo* before = nullptr;
  for (const uint32_t i : order) {
    const TensorInfo& tensor = tensors[i];
    if (tensor.bytes == 0) continue;  // of a type whose size is not known
    if (before != nullptr && tensor.offset < before->offset + before->bytes) {
      return corrupt("tensor " + gguf_quoted(tensor.name) + at_byte(tensor.offset) +
                     " overlaps tensor " + gguf_quoted(before->name) + ", which ends at byte " +
                     std::to_string(before->offset + before->bytes));
    }
    before = &tensor;
  }
  return {};
}

Result<GgufTable> Parser::run() {
  INFERD_TRY(read_header());
  // read_header compared the counts with the bytes behind it. In a large file a count may still be
  // much too large, so the first reservation is small.
  table_.keys.reserve(std::min<uint64_t>(key_count_, 1024));
  table_.places.reserve(std::min<uint64_t>(key_count_, 1024));
  for (uint64_t i = 0; i < key_count_; ++i) INFERD_TRY(read_key(i));
  rebase_names();
  INFERD_TRY(index_keys());
  INFERD_TRY(read_alignment());
  table_.tensors.reserve(std::min<uint64_t>(tensor_count_, 1024));
  for (uint64_t i = 0; i < tensor_count_; ++i) INFERD_TRY(read_tensor_entry(i));
  rebase_names();  // reading the tensor table may have moved the front part
  INFERD_TRY(place_tensors());
  INFERD_TRY(check_overlaps());
  return std::move(table_);
}

}  // namespace

Result<GgufTable> parse_gguf(const GgufSource& source) { return Parser(source).run(); }

uint64_t gguf_value_bytes(ValueType type) noexcept {
  switch (type) {
    case ValueType::kUint8:
    case ValueType::kInt8:
    case ValueType::kBool:
      return 1;
    case ValueType::kUint16:
    case ValueType::kInt16:
      return 2;
    case ValueType::kUint32:
    case ValueType::kInt32:
    case ValueType::kFloat32:
      return 4;
    case ValueType::kUint64:
    case ValueType::kInt64:
    case ValueType::kFloat64:
      return 8;
    case ValueType::kString:
    case ValueType::kArray:
      return 0;
  }
  return 0;
}

std::string_view gguf_value_name(ValueType type) noexcept {
  constexpr std::array<std::string_view, kValueTypes> kNames{
      "uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
      "bool",  "string", "array",  "uint64", "int64",  "float64"};
  const auto index = static_cast<size_t>(type);
  return index < kNames.size() ? kNames[index] : "unknown";
}

std::string gguf_quoted(std::string_view name) {
  constexpr size_t kShown = 80;
  std::string text = "'";
  for (const char c : name.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte < 0x20 || byte >= 0x7F ? '?' : c;
  }
  text += name.size() > kShown ? "...'" : "'";
  return text;
}

uint64_t gguf_load(const uint8_t* at, uint64_t bytes) noexcept {
  uint64_t value = 0;
  for (uint64_t i = 0; i < bytes; ++i) value |= uint64_t{at[i]} << (8 * i);
  return value;
}

}  // namespace inferd::formats
