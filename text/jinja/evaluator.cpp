// Expressions of the interpreter.
#include <algorithm>

#include "text/jinja/attributes.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/objects.h"
#include "text/jinja/printing.h"
#include "text/jinja/registry.h"

namespace inferd::jinja {

Result<Value> Interpreter::evaluate(const Expression& expression) {
  if (expression.kind == ExpressionKind::kLiteral) {
    return static_cast<const LiteralExpression&>(expression).value;
  }
  const DepthGuard guard(&depth_);
  auto ready = check_depth();
  if (ready) ready = meter_.step();
  if (!ready) {
    note_line(expression.line);
    return std::move(ready).error();
  }
  Result<Value> value = evaluate_node(expression);
  if (!value) note_line(expression.line);
  return value;
}

Result<Value> Interpreter::evaluate_node(const Expression& expression) {
  switch (expression.kind) {
    case ExpressionKind::kLiteral:
      return static_cast<const LiteralExpression&>(expression).value;
    case ExpressionKind::kName:
      return evaluate_name(static_cast<const NameExpression&>(expression));
    case ExpressionKind::kList:
    case ExpressionKind::kTuple: {
      const auto& node = static_cast<const OperandsExpression&>(expression);
      INFERD_ASSIGN(std::vector<Value> items, evaluate_all(node.operands));
      return list(std::move(items),
                  node.kind == ExpressionKind::kList ? Flavor::kList : Flavor::kTuple);
    }
    case ExpressionKind::kDict:
      return evaluate_dict(static_cast<const OperandsExpression&>(expression));
    case ExpressionKind::kNot:
    case ExpressionKind::kNegative:
    case ExpressionKind::kPositive: {
      const auto& node = static_cast<const OperandsExpression&>(expression);
      INFERD_ASSIGN(const Value operand, evaluate(*node.operands[0]));
      if (node.kind == ExpressionKind::kNot) return Value::boolean(!truth(operand));
      return node.kind == ExpressionKind::kNegative ? negate(operand) : identity(operand);
    }
    case ExpressionKind::kBinary: {
      const auto& node = static_cast<const BinaryExpression&>(expression);
      INFERD_ASSIGN(const Value left, evaluate(*node.left));
      INFERD_ASSIGN(const Value right, evaluate(*node.right));
      return apply(*this, node.op, left, right);
    }
    case ExpressionKind::kAnd:
    case ExpressionKind::kOr: {
      const auto& node = static_cast<const OperandsExpression&>(expression);
      INFERD_ASSIGN(Value left, evaluate(*node.operands[0]));
      if (truth(left) == (node.kind == ExpressionKind::kOr)) return left;
      return evaluate(*node.operands[1]);
    }
    case ExpressionKind::kConcatenation:
      return evaluate_concatenation(static_cast<const OperandsExpression&>(expression));
    case ExpressionKind::kComparison:
      return evaluate_comparison(static_cast<const ComparisonExpression&>(expression));
    case ExpressionKind::kConditional:
      return evaluate_conditional(static_cast<const ConditionalExpression&>(expression));
    case ExpressionKind::kAttribute: {
      const auto& node = static_cast<const AttributeExpression&>(expression);
      INFERD_ASSIGN(const Value object, evaluate(*node.object));
      return get_attribute(*this, object, node.name);
    }
    case ExpressionKind::kSubscript: {
      const auto& node = static_cast<const SubscriptExpression&>(expression);
      INFERD_ASSIGN(const Value object, evaluate(*node.object));
      INFERD_ASSIGN(const Value index, evaluate(*node.index));
      return get_item(*this, object, index);
    }
    case ExpressionKind::kSlice:
      return evaluate_slice(static_cast<const SliceExpression&>(expression));
    case ExpressionKind::kCall:
      return evaluate_call(static_cast<const CallExpression&>(expression), nullptr);
    case ExpressionKind::kFilter:
      return evaluate_filter(static_cast<const AppliedExpression&>(expression), nullptr);
    case ExpressionKind::kTest:
      return evaluate_test(static_cast<const AppliedExpression&>(expression));
  }
  return Error(ErrorCode::kInternal, "an expression of unknown kind");
}

Result<Value> Interpreter::evaluate_name(const NameExpression& expression) {
  if (const Value* found = scope_->find(expression.name)) return *found;
  const std::string& name = source_.names[expression.name];
  if (const GlobalFunction function = find_global(name)) {
    return Value::object(std::make_shared<FunctionObject>(name, function));
  }
  return Value::undefined("'" + name + "' is undefined");
}

Result<std::vector<Value>> Interpreter::evaluate_all(
    const std::vector<ExpressionPtr>& expressions) {
  std::vector<Value> values;
  values.reserve(expressions.size());
  for (const ExpressionPtr& expression : expressions) {
    INFERD_ASSIGN(Value value, evaluate(*expression));
    values.push_back(std::move(value));
  }
  return values;
}

Result<Value> Interpreter::evaluate_dict(const OperandsExpression& expression) {
  auto dict = std::make_shared<DictObject>(&meter_);
  for (size_t i = 0; i < expression.operands.size(); i += 2) {
    INFERD_ASSIGN(Value key, evaluate(*expression.operands[i]));
    INFERD_ASSIGN(Value value, evaluate(*expression.operands[i + 1]));
    if (!key.shape().hashable) {
      return type_error("a '" + std::string(type_name(key)) +
                        "' cannot be the key of a dictionary");
    }
    dict->set(std::move(key), std::move(value));
  }
  return make_dict(std::move(dict));
}

Result<Value> Interpreter::evaluate_concatenation(const OperandsExpression& expression) {
  OriginText result;
  for (const ExpressionPtr& operand : expression.operands) {
    INFERD_ASSIGN(const Value value, evaluate(*operand));
    INFERD_TRY(append_printed(*this, value, &result));
    INFERD_TRY(meter_.expect(result.size()));
  }
  return text(std::move(result));
}

Result<Value> Interpreter::evaluate_comparison(const ComparisonExpression& expression) {
  INFERD_ASSIGN(Value left, evaluate(*expression.first));
  for (const auto& [op, operand] : expression.rest) {
    INFERD_ASSIGN(Value right, evaluate(*operand));
    INFERD_ASSIGN(const bool holds, compare(*this, op, left, right));
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Result<Value> Interpreter::evaluate_conditional(const ConditionalExpression& expression) {
  INFERD_ASSIGN(const Value test, evaluate(*expression.test));
  if (truth(test)) return evaluate(*expression.then);
  if (expression.otherwise != nullptr) return evaluate(*expression.otherwise);
  return Value::undefined("the inline if is false and has no else");
}

Result<Value> Interpreter::evaluate_slice(const SliceExpression& expression) {
  INFERD_ASSIGN(const Value object, evaluate(*expression.object));
  const auto bound = [this](const ExpressionPtr& part) -> Result<Value> {
    return part == nullptr ? Result<Value>(Value::none()) : evaluate(*part);
  };
  INFERD_ASSIGN(const Value start, bound(expression.start));
  INFERD_ASSIGN(const Value stop, bound(expression.stop));
  INFERD_ASSIGN(const Value step, bound(expression.step));
  return get_slice(*this, object, start, stop, step);
}

Result<Arguments> Interpreter::evaluate_arguments(const ArgumentExpressions& expressions) {
  Arguments arguments;
  INFERD_ASSIGN(arguments.positional, evaluate_all(expressions.positional));
  if (expressions.more_positional != nullptr) {
    INFERD_ASSIGN(const Value more, evaluate(*expressions.more_positional));
    INFERD_ASSIGN(const std::vector<Value> items, iterate(more));
    arguments.positional.insert(arguments.positional.end(), items.begin(), items.end());
  }
  for (const auto& [name, expression] : expressions.named) {
    INFERD_ASSIGN(Value value, evaluate(*expression));
    arguments.named.emplace_back(name, std::move(value));
  }
  if (expressions.more_named != nullptr) {
    INFERD_ASSIGN(const Value more, evaluate(*expressions.more_named));
    INFERD_TRY(add_named(more, &arguments));
  }
  return arguments;
}

Result<void> Interpreter::add_named(const Value& mapping, Arguments* arguments) {
  if (!mapping.is(Kind::kDict)) {
    return type_error("the argument after ** must be a mapping, not '" +
                      std::string(type_name(mapping)) + "'");
  }
  for (const auto& [key, value] : mapping.as_dict().entries()) {
    INFERD_TRY(meter_.step(arguments->named.size() + 1));
    INFERD_ASSIGN(const OriginText name, to_text(key, "a keyword"));
    if (arguments->find(name.view()) != nullptr) {
      return type_error("the argument '" + std::string(name.view()) + "' is given twice");
    }
    arguments->named.emplace_back(name.view(), value);
  }
  return {};
}

Result<Value> Interpreter::evaluate_call(const CallExpression& expression, const Value* caller) {
  // A method or function that is called at once needs no object of its own.
  const Method* method = nullptr;
  GlobalFunction function = nullptr;
  Value callee;
  if (expression.callee->kind == ExpressionKind::kAttribute) {
    const auto& attribute = static_cast<const AttributeExpression&>(*expression.callee);
    INFERD_ASSIGN(callee, evaluate(*attribute.object));
    method = find_method(callee, attribute.name);
    if (method == nullptr || method->function == nullptr) {
      method = nullptr;
      auto found = get_attribute(*this, callee, attribute.name);
      if (!found) note_line(attribute.line);
      INFERD_ASSIGN(callee, std::move(found));
    }
  } else if (expression.callee->kind == ExpressionKind::kName) {
    const NameId name = static_cast<const NameExpression&>(*expression.callee).name;
    if (scope_->find(name) == nullptr) function = find_global(source_.names[name]);
    if (function == nullptr) {
      INFERD_ASSIGN(callee, evaluate(*expression.callee));
    }
  } else {
    INFERD_ASSIGN(callee, evaluate(*expression.callee));
  }
  INFERD_ASSIGN(Arguments arguments, evaluate_arguments(expression.arguments));
  if (caller != nullptr) {
    if (arguments.find("caller") != nullptr) return type_error("there are two callers");
    arguments.named.emplace_back("caller", *caller);
  }
  if (function != nullptr) return function(*this, arguments);
  if (method == nullptr) return call(callee, std::move(arguments));
  auto result = method->function(*this, callee, arguments);
  if (result) return result;
  return result.error().with_context(std::string(method->name) + "()");
}

Result<Value> Interpreter::call(const Value& callee, Arguments arguments) {
  if (callee.is(Kind::kUndefined)) return type_error(callee.undefined_reason());
  if (!callee.is(Kind::kObject)) {
    return type_error("'" + std::string(type_name(callee)) + "' object is not callable");
  }
  const std::shared_ptr<Object> object = callee.object_pointer();  // alive during the call
  return object->call(*this, std::move(arguments));
}

Result<Value> Interpreter::evaluate_filter(const AppliedExpression& expression,
                                           const Value* captured) {
  Value input;
  if (expression.input == nullptr) {
    INFERD_CHECK(captured != nullptr);
    input = *captured;
  } else if (captured != nullptr) {  // the chain of a filter block
    const auto& inner = static_cast<const AppliedExpression&>(*expression.input);
    INFERD_ASSIGN(input, evaluate_filter(inner, captured));
  } else {
    INFERD_ASSIGN(input, evaluate(*expression.input));
  }
  INFERD_ASSIGN(const Arguments arguments, evaluate_arguments(expression.arguments));
  if (expression.filter == nullptr) {
    return type_error("there is no filter named '" + expression.name + "'");
  }
  auto result = expression.filter(*this, input, arguments);
  if (result) return result;
  return result.error().with_context("filter '" + expression.name + "'");
}

Result<Value> Interpreter::evaluate_test(const AppliedExpression& expression) {
  INFERD_ASSIGN(const Value input, evaluate(*expression.input));
  INFERD_ASSIGN(const Arguments arguments, evaluate_arguments(expression.arguments));
  if (expression.test == nullptr) {
    return type_error("there is no test named '" + expression.name + "'");
  }
  auto result = expression.test(*this, input, arguments);
  if (result) return Value::boolean(*result);
  return result.error().with_context("test '" + expression.name + "'");
}

Result<Value> Interpreter::call_filter(const std::string& name, const Value& input,
                                       const Arguments& arguments) {
  const FilterFunction filter = find_filter(name);
  if (filter == nullptr) return type_error("there is no filter named '" + name + "'");
  const DepthGuard guard(&depth_);  // map('map', …)
  INFERD_TRY(check_depth());
  INFERD_TRY(meter_.step());
  return filter(*this, input, arguments);
}

Result<bool> Interpreter::call_test(const std::string& name, const Value& input,
                                    const Arguments& arguments) {
  const TestFunction test = find_test(name);
  if (test == nullptr) return type_error("there is no test named '" + name + "'");
  INFERD_TRY(meter_.step());
  return test(*this, input, arguments);
}

}  // namespace inferd::jinja
