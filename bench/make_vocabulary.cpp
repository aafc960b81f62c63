#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/prng.h"
#include "bench/make_model.h"

namespace inferd::bench {

namespace {

// Common English words; their beginnings become pieces.
constexpr std::string_view kWords =
    "the of and to in is that it was for on are as with his they at be this from have or by one "
    "had "
    "not but what all were when we there can an your which their said if do will each about how up "
    "out them then she many some so these would other into has more her two like him see time "
    "could "
    "no make than first been its who now people my made over did down only way find use may water "
    "long little very after words called just where most know get through back much before go good "
    "new write our used me man too any day same right look think also around another came come "
    "work "
    "three word must because does part even place well such here take why things help put years "
    "different away again off went old number great tell men say small every found still between "
    "name should home big give air line set own under read last never us left end along while "
    "might";

constexpr size_t kPieceBytesMax = 16;

constexpr std::string_view kChatMl =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ "
    "'<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' "
    "}}{% endif %}";

constexpr std::string_view kPlain =
    "{{ bos_token }}{% for message in messages %}{{ '[' + message['role'] + '] ' + "
    "message['content'] + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '[assistant]' }}{% "
    "endif %}";

// A code point below 0x800.
std::string utf8(uint32_t code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

class Maker {
 public:
  Maker(uint32_t size, bool sentencepiece, uint64_t seed)
      : size_(size), sentencepiece_(sentencepiece), prng_(seed) {}

  Vocabulary run() {
    if (sentencepiece_) {
      begin_sentencepiece();
    } else {
      begin_byte_level();
    }
    add_words();
    add_joins();
    if (sentencepiece_) score();
    return std::move(vocabulary_);
  }

 private:
  void add(std::string text, TokenType type) {
    known_.insert(text);
    vocabulary_.tokens.push_back(std::move(text));
    vocabulary_.types.push_back(type);
  }
  bool full() const { return vocabulary_.tokens.size() >= size_; }

  // GPT-2's alphabet: printable Latin-1 stands for itself, the other bytes for 256, 257, … in
  // order.
  void begin_byte_level() {
    Vocabulary& v = vocabulary_;
    v.model = "gpt2", v.pre = "gpt-2";
    for (const char* text : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
      add(text, TokenType::kControl);
    }
    v.bos = 1, v.eos = 2, v.padding = 2, v.unknown = 0;
    v.chat_template = kChatMl;
    first_piece_ = v.tokens.size();
    uint32_t other = 256;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      add(utf8(printable ? byte : other++), TokenType::kNormal);
    }
    space_ = utf8(256 + 32);
  }

  void begin_sentencepiece() {
    Vocabulary& v = vocabulary_;
    v.model = "llama", v.pre = "default";
    add("<unk>", TokenType::kUnknown);
    add("<s>", TokenType::kControl);
    add("</s>", TokenType::kControl);
    v.unknown = 0, v.bos = 1, v.eos = 2;
    v.add_bos = v.add_space_prefix = true;
    v.chat_template = kPlain;
    constexpr std::string_view kHex = "0123456789ABCDEF";
    for (size_t byte = 0; byte < 256; ++byte) {
      add(std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">", TokenType::kByte);
    }
    first_piece_ = v.tokens.size();
    space_ = "\u2581";
    add(space_, TokenType::kNormal);
    for (char c = 0x21; c < 0x7F; ++c) add(std::string(1, c), TokenType::kNormal);
  }

  // A piece that joins two others; false if there is one of that text.
  bool join(const std::string& left, const std::string& right) {
    std::string text = left + right;
    if (known_.contains(text)) return false;
    if (!sentencepiece_) vocabulary_.merges.push_back(left + ' ' + right);
    add(std::move(text), TokenType::kNormal);
    return true;
  }

  void add_words() {
    std::string_view rest = kWords;
    while (!rest.empty() && !full()) {
      const std::string_view word = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(rest.size(), word.size() + 1));
      std::string left = space_;
      for (const char c : word) {
        if (full()) return;
        join(left, std::string(1, c));
        left += c;
      }
    }
  }

  void add_joins() {
    const auto& tokens = vocabulary_.tokens;
    while (!full()) {
      const std::string left = tokens[first_piece_ + prng_.below(tokens.size() - first_piece_)];
      const std::string right = tokens[first_piece_ + prng_.below(tokens.size() - first_piece_)];
      if (left.size() + right.size() <= kPieceBytesMax) join(left, right);
    }
  }

  void score() {
    vocabulary_.scores.resize(size_);
    for (size_t i = first_piece_; i < size_; ++i) {
      vocabulary_.scores[i] = -static_cast<float>(i - first_piece_);
    }
  }

  const uint32_t size_;
  const bool sentencepiece_;
  Prng prng_;
  Vocabulary vocabulary_;
  std::unordered_set<std::string> known_;
  size_t first_piece_ = 0;
  std::string space_;
};

}  // namespace

Result<Vocabulary> make_vocabulary(uint32_t size, bool sentencepiece, uint64_t seed) {
  // Pieces of up to 16 bytes are more than any int32 counts, so a larger vocabulary always exists.
  if (size < kMadeVocabularyMin || size > (uint32_t{1} << 22)) {
    return Error(ErrorCode::kInvalidArgument,
                 "a vocabulary of " + std::to_string(size) + " tokens cannot be made; " +
                     std::to_string(kMadeVocabularyMin) + " to 4194304 are possible");
  }
  return Maker(size, sentencepiece, seed).run();
}

}  // namespace inferd::bench
