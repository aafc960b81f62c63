#include "daemon/model_loading.h"

#include "formats/gguf.h"
#include "formats/gguf_vocabulary.h"
#include "ipc/region.h"
#include "ipc/wire.h"
#include "scheduler/request.h"
#include "text/text_tables.h"

namespace inferd::daemon {

namespace {

// The client's own stop tokens and the model's share the scheduler's room.
constexpr size_t kEndTokensMax = scheduler::kStopTokensMax - ipc::kStopTokensMax;

Result<void> read_text(const std::string& path, LoadedEverything& loaded) {
  INFERD_ASSIGN(const formats::GgufFile file, formats::GgufFile::open(path));
  INFERD_ASSIGN(const Vocabulary vocabulary, formats::read_vocabulary(file));
  INFERD_ASSIGN(const std::vector<uint8_t> tables, build_text_tables(vocabulary));
  INFERD_ASSIGN(loaded.text_tables,
                ipc::publish_immutable("inferd-text", std::as_bytes(std::span(tables))));
  loaded.text_tables_bytes = tables.size();
  loaded.has_chat_template = !vocabulary.chat_template.empty();
  loaded.bos = vocabulary.bos;
  loaded.eos = vocabulary.eos;
  loaded.end_of_generation = vocabulary.end_of_generation;
  if (loaded.end_of_generation.size() > kEndTokensMax) {
    return Error(ErrorCode::kUnsupported,
                 "the model has " + std::to_string(loaded.end_of_generation.size()) +
                     " tokens that end an answer; this version handles at most " +
                     std::to_string(kEndTokensMax));
  }
  return {};
}

}  // namespace

Result<LoadedEverything> load_everything(const Config& config) {
  INFERD_CHECK(!config.models.empty());
  const std::string& path = config.models.front().path;
  LoadedEverything loaded;
  if (const auto text = read_text(path, loaded); !text) {
    return text.error().message().find(path) == std::string::npos
               ? text.error().with_context(path)
               : text.error();
  }
  engine::EngineOptions options;
  options.threads = config.cpu.threads;
  options.isa = config.cpu.isa;
  options.step_tokens_max = config.scheduler.step_tokens;
  options.step_logits_max = config.scheduler.max_sequences;
  INFERD_ASSIGN(loaded.model, engine::load_model(path, options));
  return loaded;
}

}  // namespace inferd::daemon
