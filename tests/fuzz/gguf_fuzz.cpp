// Any bytes as a GGUF file: an error or a file whose every promise holds, never a crash.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "formats/dequantize.h"
#include "formats/gguf.h"
#include "formats/gguf_vocabulary.h"

namespace {

using namespace inferd;
using namespace inferd::formats;

void read_keys(const GgufFile& file) {
  for (const GgufFile::Key& key : file.keys()) {
    INFERD_CHECK(file.has(key.name));
    // Every getter on every key: the wrong ones must refuse, the right one must succeed.
    int read = 0;
    read += file.get_uint(key.name).ok() || file.get_int(key.name).ok() ? 1 : 0;
    read += file.get_float(key.name).ok() ? 1 : 0;
    read += file.get_bool(key.name).ok() ? 1 : 0;
    read += file.get_string(key.name).ok() ? 1 : 0;
    read += file.get_string_array(key.name).ok() ? 1 : 0;
    read += file.get_float_array(key.name).ok() ? 1 : 0;
    read += file.get_int_array(key.name).ok() ? 1 : 0;
    INFERD_CHECK(read <= 1);
  }
}

void read_tensors(const GgufFile& file) {
  for (const TensorInfo& tensor : file.tensors()) {
    INFERD_CHECK(file.find_tensor(tensor.name) == &tensor);
    INFERD_CHECK(tensor.offset <= file.file_bytes());
    INFERD_CHECK(tensor.bytes <= file.file_bytes() - tensor.offset);
    const TensorTypeTraits* traits = tensor_type_traits(tensor.type);
    std::vector<uint8_t> bytes(tensor.bytes);
    INFERD_CHECK(file.read_tensor(tensor, 0, bytes).ok() == (traits != nullptr));
    if (traits == nullptr) continue;
    const size_t blocks = std::min<size_t>(bytes.size() / traits->block_bytes, 4);
    std::vector<float> values(blocks * traits->block_elements);
    const auto first = std::span<const uint8_t>(bytes).first(blocks * traits->block_bytes);
    INFERD_CHECK(dequantize(tensor.type, first, values).ok());
    std::vector<uint8_t> one(1);
    INFERD_CHECK(!file.read_tensor(tensor, tensor.bytes, one).ok());
  }
}

void check_vocabulary(const Vocabulary& v) {
  INFERD_CHECK(v.types.size() == v.tokens.size());
  INFERD_CHECK(v.scores.empty() || v.scores.size() == v.tokens.size());
  std::vector<TokenId> ids = v.end_of_generation;
  INFERD_CHECK(std::is_sorted(ids.begin(), ids.end()));
  for (const TokenId id : {v.bos, v.eos, v.eot, v.eom, v.unknown, v.separator, v.padding, v.cls,
                           v.mask, v.fim_prefix, v.fim_suffix, v.fim_middle, v.fim_padding,
                           v.fim_repository, v.fim_separator}) {
    if (id != kNoToken) ids.push_back(id);
  }
  for (const TokenId id : ids) {
    INFERD_CHECK(id >= 0 && static_cast<size_t>(id) < v.tokens.size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = GgufFile::parse({data, size});
  if (!file) {
    INFERD_CHECK(!file.error().message().empty());
    return 0;
  }
  read_keys(*file);
  read_tensors(*file);
  if (const auto vocabulary = read_vocabulary(*file)) check_vocabulary(*vocabulary);
  return 0;
}
