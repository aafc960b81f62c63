#include "formats/gguf_vocabulary.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <span>
#include <string_view>
#include <unordered_map>

#include "formats/gguf_table.h"

namespace inferd::formats {

namespace {

using Texts = std::span<const std::string_view>;

// Token texts that mean something whatever the file's metadata says. Source: the behaviour of
// llama.cpp, which files in the wild are made for. In each list the first that the vocabulary has
// is taken.
constexpr std::string_view kEotTexts[] = {
    "<|eot_id|>",        "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",
    "<|end_of_text|>",   "<EOT>",      "_<EOT>",  "[EOT]",         "<｜end▁of▁sentence｜>",
    "<end_of_utterance>"};
constexpr std::string_view kEomTexts[] = {"<|eom_id|>"};
constexpr std::string_view kFimPrefixTexts[] = {"<|fim_prefix|>",  "<fim-prefix>", "<fim_prefix>",
                                                "<｜fim▁begin｜>", "<PRE>",        "▁<PRE>",
                                                "<|code_prefix|>", "<|prefix|>"};
constexpr std::string_view kFimSuffixTexts[] = {"<|fim_suffix|>",  "<fim-suffix>", "<fim_suffix>",
                                                "<｜fim▁hole｜>",  "<SUF>",        "▁<SUF>",
                                                "<|code_suffix|>", "<|suffix|>"};
constexpr std::string_view kFimMiddleTexts[] = {"<|fim_middle|>",  "<fim-middle>", "<fim_middle>",
                                                "<｜fim▁end｜>",   "<MID>",        "▁<MID>",
                                                "<|code_middle|>", "<|middle|>"};
constexpr std::string_view kFimPaddingTexts[] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>",
                                                 "[PAD]"};
constexpr std::string_view kFimRepositoryTexts[] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>",
                                                    "<REPO>", "<reponame>"};
constexpr std::string_view kFimSeparatorTexts[] = {"<|file_sep|>"};
constexpr std::string_view kEndTexts[] = {"<|eot_id|>",
                                          "<|im_end|>",
                                          "<|end|>",
                                          "<|return|>",
                                          "<|call|>",
                                          "<|flush|>",
                                          "<|calls|>",
                                          "<end_of_turn>",
                                          "<|endoftext|>",
                                          "</s>",
                                          "<|eom_id|>",
                                          "<EOT>",
                                          "_<EOT>",
                                          "[EOT]",
                                          "[EOS]",
                                          "<|end_of_text|>",
                                          "<end_of_utterance>",
                                          "<eos>",
                                          "<turn|>",
                                          "<|tool_response>",
                                          "<｜end▁of▁sentence｜>",
                                          "[e~["};

Error corrupt(std::string message) { return Error(ErrorCode::kDataCorrupt, std::move(message)); }

class Reader {
 public:
  explicit Reader(const GgufFile& file) : file_(file) {}
  Result<Vocabulary> run();

 private:
  void set_defaults();
  Result<void> read_tokens();
  Result<void> read_types();
  Result<void> read_scores();
  Result<void> read_merges();
  Result<void> read_ids();
  Result<void> read_flags();
  Result<void> read_templates();
  Result<void> read_id(std::string_view key, bool must_fit, TokenId& id);
  Result<void> read_flag(std::string_view key, bool& flag);
  Result<void> read_text(std::string_view key, std::string& text);

  void find_by_text();
  void take_first(Texts texts, TokenId& id);
  void collect_ends();
  void settle_harmony();
  void settle_strips();

  TokenId id_of(std::string_view text) const {
    const auto at = ids_.find(text);
    return at == ids_.end() ? kNoToken : at->second;
  }
  bool ends(TokenId id) const {
    const auto& list = vocabulary_.end_of_generation;
    return id != kNoToken && std::find(list.begin(), list.end(), id) != list.end();
  }
  void not_an_end(TokenId id, TokenType type) {
    auto& list = vocabulary_.end_of_generation;
    list.erase(std::remove(list.begin(), list.end(), id), list.end());
    vocabulary_.types[static_cast<size_t>(id)] = type;
  }
  size_t size() const { return vocabulary_.tokens.size(); }

  const GgufFile& file_;
  Vocabulary vocabulary_;
  std::unordered_map<std::string_view, TokenId> ids_;  // of a text that appears twice: the last
};

Result<void> Reader::read_text(std::string_view key, std::string& text) {
  if (!file_.has(key)) return {};
  INFERD_ASSIGN(text, file_.get_string(key));
  return {};
}

