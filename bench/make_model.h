// Generates models of the llama family with random weights in any of the tensor types that inferd
// reads, for tests and benchmarks: the right shapes and sane activations, no knowledge.
// Owner: bench (the engine's tests use it too). Pure function of its options; blocks on the disk.
//
// What is written follows from the options alone, by bits, on every machine. For a tensor called N:
//   Prng r(seed ^ fnv1a64(N)), then per block of the tensor, in the file's order:
//   F32, F16, BF16     one value: (2u - 1) * sqrt(3) * S, u = r.uniform(), rounded to the type
//   other types        the uniforms for its scales, in the order of make_block() in make_model.cpp;
//                      then the block's bytes from r.next(), low byte first, what is left of the
//                      last number thrown away (Q6_K: all but the last 2); then the scales over it
// S, the standard deviation, is gain / sqrt(row length): gain 1 for attn_q, attn_k, attn_v,
// ffn_gate, ffn_up; 2.5 for output; 4 for token_embd, 2 for attn_output and ffn_down (so that the
// layers, not the last token's own embedding, decide the next token when the output is tied). Norms
// are F32, 0.75 + u / 2; biases F32, u - 1/2.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/vocabulary.h"
#include "formats/gguf.h"

namespace inferd::bench {

enum class RopeScaling { kNone, kLinear, kLlama3, kYarn };

struct MakeModelOptions {
  uint64_t seed = 1;
  uint32_t layers = 2;
  uint32_t embedding = 256;
  uint32_t heads = 4;
  uint32_t kv_heads = 2;
  uint32_t head_dim = 0;  // 0: embedding / heads
  uint32_t feed_forward = 512;
  uint32_t vocabulary = 512;
  uint32_t context = 2048;
  bool tied = false;    // no output.weight: token_embd.weight is used
  bool biases = false;  // every product of a layer has one

  formats::TensorType type = formats::TensorType::kF32;
  std::optional<formats::TensorType> embedding_type;  // absent: type
  std::optional<formats::TensorType> output_type;     // absent: type
  // attn_v and ffn_down of every second layer, beginning with the first, as the mixtures "…_M" of
  // K-quants have; absent: type.
  std::optional<formats::TensorType> mixed_type;

  float rope_base = 10000;
  RopeScaling rope_scaling = RopeScaling::kNone;
  float rope_factor = 4;
  uint32_t rope_original_context = 0;  // 0: context / rope_factor
  uint32_t rope_dimensions = 0;        // of a head, that are rotated; 0: all

  bool sentencepiece = false;  // a "llama" vocabulary instead of a byte-level "gpt2" one
  std::string name = "random";
};

// Writes the model. Errors: kInvalidArgument, naming the option and what it must be; kIo.
Result<void> make_model(const MakeModelOptions& options, const std::string& path);

// The vocabulary that make_model writes: bytes, special tokens, pieces of common words, and then
// random joins of those until there are `size`. Errors: kInvalidArgument if size is below
// kMadeVocabularyMin.
inline constexpr uint32_t kMadeVocabularyMin = 384;
Result<Vocabulary> make_vocabulary(uint32_t size, bool sentencepiece, uint64_t seed);

// "Q4_K" or "q4_k" to a type that can be read. Errors: kInvalidArgument with the list.
Result<formats::TensorType> parse_tensor_type(const std::string& name);

}  // namespace inferd::bench
