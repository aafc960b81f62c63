// Any bytes as a model to load: hyperparameters, shapes and tensor types are checked before a weight is
// packed, and what is accepted takes no more memory than its file's tensors account for.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "engine/cpu/weights.h"
#include "engine/cpu/worker_pool.h"
#include "engine/models/llama.h"
#include "formats/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace inferd;
  using namespace inferd::engine;
  constexpr uint32_t kLanes = 8;
  const auto file = formats::GgufFile::parse({data, size});
  if (!file) return 0;
  const auto config = LlamaModel::read_config(*file);
  if (!config) {
    INFERD_CHECK(!config.error().message().empty());
    return 0;
  }
  cpu::CpuWeightBuilder builder(*file, kLanes);
  const auto model = LlamaModel::load(*file, *config, builder);
  if (!model) {
    INFERD_CHECK(!model.error().message().empty());
    return 0;
  }
  static cpu::WorkerPool pool(1);
  const auto weights = builder.build(pool);
  // Rows are padded to whole tiles of kLanes, and a value never grows beyond f32: at most
  // kLanes times the rows and twice the bytes of each, plus alignment.
  if (weights) INFERD_CHECK(weights->bytes().value <= 4 * kLanes * size + (64u << 10));
  return 0;
}