void Reader::set_defaults() {
  Vocabulary& v = vocabulary_;
  if (v.model == "llama") {
    v.bos = 1, v.eos = 2, v.unknown = 0;
    v.add_space_prefix = v.add_bos = true;
  } else if (v.model == "gpt2") {
    v.bos = v.eos = 11;
    constexpr std::array<std::string_view, 11> kWithBos{
        "llama3",   "llama-v3", "llama-bpe",    "falcon3", "falcon-h1", "pixtral",
        "midm-2.0", "lfm2",     "jina-v5-nano", "tekken",  "chameleon"};
    v.add_bos = std::find(kWithBos.begin(), kWithBos.end(), v.pre) != kWithBos.end();
    v.add_separator = v.pre == "jina-v1-en" || v.pre == "jina-v2-code" || v.pre == "roberta-bpe";
  } else if (v.model == "gemma4") {
    v.pre = "gemma4";
  } else if (v.model == "bert") {
    v.bos = 101, v.unknown = 100, v.separator = 102, v.padding = 0, v.mask = 103;
    v.add_bos = v.add_separator = true;
  } else if (v.model == "t5") {
    v.eos = 1, v.unknown = 2, v.padding = 0;
    v.add_eos = true;
  } else if (v.model == "plamo2") {
    v.bos = 1, v.eos = 2, v.unknown = 0, v.padding = 3;
  }
}

Result<void> Reader::read_tokens() {
  INFERD_ASSIGN(const auto texts, file_.get_string_array("tokenizer.ggml.tokens"));
  if (texts.empty()) return corrupt("key 'tokenizer.ggml.tokens' is an empty list");
  if (texts.size() > static_cast<size_t>(std::numeric_limits<TokenId>::max())) {
    return corrupt("key 'tokenizer.ggml.tokens' lists " + std::to_string(texts.size()) +
                   " tokens; fewer than 2^31 were expected");
  }
  vocabulary_.tokens.assign(texts.begin(), texts.end());
  ids_.reserve(size());
  for (size_t i = 0; i < size(); ++i) ids_[vocabulary_.tokens[i]] = static_cast<TokenId>(i);
  return {};
}

Result<void> Reader::read_types() {
  constexpr std::string_view kKey = "tokenizer.ggml.token_type";
  vocabulary_.types.assign(size(), TokenType::kNormal);
  if (!file_.has(kKey)) return {};
  INFERD_ASSIGN(const auto types, file_.get_int_array(kKey));
  if (types.size() != size()) {
    return corrupt("key 'tokenizer.ggml.token_type' lists " + std::to_string(types.size()) +
                   " types for " + std::to_string(size()) + " tokens");
  }
  for (size_t i = 0; i < size(); ++i) {
    if (types[i] < 0 || types[i] > static_cast<int64_t>(TokenType::kByte)) {
      return corrupt("key 'tokenizer.ggml.token_type' says type " + std::to_string(types[i]) +
                     " for token " + std::to_string(i) + "; 0 to 6 were expected");
    }
    vocabulary_.types[i] = static_cast<TokenType>(types[i]);
  }
  return {};
}

Result<void> Reader::read_scores() {
  constexpr std::string_view kKey = "tokenizer.ggml.scores";
  if (!file_.has(kKey)) return {};
  auto scores = file_.get_float_array(kKey);
  if (scores) {
    vocabulary_.scores = std::move(scores).value();
  } else {
    INFERD_ASSIGN(const auto whole, file_.get_int_array(kKey));
    vocabulary_.scores.assign(whole.begin(), whole.end());
  }
  if (vocabulary_.scores.size() != size()) {
    return corrupt("key 'tokenizer.ggml.scores' lists " +
                   std::to_string(vocabulary_.scores.size()) + " scores for " +
                   std::to_string(size()) + " tokens");
  }
  for (size_t i = 0; i < size(); ++i) {
    if (vocabulary_.scores[i] != vocabulary_.scores[i]) {
      return corrupt("key 'tokenizer.ggml.scores' has no number for token " + std::to_string(i));
    }
  }
  return {};
}

Result<void> Reader::read_merges() {
  constexpr std::string_view kKey = "tokenizer.ggml.merges";
  const bool by_merges = (vocabulary_.model == "gpt2" && vocabulary_.pre != "kimi-k2") ||
                         vocabulary_.model == "gemma4";
  if (!file_.has(kKey) && !by_merges) return {};
  INFERD_ASSIGN(const auto merges, file_.get_string_array(kKey));
  for (size_t i = 0; i < merges.size(); ++i) {
    const size_t space = merges[i].find(' ', 1);
    if (merges[i].size() < 3 || space == std::string_view::npos || space + 1 == merges[i].size()) {
      return corrupt("key 'tokenizer.ggml.merges' has " + gguf_quoted(merges[i]) + " as merge " +
                     std::to_string(i) + "; two pieces with a space between were expected");
    }
  }
  vocabulary_.merges.assign(merges.begin(), merges.end());
  return {};
}

