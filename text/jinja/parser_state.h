// What the two halves of the parser share: the token stream, names, and what Jinja2 checks on the
// way. Owner: text/jinja; private to parser.cpp and expression_parser.cpp.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/guards.h"
#include "text/jinja/lexer.h"

namespace inferd::jinja {

class ParserState {
 public:
  explicit ParserState(std::vector<Token> tokens);

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  uint32_t line() const { return current().line; }
  bool skip_operator(std::string_view op);
  bool skip_name(std::string_view name);
  Result<void> expect_operator(std::string_view op);
  Result<Token> expect_name();
  Result<void> expect(TokenKind kind);
  bool is_any_name(std::initializer_list<std::string_view> names) const;
  Error fail(std::string message) const { return syntax_error(line(), std::move(message)); }
  // "'x'", "the end of the tag", …, for messages.
  std::string describe_current() const;

  NameId name_id(std::string_view name);
  std::vector<std::string> take_names() { return std::move(names_); }
  // Notes that the variable is read.
  void note_use(NameId name);

  // Which special names a body reads; the enclosing body reads them too.
  struct Uses {
    bool loop = false;
    bool caller = false;
    bool kwargs = false;
    bool varargs = false;
    void add(const Uses& inner);
  };
  Uses uses;

  // Unknown filters and tests are errors at once, unless they stand in an `if`, where Jinja2 finds
  // them when it gets there. An inline `if` is recognised after its first operand: hence the list.
  struct Unknown {
    uint32_t line;
    std::string message;
  };
  std::vector<Unknown> unknown;
  bool conditional = false;

  uint32_t loops_open = 0;  // enclosing `for`, for the rule that `loop` is not assigned there
  bool may_break = false;
  uint32_t depth = 0;  // of nested statements and expressions

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
  std::vector<std::string> names_;
  std::unordered_map<std::string, NameId> ids_;
};

class ExpressionParser {
 public:
  explicit ExpressionParser(ParserState* state) : state_(*state) {}

  Result<ExpressionPtr> expression();           // with inline `if`
  Result<ExpressionPtr> without_conditional();  // the condition of `if`, the items of `for`
  // One expression, or several with commas: a tuple. `stops_at` is a name that ends it.
  Result<ExpressionPtr> tuple(bool with_conditional, std::string_view stops_at = {},
                              bool in_parentheses = false);
  // Filters of a filter block or set block: a chain whose innermost input is null.
  Result<ExpressionPtr> filter_chain(bool starts_with_name);
  Result<Target> target(std::string_view stops_at, bool with_namespace);

 private:
  Result<ExpressionPtr> logical_or();
  Result<ExpressionPtr> logical_and();
  Result<ExpressionPtr> logical_not();
  Result<ExpressionPtr> comparison();
  Result<ExpressionPtr> sum();
  Result<ExpressionPtr> concatenation();
  Result<ExpressionPtr> product();
  Result<ExpressionPtr> power();
  Result<ExpressionPtr> unary(bool with_filters);
  Result<ExpressionPtr> primary();
  Result<ExpressionPtr> name_or_constant();
  Result<ExpressionPtr> list();
  Result<ExpressionPtr> dict();
  Result<ExpressionPtr> postfix(ExpressionPtr node);
  Result<ExpressionPtr> filters_and_tests(ExpressionPtr node);
  Result<ExpressionPtr> member(ExpressionPtr node);
  Result<ExpressionPtr> subscript(ExpressionPtr node);
  Result<ExpressionPtr> call(ExpressionPtr node);
  Result<ExpressionPtr> filter(ExpressionPtr input);
  Result<ExpressionPtr> test(ExpressionPtr input);
  Result<ArgumentExpressions> arguments();
  Result<void> argument(ArgumentExpressions* arguments);
  Result<std::string> dotted_name();
  Result<Target> single_target(bool with_namespace);
  void note_unknown(uint32_t line, std::string_view what, const std::string& name);
  // The node, once its depth is known. Errors: nested too deep.
  Result<ExpressionPtr> finish(ExpressionPtr node);

  ParserState& state_;
};

}  // namespace inferd::jinja
