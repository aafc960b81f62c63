#include "engine/models/llama.h"

#include <array>
#include <cmath>
#include <set>

#include "engine/models/rope.h"

namespace inferd::engine {

using formats::GgufFile;

namespace {

constexpr const char* kArchitecture = "llama";
constexpr uint64_t kDimensionMax = 1u << 20;
constexpr uint32_t kHeadDimMax = 256;

// A positive integer of the metadata, within what any model of the family has.
Result<uint32_t> read_dimension(const GgufFile& file, const std::string& name, uint64_t maximum = kDimensionMax) {
  const std::string key = std::string(kArchitecture) + "." + name;
  INFERD_ASSIGN(const uint64_t value, file.get_uint(key));
  if (value == 0 || value > maximum) {
    return Error(ErrorCode::kDataCorrupt, "metadata key '" + key + "' is " + std::to_string(value) +
                                              "; expected 1 to " + std::to_string(maximum));
  }
  return static_cast<uint32_t>(value);
}

Result<uint32_t> read_dimension_or(const GgufFile& file, const std::string& name, uint32_t fallback) {
  if (!file.has(std::string(kArchitecture) + "." + name)) return fallback;
  return read_dimension(file, name);
}

Result<void> check_heads(const ModelShape& shape) {
  if (shape.heads % shape.kv_heads != 0) {
    return Error(ErrorCode::kDataCorrupt, "'llama.attention.head_count' (" + std::to_string(shape.heads) +
                                              ") is not a multiple of 'llama.attention.head_count_kv' (" +
                                              std::to_string(shape.kv_heads) + ")");
  }
  if (shape.heads / shape.kv_heads > kGroupMax) {
    return Error(ErrorCode::kUnsupported, "more than " + std::to_string(kGroupMax) +
                                              " heads per key-value head are not supported");
  }
  if (shape.head_dim % 2 != 0 || shape.head_dim > kHeadDimMax) {
    return Error(ErrorCode::kUnsupported, "heads of " + std::to_string(shape.head_dim) +
                                              " dimensions are not supported; even numbers up to 256 are");
  }
  return {};
}

}  // namespace

Result<LlamaConfig> LlamaModel::read_config(const GgufFile& file) {
  INFERD_ASSIGN(const std::string_view architecture, file.get_string("general.architecture"));
  if (architecture != kArchitecture) {
    return Error(ErrorCode::kUnsupported, "architecture '" + std::string(architecture) +
                                              "' is not supported; this build runs 'llama' models");
  }
  if (file.has("llama.expert_count")) {
    INFERD_ASSIGN(const uint64_t experts, file.get_uint("llama.expert_count"));
    if (experts != 0) return Error(ErrorCode::kUnsupported, "mixture-of-experts models ('llama.expert_count' is " +
                                                                std::to_string(experts) + ") are not supported");
  }
  LlamaConfig config;
  ModelShape& shape = config.shape;
  const formats::TensorInfo* embedding = file.find_tensor("token_embd.weight");
  if (embedding == nullptr) {
    return Error(ErrorCode::kDataCorrupt,
                 "tensor 'token_embd.weight' is missing: the file holds no model weights (a vocabulary alone?)");
  }
  if (embedding->dims[1] == 0 || embedding->dims[1] > kDimensionMax * 4) {
    return Error(ErrorCode::kDataCorrupt, "tensor 'token_embd.weight' has an impossible number of rows");
  }
  shape.vocabulary = static_cast<uint32_t>(embedding->dims[1]);
  INFERD_ASSIGN(config.context_tokens, read_dimension(file, "context_length", 1u << 28));
  INFERD_ASSIGN(shape.embedding, read_dimension(file, "embedding_length"));
  INFERD_ASSIGN(shape.layers, read_dimension(file, "block_count", 4096));
  INFERD_ASSIGN(shape.feed_forward, read_dimension(file, "feed_forward_length"));
  INFERD_ASSIGN(shape.heads, read_dimension(file, "attention.head_count", 4096));
  INFERD_ASSIGN(shape.kv_heads, read_dimension_or(file, "attention.head_count_kv", shape.heads));
  INFERD_ASSIGN(shape.head_dim, read_dimension_or(file, "attention.key_length", shape.embedding / shape.heads));
  INFERD_ASSIGN(const uint32_t value_dim, read_dimension_or(file, "attention.value_length", shape.head_dim));
  if (shape.head_dim == 0 || value_dim != shape.head_dim) {
    return Error(ErrorCode::kUnsupported, "keys and values of different size are not supported in 'llama' models");
  }
  INFERD_TRY(check_heads(shape));
  INFERD_ASSIGN(const double epsilon, file.get_float("llama.attention.layer_norm_rms_epsilon"));
  if (!(epsilon >= 0 && epsilon < 1)) {
    return Error(ErrorCode::kDataCorrupt, "'llama.attention.layer_norm_rms_epsilon' is not between 0 and 1");
  }
  config.norm_epsilon = static_cast<float>(epsilon);
  shape.query_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
  INFERD_TRY(read_rope(file, kArchitecture, config.context_tokens, shape));
  config.tied_output = file.find_tensor("output.weight") == nullptr;
  return config;
}

Result<LlamaModel> LlamaModel::load(const GgufFile& file, const LlamaConfig& config, WeightBuilder& weights) {
  LlamaModel model(config);
  const ModelShape& shape = config.shape;
  std::set<std::string> used{"rope_freqs.weight"};
  const auto matrix = [&](const std::string& name, uint32_t rows, uint32_t columns) {
    used.insert(name);
    return weights.matrix(name, rows, columns);
  };
  const auto vector = [&](const std::string& name, uint32_t count) {
    used.insert(name);
    return weights.vector(name, count);
  };
  const auto bias = [&](const std::string& name, uint32_t count) -> Result<VectorId> {
    if (file.find_tensor(name) == nullptr) return VectorId();
    return vector(name, count);
  };
  const uint32_t query_width = shape.heads * shape.head_dim, kv_width = shape.kv_heads * shape.head_dim;

  INFERD_ASSIGN(model.embedding_, matrix("token_embd.weight", shape.vocabulary, shape.embedding));
  model.output_ = model.embedding_;
  if (!config.tied_output) {
    INFERD_ASSIGN(model.output_, matrix("output.weight", shape.vocabulary, shape.embedding));
  }
  INFERD_ASSIGN(model.output_norm_, vector("output_norm.weight", shape.embedding));
  model.layers_.resize(shape.layers);
  for (uint32_t i = 0; i < shape.layers; ++i) {
    Layer& layer = model.layers_[i];
    const std::string block = "blk." + std::to_string(i) + ".";
    INFERD_ASSIGN(layer.attention_norm, vector(block + "attn_norm.weight", shape.embedding));
    INFERD_ASSIGN(layer.query, matrix(block + "attn_q.weight", query_width, shape.embedding));
    INFERD_ASSIGN(layer.key, matrix(block + "attn_k.weight", kv_width, shape.embedding));
    INFERD_ASSIGN(layer.value, matrix(block + "attn_v.weight", kv_width, shape.embedding));
    INFERD_ASSIGN(layer.output, matrix(block + "attn_output.weight", shape.embedding, query_width));
    INFERD_ASSIGN(layer.query_bias, bias(block + "attn_q.bias", query_width));
    INFERD_ASSIGN(layer.key_bias, bias(block + "attn_k.bias", kv_width));
    INFERD_ASSIGN(layer.value_bias, bias(block + "attn_v.bias", kv_width));
    INFERD_ASSIGN(layer.output_bias, bias(block + "attn_output.bias", shape.embedding));
    INFERD_ASSIGN(layer.feed_forward_norm, vector(block + "ffn_norm.weight", shape.embedding));
    INFERD_ASSIGN(layer.gate, matrix(block + "ffn_gate.weight", shape.feed_forward, shape.embedding));
    INFERD_ASSIGN(layer.up, matrix(block + "ffn_up.weight", shape.feed_forward, shape.embedding));
    INFERD_ASSIGN(layer.down, matrix(block + "ffn_down.weight", shape.embedding, shape.feed_forward));
    INFERD_ASSIGN(layer.gate_bias, bias(block + "ffn_gate.bias", shape.feed_forward));
    INFERD_ASSIGN(layer.up_bias, bias(block + "ffn_up.bias", shape.feed_forward));
    INFERD_ASSIGN(layer.down_bias, bias(block + "ffn_down.bias", shape.embedding));
  }
  for (const formats::TensorInfo& tensor : file.tensors()) {
    if (used.count(tensor.name) != 0 || tensor.name.ends_with(".rope_freqs.weight")) continue;
    return Error(ErrorCode::kUnsupported, "tensor '" + tensor.name +
                                              "' is not part of the llama family as this build knows it; running "
                                              "the model without it would give wrong answers");
  }
  return model;
}

void LlamaModel::forward(Ops& ops) const {
  const float epsilon = config_.norm_epsilon;
  ops.embed(embedding_);
  uint32_t index = 0;
  for (const Layer& layer : layers_) {
    const std::array<Product, 3> attention{{{layer.query, Slot::kQuery, layer.query_bias},
                                            {layer.key, Slot::kKey, layer.key_bias},
                                            {layer.value, Slot::kValue, layer.value_bias}}};
    ops.norm_products(layer.attention_norm, epsilon, attention);
    ops.rope_store(index);
    ops.attention(index);
    ops.product_add(Slot::kAttention, layer.output, layer.output_bias);
    const std::array<Product, 2> feed_forward{
        {{layer.gate, Slot::kGate, layer.gate_bias}, {layer.up, Slot::kUp, layer.up_bias}}};
    ops.norm_products(layer.feed_forward_norm, epsilon, feed_forward);
    ops.gated_product_add(layer.down, layer.down_bias);
    ++index;
  }
  ops.logits(output_norm_, epsilon, output_);
}

}  // namespace inferd::engine
