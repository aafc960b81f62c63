#include "bench/model_shape.h"

#include <string_view>

#include "formats/gguf.h"

namespace inferd::bench {

Result<ModelShape> read_model_shape(const std::string& path) {
  INFERD_ASSIGN(const formats::GgufFile file, formats::GgufFile::open(path));
  ModelShape shape;
  double elements_by_kind[3] = {};
  for (const formats::TensorInfo& tensor : file.tensors()) {
    if (tensor.dim_count != 2 || !std::string_view(tensor.name).starts_with("blk.")) continue;
    const double elements =
        static_cast<double>(tensor.dims[0]) * static_cast<double>(tensor.dims[1]);
    shape.layer_ops_per_token += 2 * elements;
    WeightKind kind = WeightKind::kInt8;
    if (tensor.type == formats::TensorType::kF32 || tensor.type == formats::TensorType::kF16) {
      kind = WeightKind::kF32;
    } else if (tensor.type == formats::TensorType::kBF16) {
      kind = WeightKind::kBf16;
    }
    elements_by_kind[static_cast<int>(kind)] += elements;
  }
  for (WeightKind kind : {WeightKind::kF32, WeightKind::kBf16}) {
    if (elements_by_kind[static_cast<int>(kind)] > elements_by_kind[static_cast<int>(shape.kind)]) {
      shape.kind = kind;
    }
  }
  return shape;
}

}  // namespace inferd::bench
