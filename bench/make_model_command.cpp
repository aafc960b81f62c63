#include <cstdio>
#include <string>

#include "bench/command.h"
#include "bench/make_model.h"
#include "bench/options.h"

namespace inferd::bench {

namespace {

struct Texts {
  std::string output, type = "f32", embedding_type, output_type, rope = "none";
  uint32_t seed = 1;
  double rope_base = 10000, rope_factor = 4;
};

Result<RopeScaling> parse_rope(const std::string& name) {
  if (name == "none") return RopeScaling::kNone;
  if (name == "linear") return RopeScaling::kLinear;
  if (name == "llama3") return RopeScaling::kLlama3;
  if (name == "yarn") return RopeScaling::kYarn;
  return Error(ErrorCode::kInvalidArgument,
               "--rope '" + name + "': none, linear, llama3 or yarn was expected");
}

// "q4_k_m" and "q5_k_m" as llama.cpp mixes them: attn_v, ffn_down and the output partly in Q6_K.
Result<void> read_types(const Texts& texts, MakeModelOptions& options) {
  std::string type = texts.type;
  const bool mixed = type.size() == 6 && (type.ends_with("_m") || type.ends_with("_M"));
  if (mixed) type.resize(4);
  INFERD_ASSIGN(options.type, parse_tensor_type(type));
  if (mixed) options.mixed_type = options.output_type = formats::TensorType::kQ6_K;
  if (!texts.embedding_type.empty()) {
    INFERD_ASSIGN(options.embedding_type, parse_tensor_type(texts.embedding_type));
  }
  if (!texts.output_type.empty()) {
    INFERD_ASSIGN(options.output_type, parse_tensor_type(texts.output_type));
  }
  return {};
}

}  // namespace

Result<int> run_make_model_command(Arguments arguments) {
  MakeModelOptions made;
  Texts texts;
  Options options("make-model", "Writes a GGUF model of the llama family with random weights.");
  options.add("output", &texts.output, "file to write (required)");
  options.add("type", &texts.type,
              "weights: f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 q4_k q5_k q6_k q4_k_m q5_k_m");
  options.add("embedding-type", &texts.embedding_type, "type of the embeddings, if another");
  options.add("output-type", &texts.output_type, "type of the output matrix, if another");
  options.add("tied", &made.tied, "no output matrix: the embeddings serve as one");
  options.add("biases", &made.biases, "a bias for every product of a layer");
  options.add("layers", &made.layers, "layers");
  options.add("embedding", &made.embedding, "width of the residual stream");
  options.add("heads", &made.heads, "attention heads");
  options.add("kv-heads", &made.kv_heads, "heads of keys and values");
  options.add("head-dim", &made.head_dim, "width of a head (0: embedding / heads)");
  options.add("feed-forward", &made.feed_forward, "width of the feed-forward layer");
  options.add("vocabulary", &made.vocabulary, "tokens, at least 384");
  options.add("context", &made.context, "longest sequence the model claims");
  options.add("rope", &texts.rope, "position scaling: none, linear, llama3, yarn");
  options.add("rope-base", &texts.rope_base, "base of the rotary frequencies");
  options.add("rope-factor", &texts.rope_factor, "factor of the scaling");
  options.add("rope-original-context", &made.rope_original_context,
              "context before scaling (0: context / factor)");
  options.add("rope-dimensions", &made.rope_dimensions,
              "dimensions of a head that are rotated (0: all)");
  options.add("sentencepiece", &made.sentencepiece,
              "a SentencePiece vocabulary, not a byte-level one");
  options.add("name", &made.name, "general.name");
  options.add("seed", &texts.seed, "seed of everything");
  INFERD_ASSIGN(const bool go_on, options.parse(arguments));
  if (!go_on) return 0;
  if (texts.output.empty()) {
    return Error(ErrorCode::kInvalidArgument, "name the file to write: --output FILE.gguf");
  }
  INFERD_TRY(read_types(texts, made));
  INFERD_ASSIGN(made.rope_scaling, parse_rope(texts.rope));
  made.rope_base = static_cast<float>(texts.rope_base);
  made.rope_factor = static_cast<float>(texts.rope_factor);
  made.seed = texts.seed;
  INFERD_TRY(make_model(made, texts.output));
  std::printf("%s\n", texts.output.c_str());
  return 0;
}

}  // namespace inferd::bench
