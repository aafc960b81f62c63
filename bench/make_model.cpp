#include "bench/make_model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cmath>
#include <span>
#include <string_view>
#include <vector>

#include "base/prng.h"
#include "formats/gguf_writer.h"
#include "formats/half.h"

namespace inferd::bench {

namespace {

using formats::GgufWriter;
using formats::TensorType;

constexpr double kRootThree = 1.7320508075688772;

Error refuse(std::string message) { return Error(ErrorCode::kInvalidArgument, std::move(message)); }

uint64_t fnv1a64(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

void store(uint8_t* at, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) at[i] = static_cast<uint8_t>(value >> (8 * i));
}
void store_f16(uint8_t* at, double value) {
  store(at, formats::f32_to_f16(static_cast<float>(value)), 2);
}

// 6-bit scales and minima in the 12 bytes that Q4_K and Q5_K share; see formats/dequantize.cpp.
void store_scale_min(uint8_t* packed, int j, uint32_t scale, uint32_t minimum) {
  if (j < 4) {
    packed[j] = static_cast<uint8_t>((packed[j] & 0xC0) | scale);
    packed[j + 4] = static_cast<uint8_t>((packed[j + 4] & 0xC0) | minimum);
    return;
  }
  packed[j + 4] = static_cast<uint8_t>((scale & 0xF) | ((minimum & 0xF) << 4));
  packed[j - 4] = static_cast<uint8_t>((packed[j - 4] & 0x3F) | ((scale >> 4) << 6));
  packed[j] = static_cast<uint8_t>((packed[j] & 0x3F) | ((minimum >> 4) << 6));
}

void fill(Prng& prng, uint8_t* at, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 8) store(at + i, prng.next(), std::min<size_t>(8, bytes - i));
}

// The super-block of Q4_K (levels 16) and Q5_K (levels 32): scales so that the quants' spread is
// `deviation`, minima that centre them, give or take 3 of 64.
void k_block(Prng& prng, double deviation, int levels, uint8_t* block, size_t bytes) {
  const double spread = std::sqrt((levels * levels - 1) / 12.0);
  const double scale = deviation / (spread * 32) * (0.5 + prng.uniform());
  std::array<uint32_t, 8> scales{}, minima{};
  for (size_t j = 0; j < 8; ++j) {
    scales[j] = 16 + static_cast<uint32_t>(32 * prng.uniform());
    minima[j] = scales[j] - 3 + static_cast<uint32_t>(7 * prng.uniform());
  }
  fill(prng, block, bytes);
  store_f16(block, scale);
  store_f16(block + 2, scale * (levels - 1) / 2);
  std::fill_n(block + 4, 12, uint8_t{0});
  for (int j = 0; j < 8; ++j) {
    const auto at = static_cast<size_t>(j);
    store_scale_min(block + 4, j, scales[at], minima[at]);
  }
}

void q6_k_block(Prng& prng, double deviation, uint8_t* block) {
  const double scale = deviation / (std::sqrt(4095 / 12.0) * 80) * (0.5 + prng.uniform());
  std::array<int, 16> scales{};
  for (int& sub : scales) {
    const int size = 32 + static_cast<int>(96 * prng.uniform());
    sub = prng.uniform() < 0.5 ? -size : size;
  }
  fill(prng, block, 208);
  for (size_t j = 0; j < 16; ++j) block[192 + j] = static_cast<uint8_t>(scales[j]);
  store_f16(block + 208, scale);
}

// Types of 32 elements: a scale of either sign (without a minimum) or a scale and a minimum.
void small_block(Prng& prng, double deviation, int levels, bool minimum, uint8_t* block,
                 size_t bytes) {
  const double spread = std::sqrt((levels * levels - 1) / 12.0);
  const double scale = deviation / spread * (0.5 + prng.uniform());
  const double second = prng.uniform();
  fill(prng, block, bytes);
  if (minimum) {
    store_f16(block, scale);
    store_f16(block + 2, -scale * (levels - 1) / 2 * (0.9 + 0.2 * second));
  } else {
    store_f16(block, second < 0.5 ? -scale : scale);
  }
}

// One block of `type`. The uniforms are drawn in the order of the code, then all bytes of the
// block, of which the scales' are written over.
void make_block(Prng& prng, TensorType type, double deviation, uint8_t* block) {
  const size_t bytes = formats::tensor_type_traits(type)->block_bytes;
  const auto plain = [&] {
    return static_cast<float>((2 * prng.uniform() - 1) * kRootThree * deviation);
  };
  switch (type) {
    case TensorType::kF32:
      return store(block, std::bit_cast<uint32_t>(plain()), 4);
    case TensorType::kF16:
      return store(block, formats::f32_to_f16(plain()), 2);
    case TensorType::kBF16:
      return store(block, formats::f32_to_bf16(plain()), 2);
    case TensorType::kQ8_0:
      return small_block(prng, deviation, 256, false, block, bytes);
    case TensorType::kQ4_0:
      return small_block(prng, deviation, 16, false, block, bytes);
    case TensorType::kQ4_1:
      return small_block(prng, deviation, 16, true, block, bytes);
    case TensorType::kQ5_0:
      return small_block(prng, deviation, 32, false, block, bytes);
    case TensorType::kQ5_1:
      return small_block(prng, deviation, 32, true, block, bytes);
    case TensorType::kQ4_K:
      return k_block(prng, deviation, 16, block, bytes);
    case TensorType::kQ5_K:
      return k_block(prng, deviation, 32, block, bytes);
    case TensorType::kQ6_K:
      return q6_k_block(prng, deviation, block);
    case TensorType::kQ8_1:
    case TensorType::kQ2_K:
    case TensorType::kQ3_K:
    case TensorType::kQ8_K:
      break;
  }
  INFERD_CHECK(!"a type that cannot be written");
}

// llama.cpp's number for "mostly this type" (general.file_type).
uint32_t file_type(const MakeModelOptions& options) {
  const bool mixed = options.mixed_type.has_value();
  switch (options.type) {
    case TensorType::kF16:
      return 1;
    case TensorType::kQ4_0:
      return 2;
    case TensorType::kQ4_1:
      return 3;
    case TensorType::kQ8_0:
      return 7;
    case TensorType::kQ5_0:
      return 8;
    case TensorType::kQ5_1:
      return 9;
    case TensorType::kQ4_K:
      return mixed ? 15 : 14;
    case TensorType::kQ5_K:
      return mixed ? 17 : 16;
    case TensorType::kQ6_K:
      return 18;
    case TensorType::kBF16:
      return 32;
    default:
      return 0;
  }
}

class ModelMaker {
 public:
  explicit ModelMaker(const MakeModelOptions& options) : options_(options) {
    if (options_.head_dim == 0 && options_.heads > 0) {
      options_.head_dim = options_.embedding / options_.heads;
    }
    if (options_.rope_dimensions == 0) options_.rope_dimensions = options_.head_dim;
    if (options_.rope_original_context == 0 && options_.rope_factor >= 1) {
      options_.rope_original_context =
          static_cast<uint32_t>(static_cast<float>(options_.context) / options_.rope_factor);
    }
  }