Result<void> Reader::read_id(std::string_view key, bool must_fit, TokenId& id) {
  if (id != kNoToken && static_cast<size_t>(id) >= size()) id = kNoToken;  // a default too large
  if (!file_.has(key)) return {};
  INFERD_ASSIGN(const int64_t value, file_.get_int(key));
  if (value >= 0 && static_cast<uint64_t>(value) < size()) {
    id = static_cast<TokenId>(value);
    return {};
  }
  const bool none = value == -1 || value == std::numeric_limits<uint32_t>::max();
  if (must_fit && !none) {
    return corrupt("key " + gguf_quoted(key) + " is " + std::to_string(value) +
                   "; a token id from 0 to " + std::to_string(size() - 1) + " was expected");
  }
  id = kNoToken;
  return {};
}

Result<void> Reader::read_ids() {
  Vocabulary& v = vocabulary_;
  struct Row {
    std::string_view key;
    TokenId& id;
    bool must_fit;
  };
  const std::array<Row, 18> rows{{{"bos_token_id", v.bos, true},
                                  {"eos_token_id", v.eos, true},
                                  {"eot_token_id", v.eot, true},
                                  {"eom_token_id", v.eom, true},
                                  {"unknown_token_id", v.unknown, true},
                                  {"seperator_token_id", v.separator, false},  // spelt so in GGUF
                                  {"padding_token_id", v.padding, false},
                                  {"cls_token_id", v.cls, false},
                                  {"mask_token_id", v.mask, false},
                                  {"prefix_token_id", v.fim_prefix, false},  // older names first
                                  {"suffix_token_id", v.fim_suffix, false},
                                  {"middle_token_id", v.fim_middle, false},
                                  {"fim_pre_token_id", v.fim_prefix, false},
                                  {"fim_suf_token_id", v.fim_suffix, false},
                                  {"fim_mid_token_id", v.fim_middle, false},
                                  {"fim_pad_token_id", v.fim_padding, false},
                                  {"fim_rep_token_id", v.fim_repository, false},
                                  {"fim_sep_token_id", v.fim_separator, false}}};
  for (const Row& row : rows) {
    INFERD_TRY(read_id("tokenizer.ggml." + std::string(row.key), row.must_fit, row.id));
  }
  return {};
}

Result<void> Reader::read_flag(std::string_view key, bool& flag) {
  if (!file_.has(key)) return {};
  INFERD_ASSIGN(flag, file_.get_bool(key));
  return {};
}

Result<void> Reader::read_flags() {
  Vocabulary& v = vocabulary_;
  INFERD_TRY(read_flag("tokenizer.ggml.add_bos_token", v.add_bos));
  INFERD_TRY(read_flag("tokenizer.ggml.add_eos_token", v.add_eos));
  INFERD_TRY(read_flag("tokenizer.ggml.add_sep_token", v.add_separator));
  INFERD_TRY(read_flag("tokenizer.ggml.add_space_prefix", v.add_space_prefix));
  INFERD_TRY(read_flag("tokenizer.ggml.remove_extra_whitespaces", v.remove_extra_whitespaces));
  if (v.pre == "gemma4") v.add_bos = true;  // files say false, the model was trained with it
  return {};
}

Result<void> Reader::read_templates() {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  INFERD_TRY(read_text(kKey, vocabulary_.chat_template));
  for (const GgufFile::Key& key : file_.keys()) {
    if (key.name.size() <= kKey.size() + 1 || !key.name.starts_with(kKey) ||
        key.name[kKey.size()] != '.') {
      continue;
    }
    INFERD_ASSIGN(const std::string_view text, file_.get_string(key.name));
    vocabulary_.named_chat_templates.emplace_back(key.name.substr(kKey.size() + 1), text);
  }
  return {};
}

void Reader::take_first(Texts texts, TokenId& id) {
  for (const std::string_view text : texts) {
    if (id != kNoToken) return;
    id = id_of(text);
    if (id != kNoToken) vocabulary_.types[static_cast<size_t>(id)] = TokenType::kControl;
  }
}

void Reader::find_by_text() {
  take_first(kEotTexts, vocabulary_.eot);
  take_first(kEomTexts, vocabulary_.eom);
  take_first(kFimPrefixTexts, vocabulary_.fim_prefix);
  take_first(kFimSuffixTexts, vocabulary_.fim_suffix);
  take_first(kFimMiddleTexts, vocabulary_.fim_middle);
  take_first(kFimPaddingTexts, vocabulary_.fim_padding);
  take_first(kFimRepositoryTexts, vocabulary_.fim_repository);
  take_first(kFimSeparatorTexts, vocabulary_.fim_separator);
}

