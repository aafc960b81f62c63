// The engine: one loaded model, its KV pages and the kernels, behind an interface that the daemon and
// the benchmarks use and that a backend (CPU, CUDA) implements.
// Owner: daemon/ or bench/ through load_engine(). Threads: the engine thread only, except info() and
// text_source(), which any thread may call. Must not know clients, rings or policies.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "scheduler/batch_plan.h"

namespace inferd::engine {

// Facts about a loaded model that its users need.
struct ModelInfo {
  std::string name;               // general.name, else the file's stem
  std::string architecture;       // "llama"
  std::string quantization;       // dominant weight type, as llama.cpp names it: "Q4_1"
  std::string path;
  uint32_t vocabulary = 0;        // tokens
  uint32_t context_tokens = 0;    // longest sequence that the model was trained for
  uint32_t layers = 0;
  uint32_t embedding = 0;         // width of the residual stream
  uint64_t parameters = 0;
  Bytes file_tensor_bytes;        // bytes of all tensors in the file
  Bytes weight_bytes;             // bytes of the weights in use (repacked)
  Bytes page_bytes;               // bytes of one KV page (16 tokens, all layers of the group)
  std::string numerics_id;        // hex digest: kernels, instruction set, KV layout and types
  std::string content_id;         // hex digest of the model file's bytes
};

struct EngineOptions {
  // Worker threads including the caller; 0 takes the processors that this process may run on.
  uint32_t threads = 0;
  // "auto", "portable", "avx2", "avx512", "avx512vnni", "avx512bf16". "auto" never takes the last, which rounds
  // the inputs of BF16 weights to bf16.
  std::string isa = "auto";
  // Physical pages that the KV arena provides; address space only until a page is written.
  PageCount pages{0};
  // Upper bounds of one step; run() refuses nothing within them and allocates nothing.
  uint32_t step_tokens_max = 512;
  uint32_t step_logits_max = 64;
};

// Counters for tests, benchmarks and `inferctl`. Monotonic since load.
struct EngineCounters {
  uint64_t steps = 0;
  uint64_t tokens = 0;
  // Passes of products over whole weight matrices: one per matrix and step, whatever the batch. Counted where
  // a thread takes the rows that it multiplies with, not where a product is called.
  uint64_t weight_reads = 0;
  uint64_t weight_bytes_read = 0;
};

class Engine {
 public:
  virtual ~Engine() = default;

  virtual const ModelInfo& info() const noexcept = 0;

  // Runs one step. plan.token_count <= step_tokens_max, plan.logits_count <= step_logits_max.
  // Returns f32 logits, [plan.logits_count, vocabulary], CPU, in the order of the items and, within an
  // item, of its tokens; owned by the engine, valid until the next run(). The same sequence of tokens
  // gives the same bits whatever else is in the plan, however it was cut into steps.
  // Blocks until done. A plan outside the bounds is a bug of the caller (INFERD_CHECK).
  virtual std::span<const float> run(const scheduler::BatchPlan& plan) = 0;

  // Tells the engine that a page was handed out and will be written from its first slot. A page must
  // be announced before the first step that writes it, so that slots not yet written read as zero.
  virtual void page_taken(PageId page) = 0;

  // Gives the memory behind a free page back to the operating system (its content is lost).
  virtual void page_released(PageId page) = 0;

  // The page's content as info().page_bytes bytes, which mean something to an engine of the same numerics_id
  // only; and such bytes back into a page that was announced. Between two steps.
  virtual void save_page(PageId page, std::span<std::byte> out) const = 0;
  virtual void restore_page(PageId page, std::span<const std::byte> content) = 0;

  virtual EngineCounters counters() const noexcept = 0;
};

// Pages that `pool_bytes` provide for a model whose page takes `page_bytes`.
PageCount pages_in(Bytes pool_bytes, Bytes page_bytes) noexcept;

// A model file that was read and checked but whose pool is not yet decided: the daemon looks at info()
// (page_bytes above all) to size the pool, then starts the engine.
class LoadedModel {
 public:
  virtual ~LoadedModel() = default;
  virtual const ModelInfo& info() const noexcept = 0;
  // Starts an engine on the CPU over these weights. May be called once. `options.threads` and
  // `options.isa` were fixed when the model was loaded and are ignored here.
  virtual Result<std::unique_ptr<Engine>> start(const EngineOptions& options) = 0;
};

// Reads, checks and repacks a GGUF model for the CPU. Blocks for as long as reading the file takes.
// Errors: kNotFound, kIo, kDataCorrupt (not a valid GGUF; the sentence names tensor or key),
// kUnsupported (another architecture, a tensor type outside the list, an `isa` this CPU lacks).
Result<std::unique_ptr<LoadedModel>> load_model(const std::string& path, const EngineOptions& options);

}  // namespace inferd::engine
