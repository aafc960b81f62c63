#include "text/jinja/parser.h"

#include <algorithm>

#include "text/jinja/parser_state.h"

namespace inferd::jinja {

ParserState::ParserState(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  INFERD_CHECK(!tokens_.empty() && tokens_.back().kind == TokenKind::kEnd);
  INFERD_CHECK(name_id("loop") == kNameLoop && name_id("caller") == kNameCaller);
  INFERD_CHECK(name_id("kwargs") == kNameKwargs && name_id("varargs") == kNameVarargs);
}

bool ParserState::skip_operator(std::string_view op) {
  if (!current().is_operator(op)) return false;
  next();
  return true;
}

bool ParserState::skip_name(std::string_view name) {
  if (!current().is_name(name)) return false;
  next();
  return true;
}

Result<void> ParserState::expect_operator(std::string_view op) {
  if (skip_operator(op)) return {};
  return fail("expected '" + std::string(op) + "', got " + describe_current());
}

Result<Token> ParserState::expect_name() {
  if (current().kind == TokenKind::kName) return next();
  return fail("expected a name, got " + describe_current());
}

Result<void> ParserState::expect(TokenKind kind) {
  if (current().kind != kind) {
    return fail(std::string("expected the end of the ") +
                (kind == TokenKind::kVariableEnd ? "{{ }} expression" : "{% %} tag") + ", got " +
                describe_current());
  }
  next();
  return {};
}

bool ParserState::is_any_name(std::initializer_list<std::string_view> names) const {
  return std::any_of(names.begin(), names.end(),
                     [this](std::string_view name) { return current().is_name(name); });
}

std::string ParserState::describe_current() const {
  switch (current().kind) {
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kVariableEnd:
      return "'}}'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kString:
      return "a string";
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return "a number";
    case TokenKind::kName:
    case TokenKind::kOperator:
      return "'" + current().text + "'";
    default:
      return "template text";
  }
}

NameId ParserState::name_id(std::string_view name) {
  const auto [found, added] = ids_.emplace(std::string(name), static_cast<NameId>(names_.size()));
  if (added) names_.emplace_back(name);
  return found->second;
}

void ParserState::note_use(NameId name) {
  uses.loop = uses.loop || name == kNameLoop;
  uses.caller = uses.caller || name == kNameCaller;
  uses.kwargs = uses.kwargs || name == kNameKwargs;
  uses.varargs = uses.varargs || name == kNameVarargs;
}

void ParserState::Uses::add(const Uses& inner) {
  loop = loop || inner.loop;
  caller = caller || inner.caller;
  kwargs = kwargs || inner.kwargs;
  varargs = varargs || inner.varargs;
}

namespace {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : state_(std::move(tokens)), expressions_(&state_) {}

  Result<std::unique_ptr<const Template>> run() {
    auto result = std::make_unique<Template>();
    INFERD_ASSIGN(result->body, statements({}));
    if (!state_.unknown.empty()) {
      return syntax_error(state_.unknown[0].line, state_.unknown[0].message);
    }
    result->names = state_.take_names();
    return std::unique_ptr<const Template>(std::move(result));
  }

 private:
  using Ends = std::initializer_list<std::string_view>;

  // Statements up to a tag whose name is in `ends` (the name is then the current token), or up to
  // the end of the template if `ends` is empty.
  Result<Body> statements(Ends ends);
  // The same, behind the tag that opens the body.
  Result<Body> body(Ends ends);
  // The same with one end, whose tag is passed.
  Result<Body> body_and_end(std::string_view end);
  Result<StatementPtr> statement();
  Result<StatementPtr> output();
  Result<StatementPtr> parse_for();
  Result<StatementPtr> parse_if();
  Result<StatementPtr> parse_set();
  Result<StatementPtr> parse_macro();
  Result<StatementPtr> parse_call();
  Result<StatementPtr> parse_filter();
  Result<StatementPtr> parse_with();
  Result<StatementPtr> parse_generation();
  Result<StatementPtr> parse_print();
  Result<StatementPtr> parse_break();
  Error unknown_tag(const Token& tag) const;
  Result<void> signature(MacroDefinition* macro);
  Result<void> macro_body(MacroDefinition* macro, std::string_view end);

