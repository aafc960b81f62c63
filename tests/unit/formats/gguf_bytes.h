// Builds GGUF files byte by byte, right and wrong ones, for the tests of formats.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf.h"
#include "formats/gguf_writer.h"

namespace inferd::formats {

class GgufBytes {
 public:
  GgufBytes& number(uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) out_.push_back(static_cast<uint8_t>(value >> (8 * i)));
    return *this;
  }
  GgufBytes& raw(std::string_view text) {
    out_.insert(out_.end(), text.begin(), text.end());
    return *this;
  }
  GgufBytes& text(std::string_view text) { return number(text.size(), 8).raw(text); }
  GgufBytes& header(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    return raw("GGUF").number(version, 4).number(tensors, 8).number(keys, 8);
  }
  GgufBytes& key(std::string_view name, ValueType type) {
    return text(name).number(static_cast<uint32_t>(type), 4);
  }
  GgufBytes& array(std::string_view name, uint32_t type, uint64_t count) {
    return key(name, ValueType::kArray).number(type, 4).number(count, 8);
  }
  GgufBytes& tensor(std::string_view name, std::vector<uint64_t> dims, uint32_t type,
                    uint64_t offset) {
    text(name).number(dims.size(), 4);
    for (const uint64_t dim : dims) number(dim, 8);
    return number(type, 4).number(offset, 8);
  }
  GgufBytes& pad(size_t alignment, size_t data_bytes) {
    out_.resize((out_.size() + alignment - 1) / alignment * alignment + data_bytes);
    return *this;
  }
  const std::vector<uint8_t>& bytes() const { return out_; }
  size_t size() const { return out_.size(); }

 private:
  std::vector<uint8_t> out_;
};

// A small file with every kind of value and two tensors.
inline std::vector<uint8_t> small_file() {
  GgufWriter writer;
  writer.add_string("general.architecture", "llama");
  writer.add<uint8_t>("u8", 200);
  writer.add<int8_t>("i8", -5);
  writer.add<uint16_t>("u16", 65535);
  writer.add<int16_t>("i16", -300);
  writer.add<uint32_t>("u32", 4000000000u);
  writer.add<int32_t>("i32", -70000);
  writer.add<uint64_t>("u64", uint64_t{1} << 63);
  writer.add<int64_t>("i64", -(int64_t{1} << 40));
  writer.add<float>("f32", 0.5f);
  writer.add<double>("f64", 0.1);
  writer.add<bool>("flag", true);
  const std::vector<std::string> words{"one", "", "three"};
  writer.add_string_array("words", words);
  const std::vector<int16_t> numbers{-1, 2};
  writer.add_array<int16_t>("numbers", numbers);
  const std::vector<float> floats{1.5f, -2.5f};
  writer.add_array<float>("floats", floats);
  const std::vector<uint64_t> matrix{32, 2}, row{3};
  writer.add_tensor("matrix", TensorType::kQ4_0, matrix);
  writer.add_tensor("row", TensorType::kF32, row);
  auto bytes = writer.bytes([](size_t tensor, uint64_t offset, std::span<uint8_t> out) {
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<uint8_t>(100 * tensor + offset + i);
    }
    return Result<void>();
  });
  return std::move(bytes).value();
}

}  // namespace inferd::formats