  Result<void> write(const std::string& path) {
    INFERD_TRY(check());
    add_metadata();
    INFERD_TRY(add_vocabulary());
    add_tensors();
    return writer_.write(path, [this](size_t tensor, uint64_t offset, std::span<uint8_t> bytes) {
      return fill_tensor(tensor, offset, bytes);
    });
  }

 private:
  enum class Kind { kMatrix, kNorm, kBias, kRopeFactors };
  struct Plan {
    Kind kind;
    double deviation;
  };

  Result<void> check() const;
  Result<void> check_rows(uint32_t row, std::string_view option, TensorType type) const;
  void add_metadata();
  void add_rope();
  Result<void> add_vocabulary();
  void add_tensors();
  void add_matrix(const std::string& name, TensorType type, uint64_t row, uint64_t rows,
                  double gain);
  void add_vector(const std::string& name, uint64_t elements, Kind kind);
  Result<void> fill_tensor(size_t index, uint64_t offset, std::span<uint8_t> bytes);
  double rope_factor(uint64_t pair) const;

  MakeModelOptions options_;
  GgufWriter writer_;
  std::vector<Plan> plans_;
  Prng prng_{0};
};

Result<void> ModelMaker::check_rows(uint32_t row, std::string_view option, TensorType type) const {
  const formats::TensorTypeTraits* traits = formats::tensor_type_traits(type);
  if (traits == nullptr) return refuse(formats::tensor_type_name(type) + " cannot be made");
  if (row == 0 || row % traits->block_elements != 0) {
    return refuse(std::string(option) + " is " + std::to_string(row) + "; type " +
                  std::string(traits->name) + " needs a multiple of " +
                  std::to_string(traits->block_elements));
  }
  return {};
}

Result<void> ModelMaker::check() const {
  const MakeModelOptions& o = options_;
  if (o.layers == 0 || o.context == 0) return refuse("layers and context must be at least 1");
  if (o.kv_heads == 0 || o.heads % o.kv_heads != 0 || o.heads == 0) {
    return refuse("heads is " + std::to_string(o.heads) + "; a multiple of kv_heads, " +
                  std::to_string(o.kv_heads) + ", was expected");
  }
  if (o.head_dim == 0 || o.head_dim % 2 != 0) return refuse("head_dim must be even");
  if (o.rope_dimensions % 2 != 0 || o.rope_dimensions > o.head_dim) {
    return refuse("rope_dimensions must be even and at most head_dim");
  }
  if (o.rope_scaling != RopeScaling::kNone && !(o.rope_factor >= 1)) {
    return refuse("rope_factor must be at least 1");
  }
  for (const TensorType type : {o.type, o.mixed_type.value_or(o.type)}) {
    INFERD_TRY(check_rows(o.embedding, "embedding", type));
    INFERD_TRY(check_rows(o.feed_forward, "feed_forward", type));
    INFERD_TRY(check_rows(o.heads * o.head_dim, "heads * head_dim", type));
  }
  INFERD_TRY(check_rows(o.embedding, "embedding", o.embedding_type.value_or(o.type)));
  return check_rows(o.embedding, "embedding", o.output_type.value_or(o.type));
}

void ModelMaker::add_metadata() {
  const MakeModelOptions& o = options_;
  writer_.add_string("general.architecture", "llama");
  writer_.add_string("general.name", o.name);
  writer_.add<uint32_t>("general.file_type", file_type(o));
  writer_.add<uint32_t>("general.quantization_version", 2);
  writer_.add<uint32_t>("llama.block_count", o.layers);
  writer_.add<uint32_t>("llama.context_length", o.context);
  writer_.add<uint32_t>("llama.embedding_length", o.embedding);
  writer_.add<uint32_t>("llama.feed_forward_length", o.feed_forward);
  writer_.add<uint32_t>("llama.attention.head_count", o.heads);
  writer_.add<uint32_t>("llama.attention.head_count_kv", o.kv_heads);
  writer_.add<uint32_t>("llama.attention.key_length", o.head_dim);
  writer_.add<uint32_t>("llama.attention.value_length", o.head_dim);
  writer_.add<float>("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  writer_.add<uint32_t>("llama.vocab_size", o.vocabulary);
  writer_.add<uint32_t>("llama.rope.dimension_count", o.rope_dimensions);
  writer_.add<float>("llama.rope.freq_base", o.rope_base);
  add_rope();
}

void ModelMaker::add_rope() {
  const MakeModelOptions& o = options_;
  if (o.rope_scaling != RopeScaling::kLinear && o.rope_scaling != RopeScaling::kYarn) return;
  const bool yarn = o.rope_scaling == RopeScaling::kYarn;
  writer_.add_string("llama.rope.scaling.type", yarn ? "yarn" : "linear");
  writer_.add<float>("llama.rope.scaling.factor", o.rope_factor);
  writer_.add<uint32_t>("llama.rope.scaling.original_context_length", o.rope_original_context);
}

Result<void> ModelMaker::add_vocabulary() {
  INFERD_ASSIGN(const Vocabulary v,
                make_vocabulary(options_.vocabulary, options_.sentencepiece, options_.seed));
  std::vector<int32_t> types(v.types.size());
  std::transform(v.types.begin(), v.types.end(), types.begin(),
                 [](TokenType type) { return static_cast<int32_t>(type); });
  writer_.add_string("tokenizer.ggml.model", v.model);
  writer_.add_string("tokenizer.ggml.pre", v.pre);
  writer_.add_string_array("tokenizer.ggml.tokens", v.tokens);
  writer_.add_array<int32_t>("tokenizer.ggml.token_type", types);
  if (!v.scores.empty()) writer_.add_array<float>("tokenizer.ggml.scores", v.scores);
  if (!v.merges.empty()) writer_.add_string_array("tokenizer.ggml.merges", v.merges);
  writer_.add<uint32_t>("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(v.bos));
  writer_.add<uint32_t>("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(v.eos));
  writer_.add<uint32_t>("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(v.unknown));
  if (v.padding != kNoToken) {
    writer_.add<uint32_t>("tokenizer.ggml.padding_token_id", static_cast<uint32_t>(v.padding));
  }
  writer_.add<bool>("tokenizer.ggml.add_bos_token", v.add_bos);
  writer_.add<bool>("tokenizer.ggml.add_space_prefix", v.add_space_prefix);
  writer_.add_string("tokenizer.chat_template", v.chat_template);
  return {};
}

void ModelMaker::add_matrix(const std::string& name, TensorType type, uint64_t row, uint64_t rows,
                            double gain) {
  const std::array<uint64_t, 2> dims{row, rows};
  writer_.add_tensor(name, type, dims);
  plans_.push_back({Kind::kMatrix, gain / std::sqrt(static_cast<double>(row))});
}

void ModelMaker::add_vector(const std::string& name, uint64_t elements, Kind kind) {
  const std::array<uint64_t, 1> dims{elements};
  writer_.add_tensor(name, TensorType::kF32, dims);
  plans_.push_back({kind, 0});
}

void ModelMaker::add_tensors() {
  const MakeModelOptions& o = options_;
  const uint64_t query = uint64_t{o.heads} * o.head_dim, kv = uint64_t{o.kv_heads} * o.head_dim;
  if (o.rope_scaling == RopeScaling::kLlama3) {
    add_vector("rope_freqs.weight", o.rope_dimensions / 2, Kind::kRopeFactors);
  }
  add_matrix("token_embd.weight", o.embedding_type.value_or(o.type), o.embedding, o.vocabulary, 4);
  for (uint32_t layer = 0; layer < o.layers; ++layer) {
    const std::string at = "blk." + std::to_string(layer) + ".";
    const TensorType mixed = layer % 2 == 0 ? o.mixed_type.value_or(o.type) : o.type;
    add_vector(at + "attn_norm.weight", o.embedding, Kind::kNorm);
    add_matrix(at + "attn_q.weight", o.type, o.embedding, query, 1);
    add_matrix(at + "attn_k.weight", o.type, o.embedding, kv, 1);
    add_matrix(at + "attn_v.weight", mixed, o.embedding, kv, 1);
    add_matrix(at + "attn_output.weight", o.type, query, o.embedding, 2);
    add_vector(at + "ffn_norm.weight", o.embedding, Kind::kNorm);
    add_matrix(at + "ffn_gate.weight", o.type, o.embedding, o.feed_forward, 1);
    add_matrix(at + "ffn_up.weight", o.type, o.embedding, o.feed_forward, 1);
    add_matrix(at + "ffn_down.weight", mixed, o.feed_forward, o.embedding, 2);
    if (!o.biases) continue;
    add_vector(at + "attn_q.bias", query, Kind::kBias);
    add_vector(at + "attn_k.bias", kv, Kind::kBias);
    add_vector(at + "attn_v.bias", kv, Kind::kBias);
    add_vector(at + "attn_output.bias", o.embedding, Kind::kBias);
    add_vector(at + "ffn_gate.bias", o.feed_forward, Kind::kBias);
    add_vector(at + "ffn_up.bias", o.feed_forward, Kind::kBias);
    add_vector(at + "ffn_down.bias", o.embedding, Kind::kBias);
  }
  add_vector("output_norm.weight", o.embedding, Kind::kNorm);
  if (!o.tied) {
    add_matrix("output.weight", o.output_type.value_or(o.type), o.embedding, o.vocabulary, 2.5);
  }
}

// What llama 3's scaling divides the frequency of dimensions 2 * pair and 2 * pair + 1 by, with its
// low and high frequency factors 1 and 4. Source: the configuration of the published models.
double ModelMaker::rope_factor(uint64_t pair) const {
  constexpr double kTwoPi = 6.283185307179586, kLow = 1, kHigh = 4;
  const double exponent = 2.0 * static_cast<double>(pair) / options_.rope_dimensions;
  const double wavelength = kTwoPi * std::pow(static_cast<double>(options_.rope_base), exponent);
  const double turns = options_.rope_original_context / wavelength;
  if (turns > kHigh) return 1;
  if (turns < kLow) return options_.rope_factor;
  const double smooth = (turns - kLow) / (kHigh - kLow);
  return 1 / ((1 - smooth) / options_.rope_factor + smooth);
}

Result<void> ModelMaker::fill_tensor(size_t index, uint64_t offset, std::span<uint8_t> bytes) {
  const formats::TensorInfo& tensor = writer_.tensor(index);
  const Plan& plan = plans_[index];
  if (offset == 0) prng_ = Prng(options_.seed ^ fnv1a64(tensor.name));
  const uint64_t block = formats::tensor_type_traits(tensor.type)->block_bytes;
  for (uint64_t at = 0; at < bytes.size(); at += block) {
    uint8_t* out = bytes.data() + at;
    if (plan.kind == Kind::kMatrix) {
      make_block(prng_, tensor.type, plan.deviation, out);
      continue;
    }
    double value = 0;
    switch (plan.kind) {
      case Kind::kNorm:
        value = 0.75 + prng_.uniform() / 2;
        break;
      case Kind::kBias:
        value = prng_.uniform() - 0.5;
        break;
      case Kind::kRopeFactors:
        value = rope_factor((offset + at) / block);
        break;
      case Kind::kMatrix:
        break;  // above
    }
    store(out, std::bit_cast<uint32_t>(static_cast<float>(value)), 4);
  }
  return {};
}

}  // namespace

Result<void> make_model(const MakeModelOptions& options, const std::string& path) {
  return ModelMaker(options).write(path);
}

Result<formats::TensorType> parse_tensor_type(const std::string& name) {
  std::string upper = name;
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  constexpr std::array kTypes{TensorType::kF32,  TensorType::kF16,  TensorType::kBF16,
                              TensorType::kQ8_0, TensorType::kQ4_0, TensorType::kQ4_1,
                              TensorType::kQ5_0, TensorType::kQ5_1, TensorType::kQ4_K,
                              TensorType::kQ5_K, TensorType::kQ6_K};
  std::string list;
  for (const TensorType type : kTypes) {
    if (formats::tensor_type_name(type) == upper) return type;
    list += (list.empty() ? "" : ", ") + formats::tensor_type_name(type);
  }
  return refuse("'" + name + "' is no tensor type; one of " + list + " was expected");
}

}  // namespace inferd::bench
