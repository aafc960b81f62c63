// The text side of a model file, without a daemon: its tokenizer and chat template. A
// vocabulary-only GGUF is enough. Owner: inferctl. One thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace inferd::inferctl {

class LocalText {
 public:
  // Reads the file's metadata; the weights, if any, are left alone.
  static Result<LocalText> open(const std::string& path);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // Jinja source, empty if the file has none. With tools, the template for them if there is one.
  std::string chat_template(bool with_tools) const;

 private:
  LocalText() = default;

  // In words of 8 bytes, the alignment that the tables want.
  std::vector<uint64_t> block_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace inferd::inferctl
