#include "text/jinja/lexer.h"

#include <charconv>
#include <limits>

#include "text/jinja/string_literal.h"
#include "text/jinja/unicode.h"

namespace inferd::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_byte(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit_of(char c, int base) {
  if (base == 16) return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  return c >= '0' && c < '0' + base;
}

// "\r\n" and "\r" become "\n"; one line end at the end of the source goes.
std::string normalize_lines(std::string_view source) {
  std::string result;
  result.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      result.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      result.push_back(source[i]);
    }
  }
  if (!result.empty() && result.back() == '\n') result.pop_back();
  return result;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : storage_(normalize_lines(source)), source_(storage_) {}

  Result<std::vector<Token>> run() {
    while (position_ < source_.size()) INFERD_TRY(lex_root());
    emit(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  enum class Tag : uint8_t { kVariable, kBlock, kComment };

  bool at(std::string_view text) const { return source_.substr(position_).starts_with(text); }
  void emit(TokenKind kind, std::string_view text) {
    Token token;
    token.kind = kind;
    token.line = line_;
    token.text = text;
    tokens_.push_back(std::move(token));
  }
  // Moves to `position` and counts the lines passed.
  void advance_to(size_t position) {
    for (; position_ < position; ++position_) line_ += source_[position_] == '\n' ? 1 : 0;
  }
  size_t skip_spaces(size_t position) const {
    while (position < source_.size()) {
      size_t next = position;
      if (!is_space(next_character(source_, &next))) break;
      position = next;
    }
    return position;
  }
  // Ends a tag whose last byte is before `end`, and remembers whether a line begins there.
  void finish_tag(size_t end) {
    advance_to(end);
    line_starting_ = end > 0 && source_[end - 1] == '\n';
  }

  Result<void> lex_root();
  void emit_data(std::string_view text, char sign, bool strip_blanks);
  Result<void> lex_comment();
  Result<bool> lex_raw(size_t tag);
  Result<void> lex_tag(Tag tag);
  bool end_tag(Tag tag);
  Result<void> lex_token(std::vector<char>* open);
  Result<bool> lex_number();
  void lex_name();
  Result<void> lex_string();
  Result<void> lex_operator(std::vector<char>* open);

  std::string storage_;
  std::string_view source_;
  size_t position_ = 0;
  uint32_t line_ = 1;
  bool line_starting_ = true;  // the previous tag ended with a line end
  std::vector<Token> tokens_;
};

// Data up to the next tag, and that tag.
Result<void> Lexer::lex_root() {
  size_t tag = position_;
  while (true) {
    tag = source_.find('{', tag);
    if (tag == std::string_view::npos || tag + 1 >= source_.size()) {
      emit(TokenKind::kData, source_.substr(position_));
      advance_to(source_.size());
      return {};
    }
    const char second = source_[tag + 1];
    if (second == '{' || second == '%' || second == '#') break;
    ++tag;
  }
  INFERD_ASSIGN(const bool was_raw, lex_raw(tag));
  if (was_raw) return {};
  const char second = source_[tag + 1];
  size_t body = tag + 2;
  const char sign = body < source_.size() ? source_[body] : ' ';
  if (sign == '-' || sign == '+') ++body;
  emit_data(source_.substr(position_, tag - position_), sign, second != '{');
  finish_tag(body);
  if (second == '#') return lex_comment();
  const Tag kind = second == '{' ? Tag::kVariable : Tag::kBlock;
  emit(kind == Tag::kVariable ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
  return lex_tag(kind);
}

// Emits the text before a tag whose opening carries `sign`.
void Lexer::emit_data(std::string_view text, char sign, bool strip_blanks) {
  size_t end = text.size();
  if (sign == '-') {
    while (end > 0) {
      const size_t before = previous_character(text, end);
      size_t next = before;
      if (!is_space(next_character(text, &next))) break;
      end = before;
    }
  } else if (sign != '+' && strip_blanks) {
    const size_t line_end = text.rfind('\n');
    const size_t line_begin = line_end == std::string_view::npos ? 0 : line_end + 1;
    if (line_begin > 0 || line_starting_) {
      bool blank = true;
      for (size_t i = line_begin; i < text.size() && blank;) {
        blank = is_space(next_character(text, &i));
      }
      if (blank) end = line_begin;
    }
  }
  if (end > 0) emit(TokenKind::kData, text.substr(0, end));
}

Result<void> Lexer::lex_comment() {
  const size_t end = source_.find("#}", position_);
  if (end == std::string_view::npos) {
    return syntax_error(line_, "a comment that begins with {# does not end with #}");
  }
  const char sign = end > position_ ? source_[end - 1] : ' ';
  size_t after = end + 2;
  if (sign == '-') {
    after = skip_spaces(after);
  } else if (sign != '+' && after < source_.size() && source_[after] == '\n') {
    ++after;
  }
  finish_tag(after);
  return {};
}

// If a {% raw %} tag begins at `tag`: emits what is before it and up to {% endraw %}.
Result<bool> Lexer::lex_raw(size_t tag) {
  if (source_[tag + 1] != '%') return false;
  size_t at = tag + 2;
  const char sign = at < source_.size() ? source_[at] : ' ';
  if (sign == '-' || sign == '+') ++at;
  at = skip_spaces(at);
  if (!source_.substr(at).starts_with("raw")) return false;
  at = skip_spaces(at + 3);
  const bool strip = source_.substr(at).starts_with("-%}");
  if (!strip && !source_.substr(at).starts_with("%}")) return false;
  at = strip ? skip_spaces(at + 3) : at + 2;
  emit_data(source_.substr(position_, tag - position_), sign, true);
  finish_tag(at);

  for (size_t end = source_.find("{%", at); end != std::string_view::npos;
       end = source_.find("{%", end + 1)) {
    size_t next = end + 2;
    const char end_sign = next < source_.size() ? source_[next] : ' ';
    if (end_sign == '-' || end_sign == '+') ++next;
    next = skip_spaces(next);
    if (!source_.substr(next).starts_with("endraw")) continue;
    next = skip_spaces(next + 6);
    const std::string_view rest = source_.substr(next);
    if (rest.starts_with("-%}")) {
      next = skip_spaces(next + 3);
    } else if (rest.starts_with("+%}")) {
      next += 3;
    } else if (rest.starts_with("%}")) {
      next += rest.size() > 2 && rest[2] == '\n' ? 3 : 2;
    } else {
      continue;
    }
    emit_data(source_.substr(at, end - at), end_sign, true);
    finish_tag(next);
    return true;
  }
  return syntax_error(line_, "{% raw %} without {% endraw %}");
}

Result<void> Lexer::lex_tag(Tag tag) {
  std::vector<char> open;  // closing brackets that are due, the innermost last
  const uint32_t begin_line = line_;
  while (position_ < source_.size()) {
    if (open.empty() && end_tag(tag)) return {};
    const size_t after_spaces = skip_spaces(position_);
    if (after_spaces > position_) {
      advance_to(after_spaces);
      continue;
    }
    INFERD_TRY(lex_token(&open));
  }
  return syntax_error(begin_line, tag == Tag::kVariable ? "{{ without }}" : "{% without %}");
}

bool Lexer::end_tag(Tag tag) {
  const std::string_view end = tag == Tag::kVariable ? "}}" : "%}";
  const std::string_view rest = source_.substr(position_);
  size_t after = position_;
  if (rest.starts_with(end)) {
    after += 2;
    if (tag == Tag::kBlock && rest.size() > 2 && rest[2] == '\n') ++after;
  } else if (rest.starts_with('-') && rest.substr(1).starts_with(end)) {
    after = skip_spaces(position_ + 3);
  } else if (tag == Tag::kBlock && rest.starts_with("+%}")) {
    after += 3;
  } else {
    return false;
  }
  emit(tag == Tag::kVariable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
  finish_tag(after);
  return true;
}

Result<void> Lexer::lex_token(std::vector<char>* open) {
  const char c = source_[position_];
  if (is_digit(c)) {
    INFERD_ASSIGN(const bool found, lex_number());
    if (found) return {};
  }
  if (is_name_byte(c)) {
    lex_name();
    return {};
  }
  if (c == '"' || c == '\'') return lex_string();
  if (static_cast<unsigned char>(c) >= 0x80) {
    size_t next = position_;
    if (is_letter(next_character(source_, &next))) {
      lex_name();
      return {};
    }
  }
  return lex_operator(open);
}

Result<bool> Lexer::lex_number() {
  const std::string_view rest = source_.substr(position_);
  std::string digits;
  // Digits with single underscores between them, from `from`; the place behind them.
  const auto run = [&](size_t from, int base, bool leading_underscore) {
    size_t at = from;
    while (at < rest.size()) {
      const bool underscore = rest[at] == '_' && (at > from || leading_underscore) &&
                              at + 1 < rest.size() && is_digit_of(rest[at + 1], base);
      if (underscore) ++at;
      if (!is_digit_of(rest[at], base)) break;
      digits.push_back(rest[at++]);
    }
    return at;
  };
  size_t end = run(0, 10, false);
  // A float has a fraction or an exponent, and does not follow a dot.
  const size_t integer_end = end;
  if (position_ == 0 || source_[position_ - 1] != '.') {
    if (end + 1 < rest.size() && rest[end] == '.' && is_digit(rest[end + 1])) {
      digits.push_back('.');
      end = run(end + 1, 10, false);
    }
    if (end < rest.size() && (rest[end] == 'e' || rest[end] == 'E')) {
      size_t exponent = end + 1;
      if (exponent < rest.size() && (rest[exponent] == '+' || rest[exponent] == '-')) ++exponent;
      if (exponent < rest.size() && is_digit(rest[exponent])) {
        digits.append(rest.substr(end, exponent - end));
        end = run(exponent, 10, false);
      }
    }
  }
  Token token;
  token.line = line_;
  if (end > integer_end) {
    token.kind = TokenKind::kFloat;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), token.real);
    // from_chars leaves the value alone where it is beyond a double.
    if (parsed.ec == std::errc::result_out_of_range && digits.find("e-") == std::string::npos) {
      token.real = std::numeric_limits<double>::infinity();
    }
  } else {
    token.kind = TokenKind::kInteger;
    int base = 10;
    digits.clear();
    const char mark = rest.size() > 1 && rest[0] == '0' ? static_cast<char>(rest[1] | 0x20) : ' ';
    if (mark == 'x' || mark == 'o' || mark == 'b') {
      base = mark == 'x' ? 16 : mark == 'o' ? 8 : 2;
      end = run(2, base, true);
      if (digits.empty()) base = 10;
    }
    if (base == 10) {
      digits.clear();
      if (rest[0] == '0') {  // zeros only: 007 is no number
        end = 0;
        while (end < rest.size() && (rest[end] == '0' || rest.substr(end).starts_with("_0"))) ++end;
        digits = "0";
      } else {
        end = run(0, 10, false);
      }
    }
    const auto parsed =
        std::from_chars(digits.data(), digits.data() + digits.size(), token.integer, base);
    if (parsed.ec != std::errc()) {
      return syntax_error(
          line_, "the integer " + std::string(rest.substr(0, end)) + " does not fit into 64 bits");
    }
  }
  tokens_.push_back(std::move(token));
  advance_to(position_ + end);
  return true;
}

void Lexer::lex_name() {
  size_t end = position_;
  while (end < source_.size()) {
    if (is_name_byte(source_[end])) {
      ++end;
      continue;
    }
    if (static_cast<unsigned char>(source_[end]) < 0x80) break;
    size_t next = end;
    const char32_t character = next_character(source_, &next);
    if (!is_letter(character) && !is_decimal(character)) break;
    end = next;
  }
  emit(TokenKind::kName, source_.substr(position_, end - position_));
  advance_to(end);
}

Result<void> Lexer::lex_string() {
  const char quote = source_[position_];
  size_t end = position_ + 1;
  while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
  if (end >= source_.size()) return syntax_error(line_, "a string has no closing quote");
  auto value = unescape_literal(source_.substr(position_ + 1, end - position_ - 1));
  if (!value) return syntax_error(line_, value.error().message());
  emit(TokenKind::kString, *value);
  advance_to(end + 1);
  return {};
}

Result<void> Lexer::lex_operator(std::vector<char>* open) {
  static constexpr std::string_view kOperators[] = {
      "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
      "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
  for (const std::string_view op : kOperators) {
    if (!at(op)) continue;
    const char c = op[0];
    if (c == '(' || c == '[' || c == '{') {
      open->push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    } else if (c == ')' || c == ']' || c == '}') {
      if (open->empty() || open->back() != c) {
        return syntax_error(
            line_,
            std::string("unexpected '") + c + "'" +
                (open->empty() ? std::string() : std::string(", expected '") + open->back() + "'"));
      }
      open->pop_back();
    }
    emit(TokenKind::kOperator, op);
    advance_to(position_ + op.size());
    return {};
  }
  size_t next = position_;
  next_character(source_, &next);
  return syntax_error(line_, "unexpected character '" +
                                 std::string(source_.substr(position_, next - position_)) + "'");
}

}  // namespace

Error syntax_error(uint32_t line, std::string message) {
  return Error(ErrorCode::kDataCorrupt, "line " + std::to_string(line) + ": " + message);
}

Result<std::vector<Token>> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace inferd::jinja
