// Everything textual about the connected model: tokenizer, decoder and chat template over the
// tables that the daemon shares. Owner: client_lib. Any thread, several at once. Must not know
// rings or sequences.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "ipc/region.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace inferd::client_lib {

class ModelText {
 public:
  // Maps the daemon's text tables: read-only, and only if they can never change. Costs no work per
  // token of the vocabulary. Errors: kProtocol, kDataCorrupt, kVersionMismatch, kUnsupported.
  static Result<std::unique_ptr<ModelText>> open(UniqueFd tables, uint64_t bytes);

  // begin: as the model's prompts begin (BOS where it wants one).
  Result<std::vector<TokenId>> tokenize(std::string_view text, bool parse_special,
                                        bool begin) const;
  std::string detokenize(std::span<const TokenId> ids, bool special) const;
  // Messages to prompt ids, by the model's own template, which is compiled when first used.
  // Errors: kUnsupported without a template; kInvalidArgument for what is no JSON; the template's
  // own.
  Result<std::vector<TokenId>> render_chat(std::string_view chat_json) const;

  bool has_chat_template() const { return !tokenizer_.tables().chat_template().empty(); }
  const TextTables& tables() const { return tokenizer_.tables(); }

 private:
  ModelText(ipc::SharedRegion region, Tokenizer tokenizer)
      : region_(std::move(region)), tokenizer_(std::move(tokenizer)) {}
  Result<const ChatTemplate*> chat_template(bool with_tools) const;

  ipc::SharedRegion region_;
  Tokenizer tokenizer_;
  struct CompiledTemplate {
    std::optional<ChatTemplate> compiled;
    std::optional<Error> error;
  };
  mutable std::mutex template_mutex_;
  mutable CompiledTemplate plain_, with_tools_;  // under template_mutex_ until compiled
};

}  // namespace inferd::client_lib