void Reader::collect_ends() {
  Vocabulary& v = vocabulary_;
  for (const std::string_view text : kEndTexts) {
    const TokenId id = id_of(text);
    if (id == kNoToken) continue;
    v.types[static_cast<size_t>(id)] = TokenType::kControl;
    v.end_of_generation.push_back(id);
  }
  for (const TokenId id : {v.eos, v.eot, v.eom, v.fim_padding, v.fim_repository, v.fim_separator}) {
    if (id != kNoToken) v.end_of_generation.push_back(id);
  }
  std::sort(v.end_of_generation.begin(), v.end_of_generation.end());
  v.end_of_generation.erase(std::unique(v.end_of_generation.begin(), v.end_of_generation.end()),
                            v.end_of_generation.end());
}

// Families in which a text of the lists above means something else.
void Reader::settle_harmony() {
  for (const std::string_view text : {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"}) {
    const TokenId id = id_of(text);
    if (id != kNoToken) vocabulary_.types[static_cast<size_t>(id)] = TokenType::kUserDefined;
  }
  // "<|end|>" ends one of several messages of an answer where "<|return|>" ends the answer.
  const bool call = ends(id_of("<|call|>")) || ends(id_of("<|calls|>"));
  const TokenId end = id_of("<|end|>");
  if (call && ends(end) && (ends(id_of("<|return|>")) || ends(id_of("<|flush|>")))) {
    not_an_end(end, TokenType::kUserDefined);
  }
  const TokenId slash_s = id_of("</s>");
  if (ends(slash_s) && (ends(id_of("<|tool_response>")) || ends(id_of("<|plamo:eos|>")))) {
    not_an_end(slash_s, TokenType::kNormal);
  }
}

// GGUF has no place for a token's strip attributes; they follow from the model's name.
void Reader::settle_strips() {
  Vocabulary& v = vocabulary_;
  std::string name;
  if (auto text = file_.get_string("general.name")) name = text.value();
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos) {
    const std::array<TokenId, 3> kept{id_of("<unk>"), id_of("<s>"), id_of("<|endoftext|>")};
    const TokenId end = id_of("</s>");
    for (size_t i = 0; i < size(); ++i) {
      const auto id = static_cast<TokenId>(i);
      const bool special = v.types[i] == TokenType::kControl || v.types[i] == TokenType::kUnknown ||
                           v.types[i] == TokenType::kUserDefined;
      if (!special && id != end) continue;
      if (std::find(kept.begin(), kept.end(), id) == kept.end()) v.strip_right.push_back(id);
    }
  }
  if (v.pre == "jina-v2-de" || v.pre == "jina-v2-es" || v.pre == "jina-v2-code" ||
      v.pre == "mmbert") {
    const TokenId mask = id_of("<mask>");
    if (mask != kNoToken) v.strip_left.push_back(mask);
  }
}

Result<Vocabulary> Reader::run() {
  if (!file_.has("tokenizer.ggml.model")) {
    return Error(ErrorCode::kNotFound,
                 "the model file has no key 'tokenizer.ggml.model', so it has no tokenizer; use a "
                 "file that was converted with its tokenizer");
  }
  INFERD_TRY(read_text("tokenizer.ggml.model", vocabulary_.model));
  if (vocabulary_.model == "none" || vocabulary_.model == "no_vocab") {
    return Error(ErrorCode::kNotFound,
                 "the model file says that it has no tokenizer (tokenizer.ggml.model is '" +
                     vocabulary_.model + "')");
  }
  INFERD_TRY(read_text("tokenizer.ggml.pre", vocabulary_.pre));
  INFERD_TRY(read_text("general.name", vocabulary_.name));
  INFERD_TRY(read_text("general.architecture", vocabulary_.architecture));
  set_defaults();
  INFERD_TRY(read_tokens());
  INFERD_TRY(read_types());
  INFERD_TRY(read_scores());
  INFERD_TRY(read_merges());
  INFERD_TRY(read_ids());
  INFERD_TRY(read_flags());
  INFERD_TRY(read_templates());
  find_by_text();
  collect_ends();
  settle_harmony();
  settle_strips();
  ids_.clear();
  return std::move(vocabulary_);
}

}  // namespace

Result<Vocabulary> read_vocabulary(const GgufFile& file) {
  auto vocabulary = Reader(file).run();
  if (!vocabulary && !file.path().empty()) return vocabulary.error().with_context(file.path());
  return vocabulary;
}

}  // namespace inferd::formats
