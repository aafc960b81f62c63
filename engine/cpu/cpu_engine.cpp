// load_model for the CPU: file -> checked configuration -> packed weights -> engine.
#include <sched.h>

#include <algorithm>
#include <array>
#include <map>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/check.h"
#include "base/unique_fd.h"
#include "engine/cpu/cpu_backend.h"
#include "engine/cpu/isa.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/kv_arena.h"
#include "engine/cpu/weights.h"
#include "engine/cpu/worker_pool.h"
#include "engine/engine.h"
#include "engine/models/llama.h"

namespace inferd::engine {

namespace {

using cpu::CpuBackend;
using cpu::KvArena;
using cpu::Weights;
using cpu::WorkerPool;
using formats::GgufFile;
using formats::TensorInfo;

// Raised whenever a kernel, the packed layout or the page layout changes what bits come out.
constexpr int kNumericsVersion = 2;
constexpr size_t kDigestPieceBytes = 4u << 20;

std::string hex(XXH128_hash_t hash) {
  std::array<char, 33> text{};
  std::snprintf(text.data(), text.size(), "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text.data();
}

// Digest of the whole file: pieces of 4 MiB are hashed by the pool, then their hashes in order.
Result<std::string> content_digest(const std::string& path, uint64_t file_bytes, WorkerPool& pool) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return errno_error("cannot open '" + path + "'", errno);
  const auto pieces = static_cast<uint32_t>((file_bytes + kDigestPieceBytes - 1) / kDigestPieceBytes);
  std::vector<XXH128_hash_t> hashes(pieces);
  std::vector<std::vector<uint8_t>> buffers(pool.threads(), std::vector<uint8_t>(kDigestPieceBytes));
  std::atomic<bool> short_read{false};
  pool.run(pieces, [&](uint32_t piece, uint32_t thread) {
    const uint64_t offset = uint64_t{piece} * kDigestPieceBytes;
    const size_t size = std::min<uint64_t>(kDigestPieceBytes, file_bytes - offset);
    size_t done = 0;
    while (done < size) {
      const ssize_t got = ::pread(fd.get(), buffers[thread].data() + done, size - done,
                                  static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        short_read = true;
        return;
      }
      done += static_cast<size_t>(got);
    }
    hashes[piece] = XXH3_128bits(buffers[thread].data(), size);
  });
  if (short_read) return Error(ErrorCode::kIo, "'" + path + "' could not be read to its end; did it change meanwhile?");
  return hex(XXH3_128bits(hashes.data(), hashes.size() * sizeof(XXH128_hash_t)));
}

uint32_t available_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<uint32_t>(std::max(1, CPU_COUNT(&set)));
}

std::string numerics_id(cpu::Isa isa, const ModelShape& shape) {
  const cpu::KvLayout layout = cpu::kv_layout(shape);
  const std::string text = "numerics " + std::to_string(kNumericsVersion) + " cpu " + std::string(cpu::isa_name(isa)) +
                           " kv f16 page " + std::to_string(kPageTokens) + " head " +
                           std::to_string(layout.head_dim) + " block " + std::to_string(cpu::kAttentionBlock) +
                           " split " + std::to_string(cpu::kAttentionSplit);
  return hex(XXH3_128bits(text.data(), text.size()));
}

class CpuEngine final : public Engine {
 public:
  CpuEngine(ModelInfo info, LlamaModel model, Weights weights, std::unique_ptr<WorkerPool> pool,
            const cpu::Kernels& kernels, KvArena arena, const EngineOptions& options)
      : info_(std::move(info)),
        model_(std::move(model)),
        weights_(std::move(weights)),
        pool_(std::move(pool)),
        arena_(std::move(arena)),
        backend_(model_.config().shape, kernels, *pool_, weights_, arena_, options.step_tokens_max,
                 options.step_logits_max) {}

  const ModelInfo& info() const noexcept override { return info_; }

  std::span<const float> run(const scheduler::BatchPlan& plan) override {
    backend_.begin(plan);
    model_.forward(backend_);
    return backend_.logits_rows();
  }

  void page_taken(PageId page) override { arena_.take(page); }
  void page_released(PageId page) override { arena_.give_back(page); }
  void save_page(PageId page, std::span<std::byte> out) const override { arena_.save(page, out); }
  void restore_page(PageId page, std::span<const std::byte> content) override {
    arena_.restore(page, content);
  }
  EngineCounters counters() const noexcept override { return backend_.counters(); }

