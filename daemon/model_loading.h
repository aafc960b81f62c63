// Reads everything that the daemon needs from a model file: weights, vocabulary, text tables.
// Owner: daemon, at start-up. load_everything() blocks for as long as reading takes, on any one
// thread. Must not know clients.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "daemon/config.h"
#include "engine/engine.h"

namespace inferd::daemon {

struct LoadedEverything {
  std::unique_ptr<engine::LoadedModel> model;
  UniqueFd text_tables;  // read-only, immutable: what clients map
  uint64_t text_tables_bytes = 0;
  bool has_chat_template = false;
  TokenId bos = kNoToken;
  TokenId eos = kNoToken;
  std::vector<TokenId> end_of_generation;
};

// Errors: those of formats/, text/ and engine/, with the file's name in front.
Result<LoadedEverything> load_everything(const Config& config);

}  // namespace inferd::daemon