  ParserState state_;
  ExpressionParser expressions_;
};

Result<Body> Parser::statements(Ends ends) {
  const DepthGuard guard(&state_.depth);
  if (state_.depth > kSyntaxDepthMax) return state_.fail("statements are nested too deep");
  Body result;
  while (true) {
    const Token& token = state_.current();
    if (token.kind == TokenKind::kEnd) {
      if (ends.size() == 0) return result;
      return state_.fail("the template ends where {% " + std::string(*(ends.end() - 1)) +
                         " %} is due");
    }
    if (token.kind == TokenKind::kData) {
      result.push_back(std::make_unique<TextStatement>(token.line, token.text));
      state_.next();
    } else if (token.kind == TokenKind::kVariableBegin) {
      state_.next();
      INFERD_ASSIGN(StatementPtr value, output());
      result.push_back(std::move(value));
    } else {
      INFERD_CHECK(token.kind == TokenKind::kBlockBegin);
      state_.next();
      if (state_.is_any_name(ends)) return result;
      INFERD_ASSIGN(StatementPtr inner, statement());
      result.push_back(std::move(inner));
      INFERD_TRY(state_.expect(TokenKind::kBlockEnd));
    }
  }
}

Result<Body> Parser::body(Ends ends) {
  state_.skip_operator(":");
  INFERD_TRY(state_.expect(TokenKind::kBlockEnd));
  return statements(ends);
}

Result<Body> Parser::body_and_end(std::string_view end) {
  INFERD_ASSIGN(Body result, body({end}));
  state_.next();
  return result;
}

Result<StatementPtr> Parser::output() {
  auto result = std::make_unique<OutputStatement>(state_.line());
  INFERD_ASSIGN(ExpressionPtr value, expressions_.tuple(true));
  result->values.push_back(std::move(value));
  INFERD_TRY(state_.expect(TokenKind::kVariableEnd));
  return StatementPtr(std::move(result));
}

Result<StatementPtr> Parser::statement() {
  static constexpr std::pair<std::string_view, Result<StatementPtr> (Parser::*)()> kTags[] = {
      {"for", &Parser::parse_for},       {"if", &Parser::parse_if},
      {"set", &Parser::parse_set},       {"macro", &Parser::parse_macro},
      {"call", &Parser::parse_call},     {"filter", &Parser::parse_filter},
      {"with", &Parser::parse_with},     {"generation", &Parser::parse_generation},
      {"print", &Parser::parse_print},   {"break", &Parser::parse_break},
      {"continue", &Parser::parse_break}};
  if (state_.current().kind != TokenKind::kName) {
    return state_.fail("expected the name of a tag, got " + state_.describe_current());
  }
  for (const auto& [name, parse_tag] : kTags) {
    if (state_.current().text == name) return (this->*parse_tag)();
  }
  return unknown_tag(state_.current());
}

Error Parser::unknown_tag(const Token& tag) const {
  static constexpr std::string_view kOfJinja[] = {"autoescape", "block",  "extends",
                                                  "from",       "import", "include"};
  const std::string name = "{% " + tag.text + " %}";
  if (std::find(std::begin(kOfJinja), std::end(kOfJinja), tag.text) != std::end(kOfJinja)) {
    return Error(ErrorCode::kUnsupported,
                 "line " + std::to_string(tag.line) + ": the tag " + name +
                     " is not supported; chat templates consist of one file and plain text");
  }
  return syntax_error(tag.line, "the tag " + name + " is unknown or out of place");
}

Result<StatementPtr> Parser::parse_for() {
  auto result = std::make_unique<ForStatement>(state_.next().line);
  ++state_.loops_open;
  INFERD_ASSIGN(result->target, expressions_.target("in", false));
  if (!state_.skip_name("in")) {
    return state_.fail("expected 'in' of the for loop, got " + state_.describe_current());
  }
  INFERD_ASSIGN(result->items, expressions_.tuple(false, "recursive"));
  // From here on Jinja2 has a new frame, where an unknown filter is an error at once.
  const Restore<bool> conditional(&state_.conditional, false);
  if (state_.skip_name("if")) {
    INFERD_ASSIGN(result->test, expressions_.expression());
  }
  result->recursive = state_.skip_name("recursive");
  ParserState::Uses outer = std::exchange(state_.uses, {});
  {
    const Restore<bool> may_break(&state_.may_break, true);
    INFERD_ASSIGN(result->body, body({"else", "endfor"}));
  }
  result->uses_loop = state_.uses.loop || result->recursive;
  state_.uses.add(outer);
  if (state_.next().text == "else") {
    INFERD_ASSIGN(result->otherwise, body_and_end("endfor"));
  }
  --state_.loops_open;
  return StatementPtr(std::move(result));
}

Result<StatementPtr> Parser::parse_if() {
  auto result = std::make_unique<IfStatement>(state_.next().line);
  const Restore<bool> conditional(&state_.conditional, true);
  while (true) {
    INFERD_ASSIGN(ExpressionPtr test, expressions_.tuple(false));
    INFERD_ASSIGN(Body then, body({"elif", "else", "endif"}));
    result->branches.emplace_back(std::move(test), std::move(then));
    const Token end = state_.next();
    if (end.text == "elif") continue;
    if (end.text == "else") {
      INFERD_ASSIGN(result->otherwise, body_and_end("endif"));
    }
    return StatementPtr(std::move(result));
  }
}

Result<StatementPtr> Parser::parse_set() {
  const uint32_t line = state_.next().line;
  INFERD_ASSIGN(Target target, expressions_.target({}, true));
  if (state_.skip_operator("=")) {
    auto result = std::make_unique<SetStatement>(line);
    result->target = std::move(target);
    INFERD_ASSIGN(result->value, expressions_.tuple(true));
    return StatementPtr(std::move(result));
  }
  auto result = std::make_unique<CaptureStatement>(StatementKind::kSetBlock, line);
  result->target = std::move(target);
  const Restore<bool> conditional(&state_.conditional, false);
  INFERD_ASSIGN(result->filter, expressions_.filter_chain(false));
  INFERD_ASSIGN(result->body, body_and_end("endset"));
  return StatementPtr(std::move(result));
}

Result<void> Parser::signature(MacroDefinition* macro) {
  INFERD_TRY(state_.expect_operator("("));
  while (!state_.current().is_operator(")")) {
    INFERD_ASSIGN(const Token name, state_.expect_name());
    macro->parameters.push_back(state_.name_id(name.text));
    macro->parameter_names.push_back(name.text);
    if (state_.skip_operator("=")) {
      INFERD_ASSIGN(ExpressionPtr value, expressions_.expression());
      macro->defaults.push_back(std::move(value));
    } else if (!macro->defaults.empty()) {
      return state_.fail("a parameter without default follows one with default");
    }
    if (!state_.current().is_operator(")")) INFERD_TRY(state_.expect_operator(","));
  }
  state_.next();
  return {};
}

// The body of a macro or call block, and which of the special variables it has.
Result<void> Parser::macro_body(MacroDefinition* macro, std::string_view end) {
  const uint32_t line = state_.line();
  const Restore<bool> conditional(&state_.conditional, false);
  const Restore<bool> may_break(&state_.may_break, false);
  ParserState::Uses outer = std::exchange(state_.uses, {});
  INFERD_ASSIGN(macro->body, body_and_end(end));
  const auto is_parameter = [macro](NameId name) {
    return std::find(macro->parameters.begin(), macro->parameters.end(), name) !=
           macro->parameters.end();
  };
  macro->uses_caller = state_.uses.caller && !is_parameter(kNameCaller);
  macro->uses_kwargs = state_.uses.kwargs && !is_parameter(kNameKwargs);
  macro->uses_varargs = state_.uses.varargs && !is_parameter(kNameVarargs);
  if (state_.uses.caller && is_parameter(kNameCaller)) {
    const auto place = static_cast<size_t>(
        std::find(macro->parameters.begin(), macro->parameters.end(), kNameCaller) -
        macro->parameters.begin());
    if (place + macro->defaults.size() < macro->parameters.size()) {
      return syntax_error(line, "the parameter 'caller' of a macro needs a default");
    }
  }
  state_.uses.add(outer);
  return {};
}

Result<StatementPtr> Parser::parse_macro() {
  auto result = std::make_unique<MacroStatement>(state_.next().line);
  INFERD_ASSIGN(const Token name, state_.expect_name());
  if (name.text == "loop" && state_.loops_open > 0) {
    return state_.fail("the variable 'loop' cannot be assigned in a for loop");
  }
  result->name = state_.name_id(name.text);
  result->macro.name = name.text;
  const Restore<bool> conditional(&state_.conditional, false);
  INFERD_TRY(signature(&result->macro));
  INFERD_TRY(macro_body(&result->macro, "endmacro"));
  return StatementPtr(std::move(result));
}

Result<StatementPtr> Parser::parse_call() {
  auto result = std::make_unique<CallBlockStatement>(state_.next().line);
  result->caller.name = "caller";
  if (state_.current().is_operator("(")) INFERD_TRY(signature(&result->caller));
  INFERD_ASSIGN(ExpressionPtr call, expressions_.expression());
  if (call->kind != ExpressionKind::kCall) {
    return state_.fail("{% call %} needs the call of a macro");
  }
  result->call.reset(static_cast<CallExpression*>(call.release()));
  INFERD_TRY(macro_body(&result->caller, "endcall"));
  return StatementPtr(std::move(result));
}

Result<StatementPtr> Parser::parse_filter() {
  auto result = std::make_unique<CaptureStatement>(StatementKind::kFilterBlock, state_.next().line);
  const Restore<bool> conditional(&state_.conditional, false);
  INFERD_ASSIGN(result->filter, expressions_.filter_chain(true));
  INFERD_ASSIGN(result->body, body_and_end("endfilter"));
  return StatementPtr(std::move(result));
}

Result<StatementPtr> Parser::parse_with() {
  auto result = std::make_unique<WithStatement>(state_.next().line);
  const Restore<bool> conditional(&state_.conditional, false);
  while (state_.current().kind != TokenKind::kBlockEnd) {
    if (!result->variables.empty()) INFERD_TRY(state_.expect_operator(","));
    INFERD_ASSIGN(Target target, expressions_.target({}, false));
    INFERD_TRY(state_.expect_operator("="));
    INFERD_ASSIGN(ExpressionPtr value, expressions_.expression());
    result->variables.emplace_back(std::move(target), std::move(value));
  }
  INFERD_ASSIGN(result->body, body_and_end("endwith"));
  return StatementPtr(std::move(result));
}

Result<StatementPtr> Parser::parse_generation() {
  auto result = std::make_unique<ScopeStatement>(state_.next().line);
  const Restore<bool> conditional(&state_.conditional, false);
  const Restore<bool> may_break(&state_.may_break, false);
  INFERD_ASSIGN(result->body, body_and_end("endgeneration"));
  return StatementPtr(std::move(result));
}

Result<StatementPtr> Parser::parse_print() {
  auto result = std::make_unique<OutputStatement>(state_.next().line);
  while (state_.current().kind != TokenKind::kBlockEnd) {
    if (!result->values.empty()) INFERD_TRY(state_.expect_operator(","));
    INFERD_ASSIGN(ExpressionPtr value, expressions_.expression());
    result->values.push_back(std::move(value));
  }
  return StatementPtr(std::move(result));
}

Result<StatementPtr> Parser::parse_break() {
  const Token token = state_.next();
  if (!state_.may_break) {
    return syntax_error(token.line, "{% " + token.text + " %} outside of a for loop");
  }
  return StatementPtr(std::make_unique<Statement>(
      token.text == "break" ? StatementKind::kBreak : StatementKind::kContinue, token.line));
}

}  // namespace

Result<std::unique_ptr<const Template>> parse(std::string_view source) {
  INFERD_ASSIGN(std::vector<Token> tokens, tokenize(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace inferd::jinja