 private:
  ModelInfo info_;
  LlamaModel model_;
  Weights weights_;
  std::unique_ptr<WorkerPool> pool_;
  KvArena arena_;
  CpuBackend backend_;
};

class CpuLoadedModel final : public LoadedModel {
 public:
  CpuLoadedModel(ModelInfo info, LlamaModel model, Weights weights, std::unique_ptr<WorkerPool> pool,
                 const cpu::Kernels& kernels)
      : info_(std::move(info)),
        model_(std::move(model)),
        weights_(std::move(weights)),
        pool_(std::move(pool)),
        kernels_(kernels) {}

  const ModelInfo& info() const noexcept override { return info_; }

  Result<std::unique_ptr<Engine>> start(const EngineOptions& options) override {
    INFERD_CHECK(pool_ != nullptr);
    if (options.step_tokens_max == 0 || options.step_logits_max == 0) {
      return Error(ErrorCode::kInvalidArgument, "a step needs room for at least one token and one row of logits");
    }
    INFERD_ASSIGN(KvArena arena, KvArena::create(cpu::kv_layout(model_.config().shape), options.pages));
    return std::unique_ptr<Engine>(std::make_unique<CpuEngine>(info_, std::move(model_), std::move(weights_),
                                                               std::move(pool_), kernels_, std::move(arena), options));
  }

 private:
  ModelInfo info_;
  LlamaModel model_;
  Weights weights_;
  std::unique_ptr<WorkerPool> pool_;
  const cpu::Kernels& kernels_;
};

// The type that most of the matrices' bytes have.
std::string dominant_type(const GgufFile& file) {
  std::map<std::string, uint64_t> bytes;
  for (const TensorInfo& tensor : file.tensors()) {
    if (tensor.dim_count >= 2 && tensor.name.starts_with("blk.")) {
      bytes[formats::tensor_type_name(tensor.type)] += tensor.bytes;
    }
  }
  std::string best = "none";
  uint64_t most = 0;
  for (const auto& [name, count] : bytes) {
    if (count > most) {
      best = name;
      most = count;
    }
  }
  return best;
}

ModelInfo describe(const GgufFile& file, const std::string& path, const LlamaConfig& config) {
  ModelInfo info;
  const auto name = file.get_string("general.name");
  info.name = name.ok() && !name.value().empty() ? std::string(name.value()) : std::filesystem::path(path).stem().string();
  info.architecture = "llama";
  info.quantization = dominant_type(file);
  info.path = path;
  info.vocabulary = config.shape.vocabulary;
  info.context_tokens = config.context_tokens;
  info.layers = config.shape.layers;
  info.embedding = config.shape.embedding;
  for (const TensorInfo& tensor : file.tensors()) {
    info.parameters += tensor.dims[0] * tensor.dims[1] * tensor.dims[2] * tensor.dims[3];
    info.file_tensor_bytes += Bytes(tensor.bytes);
  }
  info.page_bytes = Bytes(cpu::kv_layout(config.shape).page_bytes());
  return info;
}

}  // namespace

PageCount pages_in(Bytes pool_bytes, Bytes page_bytes) noexcept {
  if (page_bytes.value == 0) return PageCount(0);
  return PageCount(static_cast<uint32_t>(std::min<uint64_t>(pool_bytes.value / page_bytes.value, kNoPage.value - 1)));
}

Result<std::unique_ptr<LoadedModel>> load_model(const std::string& path, const EngineOptions& options) {
  INFERD_ASSIGN(const cpu::Isa isa, cpu::parse_isa(options.isa));
  INFERD_ASSIGN(const GgufFile file, GgufFile::open(path));
  const auto in_file = [&](const Error& error) { return error.with_context("'" + path + "'"); };
  auto config = LlamaModel::read_config(file);
  if (!config) return in_file(config.error());
  cpu::CpuWeightBuilder builder(file, cpu::isa_lanes(isa));
  auto model = LlamaModel::load(file, *config, builder);
  if (!model) return in_file(model.error());
  auto pool = std::make_unique<WorkerPool>(options.threads == 0 ? available_processors() : options.threads);
  auto weights = builder.build(*pool);
  if (!weights) return in_file(weights.error());
  ModelInfo info = describe(file, path, *config);
  info.weight_bytes = weights->bytes();
  info.numerics_id = numerics_id(isa, config->shape);
  INFERD_ASSIGN(info.content_id, content_digest(path, file.file_bytes(), *pool));
  return std::unique_ptr<LoadedModel>(std::make_unique<CpuLoadedModel>(
      std::move(info), std::move(model).value(), std::move(weights).value(), std::move(pool), cpu::kernels_for(isa)));
}

}  // namespace inferd::engine
