// Template source to tokens, white space control included.
// Owner: text/jinja. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace inferd::jinja {

enum class TokenKind : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,  // `text` is the operator
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  uint32_t line = 1;
  std::string text;  // data, name, operator, or a string literal's value
  int64_t integer = 0;
  double real = 0;

  bool is_name(std::string_view name) const { return kind == TokenKind::kName && text == name; }
  bool is_operator(std::string_view name) const {
    return kind == TokenKind::kOperator && text == name;
  }
};

// As Jinja2 with trim_blocks and lstrip_blocks: after a block or comment tag its line end goes,
// before one at the beginning of a line the blanks go; `-` strips more, `+` keeps. The last token
// is kEnd. `source` must be UTF-8. Errors: kDataCorrupt, with the line.
Result<std::vector<Token>> tokenize(std::string_view source);

// An error at a line of the template.
Error syntax_error(uint32_t line, std::string message);

}  // namespace inferd::jinja
