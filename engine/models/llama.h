// The llama family: RMS norm, rotary embedding, grouped-query attention, SwiGLU, tied or untied output.
// Owner: the engine object of a loaded model. Immutable after load; forward() on the engine thread.
// Must not know devices: it declares its tensors to a builder and calls operators.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/ops/ops.h"
#include "formats/gguf.h"

namespace inferd::engine {

// Takes the tensors that a model names; implemented by each backend's weight builder.
class WeightBuilder {
 public:
  virtual ~WeightBuilder() = default;
  // A matrix of the file: `rows` outputs, `columns` inputs. Errors: kDataCorrupt if it is missing or of another
  // shape, kUnsupported for a type outside the list. Declaring the same tensor twice gives the same id.
  virtual Result<MatrixId> matrix(const std::string& name, uint32_t rows, uint32_t columns) = 0;
  // A vector of the file, [count], kept as f32.
  virtual Result<VectorId> vector(const std::string& name, uint32_t count) = 0;
};

// Hyperparameters, from the metadata of a GGUF file.
struct LlamaConfig {
  uint32_t context_tokens = 0;
  float norm_epsilon = 0;
  bool tied_output = false;
  ModelShape shape;
};

class LlamaModel {
 public:
  // Reads and checks the metadata. Errors: kUnsupported for what the file asks and this code lacks (experts,
  // another rope type), kDataCorrupt for missing or impossible values; the sentence names the key.
  static Result<LlamaConfig> read_config(const formats::GgufFile& file);
  // Declares every tensor. Errors as above; a tensor of the file that the family does not use is kUnsupported,
  // since its effect would be missing silently.
  static Result<LlamaModel> load(const formats::GgufFile& file, const LlamaConfig& config, WeightBuilder& weights);

  void forward(Ops& ops) const;
  const LlamaConfig& config() const { return config_; }

 private:
  struct Layer {
    VectorId attention_norm, query_bias, key_bias, value_bias, output_bias;
    VectorId feed_forward_norm, gate_bias, up_bias, down_bias;
    MatrixId query, key, value, output, gate, up, down;
  };

  explicit LlamaModel(const LlamaConfig& config) : config_(config) {}

  LlamaConfig config_;
  MatrixId embedding_, output_;
  VectorId output_norm_;
  std::vector<Layer> layers_;
};

}  // namespace inferd::engine
