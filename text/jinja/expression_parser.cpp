// Expressions. The order of precedence, from loose to tight: inline if, or, and, not, comparisons,
// + -,
// ~, * / // %, **, unary - +, then attributes, subscripts, calls, filters and tests.
#include <algorithm>

#include "text/jinja/parser_state.h"

namespace inferd::jinja {
namespace {

template <typename Node, typename... Rest>
std::unique_ptr<Node> make(Rest&&... rest) {
  return std::make_unique<Node>(std::forward<Rest>(rest)...);
}

ExpressionPtr literal(uint32_t line, Value value) {
  return std::make_unique<LiteralExpression>(line, std::move(value));
}

std::unique_ptr<OperandsExpression> operands(ExpressionKind kind, uint32_t line) {
  return std::make_unique<OperandsExpression>(kind, line);
}

void deepen(Expression* node, const Expression* child) {
  if (child != nullptr) node->depth = std::max(node->depth, child->depth + 1);
}

void deepen(Expression* node, std::initializer_list<const Expression*> children) {
  for (const Expression* child : children) deepen(node, child);
}

void deepen(Expression* node, const ArgumentExpressions& arguments) {
  for (const auto& value : arguments.positional) deepen(node, value.get());
  for (const auto& [name, value] : arguments.named) deepen(node, value.get());
  deepen(node, arguments.more_positional.get());
  deepen(node, arguments.more_named.get());
}

}  // namespace

Result<ExpressionPtr> ExpressionParser::finish(ExpressionPtr node) {
  if (node->depth > kSyntaxDepthMax) {
    return syntax_error(node->line, "an expression is nested deeper than " +
                                        std::to_string(kSyntaxDepthMax) + " levels");
  }
  return node;
}

Result<ExpressionPtr> ExpressionParser::expression() {
  const DepthGuard guard(&state_.depth);
  if (state_.depth > kSyntaxDepthMax) return state_.fail("expressions are nested too deep");
  const size_t unknown_before = state_.unknown.size();
  INFERD_ASSIGN(ExpressionPtr node, logical_or());
  while (state_.current().is_name("if")) {
    const uint32_t line = state_.line();
    state_.next();
    state_.unknown.resize(unknown_before, {0, ""});
    const Restore<bool> conditional(&state_.conditional, true);
    auto choice = make<ConditionalExpression>(line);
    choice->then = std::move(node);
    INFERD_ASSIGN(choice->test, logical_or());
    if (state_.skip_name("else")) {
      INFERD_ASSIGN(choice->otherwise, expression());
    }
    deepen(choice.get(), {choice->then.get(), choice->test.get(), choice->otherwise.get()});
    INFERD_ASSIGN(node, finish(std::move(choice)));
  }
  return node;
}

Result<ExpressionPtr> ExpressionParser::without_conditional() { return logical_or(); }

Result<ExpressionPtr> ExpressionParser::logical_or() {
  INFERD_ASSIGN(ExpressionPtr left, logical_and());
  while (state_.current().is_name("or")) {
    auto node = operands(ExpressionKind::kOr, state_.next().line);
    node->operands.push_back(std::move(left));
    INFERD_ASSIGN(ExpressionPtr right, logical_and());
    node->operands.push_back(std::move(right));
    deepen(node.get(), {node->operands[0].get(), node->operands[1].get()});
    INFERD_ASSIGN(left, finish(std::move(node)));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::logical_and() {
  INFERD_ASSIGN(ExpressionPtr left, logical_not());
  while (state_.current().is_name("and")) {
    auto node = operands(ExpressionKind::kAnd, state_.next().line);
    node->operands.push_back(std::move(left));
    INFERD_ASSIGN(ExpressionPtr right, logical_not());
    node->operands.push_back(std::move(right));
    deepen(node.get(), {node->operands[0].get(), node->operands[1].get()});
    INFERD_ASSIGN(left, finish(std::move(node)));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::logical_not() {
  if (!state_.current().is_name("not")) return comparison();
  const DepthGuard guard(&state_.depth);
  if (state_.depth > kSyntaxDepthMax) return state_.fail("expressions are nested too deep");
  auto node = operands(ExpressionKind::kNot, state_.next().line);
  INFERD_ASSIGN(ExpressionPtr operand, logical_not());
  node->operands.push_back(std::move(operand));
  deepen(node.get(), {node->operands[0].get()});
  return finish(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::comparison() {
  static constexpr std::pair<std::string_view, Comparison> kOperators[] = {
      {"==", Comparison::kEqual},  {"!=", Comparison::kNotEqual},
      {"<", Comparison::kLess},    {"<=", Comparison::kLessOrEqual},
      {">", Comparison::kGreater}, {">=", Comparison::kGreaterOrEqual}};
  auto node = make<ComparisonExpression>(state_.line());
  INFERD_ASSIGN(node->first, sum());
  while (true) {
    const auto* found =
        std::find_if(std::begin(kOperators), std::end(kOperators),
                     [this](const auto& op) { return state_.current().is_operator(op.first); });
    Comparison op = Comparison::kIn;
    if (found != std::end(kOperators)) {
      op = found->second;
      state_.next();
    } else if (state_.current().is_name("not") && state_.ahead().is_name("in")) {
      op = Comparison::kNotIn;
      state_.next();
      state_.next();
    } else if (!state_.skip_name("in")) {
      break;
    }
    INFERD_ASSIGN(ExpressionPtr operand, sum());
    node->rest.emplace_back(op, std::move(operand));
  }
  if (node->rest.empty()) return std::move(node->first);
  for (const auto& [op, operand] : node->rest) deepen(node.get(), operand.get());
  deepen(node.get(), {node->first.get()});
  return finish(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::sum() {
  INFERD_ASSIGN(ExpressionPtr left, concatenation());
  while (state_.current().is_operator("+") || state_.current().is_operator("-")) {
    const Token op = state_.next();
    auto node = make<BinaryExpression>(
        op.line, op.text == "+" ? BinaryOperator::kAdd : BinaryOperator::kSubtract);
    node->left = std::move(left);
    INFERD_ASSIGN(node->right, concatenation());
    deepen(node.get(), {node->left.get(), node->right.get()});
    INFERD_ASSIGN(left, finish(std::move(node)));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::concatenation() {
  auto node = operands(ExpressionKind::kConcatenation, state_.line());
  do {
    INFERD_ASSIGN(ExpressionPtr operand, product());
    deepen(node.get(), operand.get());
    node->operands.push_back(std::move(operand));
  } while (state_.skip_operator("~"));
  if (node->operands.size() == 1) return std::move(node->operands[0]);
  return finish(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::product() {
  static constexpr std::pair<std::string_view, BinaryOperator> kOperators[] = {
      {"*", BinaryOperator::kMultiply},
      {"/", BinaryOperator::kDivide},
      {"//", BinaryOperator::kFloorDivide},
      {"%", BinaryOperator::kModulo}};
  INFERD_ASSIGN(ExpressionPtr left, power());
  while (true) {
    const auto* found =
        std::find_if(std::begin(kOperators), std::end(kOperators),
                     [this](const auto& op) { return state_.current().is_operator(op.first); });
    if (found == std::end(kOperators)) return left;
    auto node = make<BinaryExpression>(state_.next().line, found->second);
    node->left = std::move(left);
    INFERD_ASSIGN(node->right, power());
    deepen(node.get(), {node->left.get(), node->right.get()});
    INFERD_ASSIGN(left, finish(std::move(node)));
  }
}

Result<ExpressionPtr> ExpressionParser::power() {
  INFERD_ASSIGN(ExpressionPtr left, unary(true));
  while (state_.current().is_operator("**")) {
    auto node = make<BinaryExpression>(state_.next().line, BinaryOperator::kPower);
    node->left = std::move(left);
    INFERD_ASSIGN(node->right, unary(true));
    deepen(node.get(), {node->left.get(), node->right.get()});
    INFERD_ASSIGN(left, finish(std::move(node)));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::unary(bool with_filters) {
  const DepthGuard guard(&state_.depth);
  if (state_.depth > kSyntaxDepthMax) return state_.fail("expressions are nested too deep");
  ExpressionPtr node;
  if (state_.current().is_operator("-") || state_.current().is_operator("+")) {
    const Token sign = state_.next();
    auto signed_node = operands(
        sign.text == "-" ? ExpressionKind::kNegative : ExpressionKind::kPositive, sign.line);
    INFERD_ASSIGN(ExpressionPtr operand, unary(false));
    signed_node->operands.push_back(std::move(operand));
    deepen(signed_node.get(), {signed_node->operands[0].get()});
    INFERD_ASSIGN(node, finish(std::move(signed_node)));
  } else {
    INFERD_ASSIGN(node, primary());
  }
  INFERD_ASSIGN(node, postfix(std::move(node)));
  return with_filters ? filters_and_tests(std::move(node)) : std::move(node);
}

Result<ExpressionPtr> ExpressionParser::primary() {
  const uint32_t line = state_.line();
  switch (state_.current().kind) {
    case TokenKind::kName:
      return name_or_constant();
    case TokenKind::kString: {
      std::string text;
      while (state_.current().kind == TokenKind::kString) text += state_.next().text;
      return literal(line, Value::text(nullptr, text, Origin::kTemplate));
    }
    case TokenKind::kInteger:
      return literal(line, Value::integer(state_.next().integer));
    case TokenKind::kFloat:
      return literal(line, Value::real(state_.next().real));
    default:
      break;
  }
  if (state_.skip_operator("(")) {
    INFERD_ASSIGN(ExpressionPtr node, tuple(true, {}, true));
    INFERD_TRY(state_.expect_operator(")"));
    return node;
  }
  if (state_.current().is_operator("[")) return list();
  if (state_.current().is_operator("{")) return dict();
  return state_.fail("unexpected " + state_.describe_current());
}

Result<ExpressionPtr> ExpressionParser::name_or_constant() {
  const Token token = state_.next();
  const uint32_t line = token.line;
  if (token.text == "true" || token.text == "True") {
    return literal(line, Value::boolean(true));
  }
  if (token.text == "false" || token.text == "False") {
    return literal(line, Value::boolean(false));
  }
  if (token.text == "none" || token.text == "None") {
    return literal(line, Value::none());
  }
  const NameId name = state_.name_id(token.text);
  state_.note_use(name);
  return ExpressionPtr(make<NameExpression>(line, name));
}

Result<ExpressionPtr> ExpressionParser::tuple(bool with_conditional, std::string_view stops_at,
                                              bool in_parentheses) {
  auto node = operands(ExpressionKind::kTuple, state_.line());
  bool is_tuple = false;
  const auto at_end = [&] {
    const Token& token = state_.current();
    return token.kind == TokenKind::kVariableEnd || token.kind == TokenKind::kBlockEnd ||
           token.is_operator(")") || (!stops_at.empty() && token.is_name(stops_at));
  };
  while (!at_end()) {
    INFERD_ASSIGN(ExpressionPtr item, with_conditional ? expression() : without_conditional());
    deepen(node.get(), item.get());
    node->operands.push_back(std::move(item));
    if (!state_.skip_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !node->operands.empty()) return std::move(node->operands[0]);
  if (!is_tuple && !in_parentheses) {
    return state_.fail("expected an expression, got " + state_.describe_current());
  }
  return finish(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::list() {
  auto node = operands(ExpressionKind::kList, state_.next().line);
  while (!state_.current().is_operator("]")) {
    INFERD_ASSIGN(ExpressionPtr item, expression());
    deepen(node.get(), item.get());
    node->operands.push_back(std::move(item));
    if (!state_.current().is_operator("]")) INFERD_TRY(state_.expect_operator(","));
  }
  state_.next();
  return finish(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::dict() {
  auto node = operands(ExpressionKind::kDict, state_.next().line);
  while (!state_.current().is_operator("}")) {
    INFERD_ASSIGN(ExpressionPtr key, expression());
    INFERD_TRY(state_.expect_operator(":"));
    INFERD_ASSIGN(ExpressionPtr value, expression());
    deepen(node.get(), key.get());
    deepen(node.get(), value.get());
    node->operands.push_back(std::move(key));
    node->operands.push_back(std::move(value));
    if (!state_.current().is_operator("}")) INFERD_TRY(state_.expect_operator(","));
  }
  state_.next();
  return finish(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::postfix(ExpressionPtr node) {
  while (true) {
    if (state_.current().is_operator(".")) {
      INFERD_ASSIGN(node, member(std::move(node)));
    } else if (state_.current().is_operator("[")) {
      INFERD_ASSIGN(node, subscript(std::move(node)));
    } else if (state_.current().is_operator("(")) {
      INFERD_ASSIGN(node, call(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<ExpressionPtr> ExpressionParser::filters_and_tests(ExpressionPtr node) {
  while (true) {
    if (state_.skip_operator("|")) {
      INFERD_ASSIGN(node, filter(std::move(node)));
    } else if (state_.current().is_name("is")) {
      INFERD_ASSIGN(node, test(std::move(node)));
    } else if (state_.current().is_operator("(")) {
      INFERD_ASSIGN(node, call(std::move(node)));
    } else {
      return node;
    }
  }
}

// node.name, or node.0.
Result<ExpressionPtr> ExpressionParser::member(ExpressionPtr node) {
  const uint32_t line = state_.next().line;
  if (state_.current().kind == TokenKind::kInteger) {
    auto element = make<SubscriptExpression>(line);
    element->object = std::move(node);
    element->index = make<LiteralExpression>(line, Value::integer(state_.next().integer));
    deepen(element.get(), {element->object.get()});
    return finish(std::move(element));
  }
  if (state_.current().kind != TokenKind::kName) {
    return state_.fail("expected a name or number after '.', got " + state_.describe_current());
  }
  auto attribute = make<AttributeExpression>(line);
  attribute->object = std::move(node);
  attribute->name = state_.next().text;
  deepen(attribute.get(), {attribute->object.get()});
  return finish(std::move(attribute));
}

// node[index], node[start:stop:step]; several indices make a tuple.
Result<ExpressionPtr> ExpressionParser::subscript(ExpressionPtr node) {
  const uint32_t line = state_.next().line;
  auto slice = make<SliceExpression>(line);
  const auto at_part_end = [this] {
    return state_.current().is_operator(":") || state_.current().is_operator("]");
  };
  ExpressionPtr index;
  if (!at_part_end()) {
    INFERD_ASSIGN(index, expression());
  }
  if (state_.skip_operator(":")) {
    slice->start = std::move(index);
    if (!at_part_end()) {
      INFERD_ASSIGN(slice->stop, expression());
    }
    if (state_.skip_operator(":") && !at_part_end()) {
      INFERD_ASSIGN(slice->step, expression());
    }
    if (state_.current().is_operator(",")) {
      return Error(ErrorCode::kUnsupported, "line " + std::to_string(line) +
                                                ": a subscript of several slices is not supported");
    }
    INFERD_TRY(state_.expect_operator("]"));
    slice->object = std::move(node);
    deepen(slice.get(),
           {slice->object.get(), slice->start.get(), slice->stop.get(), slice->step.get()});
    return finish(std::move(slice));
  }
  if (state_.current().is_operator(",") || index == nullptr) {
    auto indices = operands(ExpressionKind::kTuple, line);
    if (index != nullptr) indices->operands.push_back(std::move(index));
    while (state_.skip_operator(",")) {
      INFERD_ASSIGN(ExpressionPtr more, expression());
      indices->operands.push_back(std::move(more));
    }
    for (const auto& operand : indices->operands) deepen(indices.get(), operand.get());
    index = std::move(indices);
  }
  INFERD_TRY(state_.expect_operator("]"));
  auto element = make<SubscriptExpression>(line);
  element->object = std::move(node);
  element->index = std::move(index);
  deepen(element.get(), {element->object.get(), element->index.get()});
  return finish(std::move(element));
}

Result<ExpressionPtr> ExpressionParser::call(ExpressionPtr node) {
  auto call = make<CallExpression>(state_.line());
  call->callee = std::move(node);
  INFERD_ASSIGN(call->arguments, arguments());
  deepen(call.get(), call->arguments);
  deepen(call.get(), {call->callee.get()});
  return finish(std::move(call));
}

Result<ArgumentExpressions> ExpressionParser::arguments() {
  ArgumentExpressions result;
  INFERD_TRY(state_.expect_operator("("));
  while (!state_.current().is_operator(")")) {
    INFERD_TRY(argument(&result));
    if (!state_.current().is_operator(")")) INFERD_TRY(state_.expect_operator(","));
  }
  state_.next();
  return result;
}

Result<void> ExpressionParser::argument(ArgumentExpressions* result) {
  const auto out_of_order = [this] {
    return state_.fail("the arguments of this call are out of order");
  };
  if (state_.skip_operator("*")) {
    if (result->more_positional || result->more_named) return out_of_order();
    INFERD_ASSIGN(result->more_positional, expression());
  } else if (state_.skip_operator("**")) {
    if (result->more_named) return out_of_order();
    INFERD_ASSIGN(result->more_named, expression());
  } else if (state_.current().kind == TokenKind::kName && state_.ahead().is_operator("=")) {
    if (result->more_named) return out_of_order();
    const std::string name = state_.next().text;
    state_.next();
    for (const auto& [other, value] : result->named) {
      if (other == name) return state_.fail("the argument '" + name + "' is given twice");
    }
    INFERD_ASSIGN(ExpressionPtr value, expression());
    result->named.emplace_back(name, std::move(value));
  } else {
    if (result->more_positional || result->more_named || !result->named.empty()) {
      return out_of_order();
    }
    INFERD_ASSIGN(ExpressionPtr value, expression());
    result->positional.push_back(std::move(value));
  }
  return {};
}

Result<std::string> ExpressionParser::dotted_name() {
  INFERD_ASSIGN(const Token first, state_.expect_name());
  std::string name = first.text;
  while (state_.skip_operator(".")) {
    INFERD_ASSIGN(const Token part, state_.expect_name());
    name += "." + part.text;
  }
  return name;
}

void ExpressionParser::note_unknown(uint32_t line, std::string_view what, const std::string& name) {
  if (state_.conditional) return;
  state_.unknown.push_back({line, "there is no " + std::string(what) + " named '" + name + "'"});
}

Result<ExpressionPtr> ExpressionParser::filter(ExpressionPtr input) {
  auto node = make<AppliedExpression>(ExpressionKind::kFilter, state_.line());
  INFERD_ASSIGN(node->name, dotted_name());
  node->filter = find_filter(node->name);
  if (node->filter == nullptr) note_unknown(node->line, "filter", node->name);
  if (state_.current().is_operator("(")) {
    INFERD_ASSIGN(node->arguments, arguments());
  }
  node->input = std::move(input);
  deepen(node.get(), node->arguments);
  deepen(node.get(), {node->input.get()});
  return finish(std::move(node));
}

Result<ExpressionPtr> ExpressionParser::filter_chain(bool starts_with_name) {
  ExpressionPtr node;
  if (starts_with_name) {
    INFERD_ASSIGN(node, filter(nullptr));
  }
  while (state_.skip_operator("|")) {
    INFERD_ASSIGN(node, filter(std::move(node)));
  }
  return node;
}

// node is [not] name [argument]
Result<ExpressionPtr> ExpressionParser::test(ExpressionPtr input) {
  auto node = make<AppliedExpression>(ExpressionKind::kTest, state_.next().line);
  const bool negated = state_.skip_name("not");
  INFERD_ASSIGN(node->name, dotted_name());
  node->test = find_test(node->name);
  if (node->test == nullptr) note_unknown(node->line, "test", node->name);
  const Token& token = state_.current();
  if (token.is_operator("(")) {
    INFERD_ASSIGN(node->arguments, arguments());
  } else if ((token.kind == TokenKind::kName && !state_.is_any_name({"else", "or", "and"})) ||
             token.kind == TokenKind::kString || token.kind == TokenKind::kInteger ||
             token.kind == TokenKind::kFloat || token.is_operator("[") || token.is_operator("{")) {
    if (token.is_name("is")) return state_.fail("tests cannot be chained with 'is'");
    INFERD_ASSIGN(ExpressionPtr argument, primary());
    INFERD_ASSIGN(argument, postfix(std::move(argument)));
    node->arguments.positional.push_back(std::move(argument));
  }
  const uint32_t line = node->line;
  node->input = std::move(input);
  deepen(node.get(), node->arguments);
  deepen(node.get(), {node->input.get()});
  INFERD_ASSIGN(ExpressionPtr result, finish(std::move(node)));
  if (!negated) return result;
  auto negation = operands(ExpressionKind::kNot, line);
  negation->operands.push_back(std::move(result));
  deepen(negation.get(), {negation->operands[0].get()});
  return finish(std::move(negation));
}

Result<Target> ExpressionParser::single_target(bool with_namespace) {
  const DepthGuard guard(&state_.depth);
  if (state_.depth > kSyntaxDepthMax) return state_.fail("targets are nested too deep");
  if (state_.skip_operator("(")) {
    INFERD_ASSIGN(Target inner, target({}, with_namespace));
    INFERD_TRY(state_.expect_operator(")"));
    return inner;
  }
  if (state_.current().kind != TokenKind::kName ||
      state_.is_any_name({"true", "false", "none", "True", "False", "None"})) {
    return state_.fail("cannot assign to " + state_.describe_current());
  }
  Target result;
  result.line = state_.line();
  const std::string name = state_.next().text;
  result.name = state_.name_id(name);
  if (with_namespace && state_.skip_operator(".")) {
    result.kind = Target::Kind::kNamespaceAttribute;
    INFERD_ASSIGN(const Token attribute, state_.expect_name());
    result.attribute = attribute.text;
    return result;
  }
  if (name == "loop" && state_.loops_open > 0) {
    return syntax_error(result.line, "the variable 'loop' cannot be assigned in a for loop");
  }
  return result;
}

Result<Target> ExpressionParser::target(std::string_view stops_at, bool with_namespace) {
  Target result;
  result.kind = Target::Kind::kTuple;
  result.line = state_.line();
  bool is_tuple = false;
  const auto at_end = [&] {
    const Token& token = state_.current();
    return token.kind == TokenKind::kBlockEnd || token.is_operator(")") ||
           (!stops_at.empty() && token.is_name(stops_at));
  };
  while (!at_end()) {
    INFERD_ASSIGN(Target part, single_target(with_namespace));
    result.parts.push_back(std::move(part));
    if (!state_.skip_operator(",")) break;
    is_tuple = true;
  }
  if (result.parts.empty()) {
    return state_.fail("expected a name to assign to, got " + state_.describe_current());
  }
  if (is_tuple) return result;
  Target only = std::move(result.parts[0]);
  return only;
}

}  // namespace inferd::jinja
