// A model's vocabulary and its text settings, as plain data: what formats/ reads from a model file and
// text/ builds its tokenizer from.
// Owner: base. A value type; any thread may read one that nobody changes. Must not know file formats
// or how text is cut into tokens.
//
// Invariants (formats::read_vocabulary checks them; whoever builds one by hand keeps them):
//   types.size() == tokens.size(); scores is empty or of the same size; every id is kNoToken or in
//   [0, tokens.size()); end_of_generation is sorted, without duplicates.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace inferd {

// What a token is. The numbers are those of GGUF's tokenizer.ggml.token_type.
enum class TokenType : uint8_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // never produced from a user's text, never part of plain output
  kUserDefined = 4,  // an added token: matched in text as a whole, before anything else
  kUnused = 5,
  kByte = 6,         // "<0x0A>": stands for one byte
};

struct Vocabulary {
  // "gpt2" (byte-level BPE), "llama" (SentencePiece-style BPE), "gemma4", "bert", "t5", "rwkv", …: as the
  // file says it. Whether it can be tokenized with is for text/ to say.
  std::string model;
  // Pre-tokenizer by name, "llama-bpe", "smollm", …; empty if the file names none ("default" is meant).
  std::string pre;

  // Token texts in the tokenizer's own spelling: byte-level BPE's printable alphabet ("Ġthe"), or
  // SentencePiece's with U+2581 for a space ("▁the"). A text may be empty or appear twice.
  std::vector<std::string> tokens;
  std::vector<TokenType> types;
  std::vector<float> scores;        // higher merges first; empty if the file has none
  std::vector<std::string> merges;  // "left right", best first; empty if the file has none

  TokenId bos = kNoToken;
  TokenId eos = kNoToken;
  TokenId eot = kNoToken;  // end of a turn
  TokenId eom = kNoToken;  // end of a message that expects a tool's answer
  TokenId unknown = kNoToken;
  TokenId separator = kNoToken;
  TokenId padding = kNoToken;
  TokenId cls = kNoToken;
  TokenId mask = kNoToken;
  TokenId fim_prefix = kNoToken;
  TokenId fim_suffix = kNoToken;
  TokenId fim_middle = kNoToken;
  TokenId fim_padding = kNoToken;
  TokenId fim_repository = kNoToken;
  TokenId fim_separator = kNoToken;
  // Tokens after which a model has said all it wants to: eos, eot, eom and those known by their text.
  std::vector<TokenId> end_of_generation;
  // Special tokens that swallow the white space that follows, or precedes, them in a text. Ascending.
  std::vector<TokenId> strip_right;
  std::vector<TokenId> strip_left;

  // Put bos before, eos or separator behind a text that is encoded with special tokens.
  bool add_bos = false;
  bool add_eos = false;
  bool add_separator = false;
  // Put a space before a text (SentencePiece's dummy prefix).
  bool add_space_prefix = false;
  // Join runs of white space into one space and drop it at both ends.
  bool remove_extra_whitespaces = false;

  // general.name and general.architecture; empty if the file has none.
  std::string name;
  std::string architecture;

  // The chat template, Jinja source; empty if the file has none.
  std::string chat_template;
  // Further templates by name ("tool_use", "rag"), in the file's order.
  std::vector<std::pair<std::string, std::string>> named_chat_templates;
};

}  // namespace inferd
