// Statements. Expressions are in evaluator.cpp.
#include "text/jinja/interpreter.h"

#include <algorithm>
#include <chrono>

#include "text/jinja/loop.h"
#include "text/jinja/objects.h"
#include "text/jinja/printing.h"
#include "text/jinja/unicode.h"

namespace inferd::jinja {

Interpreter::Interpreter(const Template& source, const Limits& limits, std::optional<std::tm> now)
    : meter_(limits),
      source_(source),
      now_(now),
      scope_(std::make_shared<Scope>(&meter_, nullptr)) {}

Interpreter::~Interpreter() {
  // Macros refer to the scopes that they are defined in, namespaces to anything: cut the cycles.
  for (const auto& scope : captured_scopes_) scope->clear();
  for (const auto& object : kept_objects_) object->clear();
}

bool Interpreter::mentions(std::string_view name) const {
  return std::find(source_.names.begin(), source_.names.end(), name) != source_.names.end();
}

void Interpreter::define(std::string_view name, Value value) {
  const auto found = std::find(source_.names.begin(), source_.names.end(), name);
  if (found == source_.names.end()) return;
  scope_->set(static_cast<NameId>(found - source_.names.begin()), std::move(value));
}

Result<OriginText> Interpreter::render() {
  OriginText out;
  scope_ = inner_scope(scope_);
  const auto flow = run(source_.body, &out);
  if (flow) return out;
  const Error& error = flow.error();
  return error.with_context("line " + std::to_string(fault_line_));
}

std::tm Interpreter::now() const {
  if (now_) return *now_;
  const std::time_t seconds =
      std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm local{};
  localtime_r(&seconds, &local);
  return local;
}

Result<void> Interpreter::check_depth() const {
  if (depth_ <= meter_.limits().depth_max) return {};
  return Error(ErrorCode::kResourceExhausted, "the template calls itself more than " +
                                                  std::to_string(meter_.limits().depth_max) +
                                                  " evaluations deep");
}

Result<void> Interpreter::check_output(const OriginText& out) const {
  if (out.size() <= meter_.limits().output_bytes_max) return {};
  return Error(ErrorCode::kResourceExhausted, "the template writes more than " +
                                                  std::to_string(meter_.limits().output_bytes_max) +
                                                  " bytes");
}

Result<Interpreter::Flow> Interpreter::run(const Body& body, OriginText* out) {
  for (const StatementPtr& statement : body) {
    INFERD_ASSIGN(const Flow flow, run(*statement, out));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::run(const Statement& statement, OriginText* out) {
  const DepthGuard guard(&depth_);
  auto ready = check_depth();
  if (ready) ready = meter_.step();
  if (!ready) {
    note_line(statement.line);
    return std::move(ready).error();
  }
  Result<Flow> flow = run_statement(statement, out);
  if (!flow) note_line(statement.line);
  return flow;
}

Result<Interpreter::Flow> Interpreter::run_statement(const Statement& statement, OriginText* out) {
  switch (statement.kind) {
    case StatementKind::kText: {
      const std::string& text = static_cast<const TextStatement&>(statement).text;
      out->append(text, Origin::kTemplate);
      INFERD_TRY(check_output(*out));
      INFERD_TRY(meter_.step(text.size() / kBytesPerStep));
      return Flow::kNext;
    }
    case StatementKind::kOutput:
      for (const auto& expression : static_cast<const OutputStatement&>(statement).values) {
        INFERD_ASSIGN(const Value value, evaluate(*expression));
        INFERD_TRY(write(value, out));
      }
      return Flow::kNext;
    case StatementKind::kFor: {
      const auto& loop = static_cast<const ForStatement&>(statement);
      INFERD_ASSIGN(const Value items, evaluate(*loop.items));
      const std::shared_ptr<Scope> outer = scope_;
      return run_for(loop, outer, items, 0, out);
    }
    case StatementKind::kIf:
      return run_if(static_cast<const IfStatement&>(statement), out);
    case StatementKind::kSet: {
      const auto& set = static_cast<const SetStatement&>(statement);
      INFERD_ASSIGN(const Value value, evaluate(*set.value));
      INFERD_TRY(assign(set.target, value));
      return Flow::kNext;
    }
    case StatementKind::kSetBlock:
    case StatementKind::kFilterBlock:
      return run_capture(static_cast<const CaptureStatement&>(statement), out);
    case StatementKind::kMacro: {
      const auto& macro = static_cast<const MacroStatement&>(statement);
      scope_->set(macro.name, define_macro(macro.macro));
      return Flow::kNext;
    }
    case StatementKind::kCallBlock:
      return run_call_block(static_cast<const CallBlockStatement&>(statement), out);
    case StatementKind::kWith:
      return run_with(static_cast<const WithStatement&>(statement), out);
    case StatementKind::kScope:
      return run_in(inner_scope(scope_), static_cast<const ScopeStatement&>(statement).body, out);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Result<void> Interpreter::write(const Value& value, OriginText* out) {
  INFERD_TRY(append_printed(*this, value, out));
  return check_output(*out);
}

Result<Interpreter::Flow> Interpreter::run_in(std::shared_ptr<Scope> scope, const Body& body,
                                              OriginText* out) {
  const Restore<std::shared_ptr<Scope>> inner(&scope_, std::move(scope));
  return run(body, out);
}

Result<Interpreter::Flow> Interpreter::run_if(const IfStatement& statement, OriginText* out) {
  for (const auto& [test, body] : statement.branches) {
    INFERD_ASSIGN(const Value value, evaluate(*test));
    if (truth(value)) return run(body, out);
  }
  return run(statement.otherwise, out);
}

Result<Interpreter::Flow> Interpreter::run_for(const ForStatement& statement,
                                               const std::shared_ptr<Scope>& outer,
                                               const Value& items, int64_t depth0,
                                               OriginText* out) {
  Value source = items;
  if (!source.is(Kind::kSequence)) {
    INFERD_ASSIGN(std::vector<Value> taken, iterate(items));
    INFERD_ASSIGN(source, list(std::move(taken)));
  }
  const auto loop =
      std::make_shared<LoopObject>(&meter_, statement, outer, std::move(source), depth0);
  std::shared_ptr<Scope> scope;
  bool any = false;
  while (true) {
    INFERD_ASSIGN(const std::optional<Value> item, loop->advance(*this));
    if (!item) break;
    any = true;
    // A round's variables go when it ends, unless a macro refers to them.
    if (scope == nullptr || scope.use_count() > 1) {
      scope = inner_scope(outer);
    } else {
      scope->clear();
    }
    const Restore<std::shared_ptr<Scope>> inner(&scope_, scope);
    INFERD_TRY(assign(statement.target, *item));
    if (statement.uses_loop) scope->set(kNameLoop, Value::object(loop));
    INFERD_ASSIGN(const Flow flow, run(statement.body, out));
    if (flow == Flow::kBreak) return Flow::kNext;
  }
  if (any || statement.otherwise.empty()) return Flow::kNext;
  return run_in(inner_scope(outer), statement.otherwise, out);
}

Result<Value> Interpreter::run_recursive_loop(const ForStatement& statement,
                                              const std::shared_ptr<Scope>& outer,
                                              const Value& items, int64_t depth0) {
  const DepthGuard guard(&depth_);
  INFERD_TRY(check_depth());
  OriginText out;
  INFERD_ASSIGN([[maybe_unused]] const Flow flow, run_for(statement, outer, items, depth0, &out));
  return text(std::move(out));
}

Result<bool> Interpreter::passes(const ForStatement& statement, const std::shared_ptr<Scope>& outer,
                                 const Value& item) {
  const Restore<std::shared_ptr<Scope>> inner(&scope_, inner_scope(outer));
  INFERD_TRY(assign(statement.target, item));
  INFERD_ASSIGN(const Value value, evaluate(*statement.test));
  return truth(value);
}

// {% set x %}…{% endset %} and {% filter f %}…{% endfilter %}: a body whose text is a value.
Result<Interpreter::Flow> Interpreter::run_capture(const CaptureStatement& statement,
                                                   OriginText* out) {
  const std::shared_ptr<Scope> outer = scope_;
  OriginText captured;
  Value value;
  {
    const Restore<std::shared_ptr<Scope>> inner(&scope_, inner_scope(outer));
    INFERD_ASSIGN(const Flow flow, run(statement.body, &captured));
    if (flow != Flow::kNext) return flow;
    value = text(std::move(captured));
    if (statement.filter != nullptr) {
      const auto& filter = static_cast<const AppliedExpression&>(*statement.filter);
      INFERD_ASSIGN(value, evaluate_filter(filter, &value));
    }
  }
  if (statement.kind == StatementKind::kSetBlock) {
    INFERD_TRY(assign(statement.target, value));
  } else {
    INFERD_TRY(write(value, out));
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::run_with(const WithStatement& statement, OriginText* out) {
  const std::shared_ptr<Scope> scope = inner_scope(scope_);
  std::vector<Value> values;
  for (const auto& [target, expression] : statement.variables) {
    INFERD_ASSIGN(Value value, evaluate(*expression));
    values.push_back(std::move(value));
  }
  const Restore<std::shared_ptr<Scope>> inner(&scope_, scope);
  for (size_t i = 0; i < values.size(); ++i) {
    INFERD_TRY(assign(statement.variables[i].first, values[i]));
  }
  return run(statement.body, out);
}

Result<Interpreter::Flow> Interpreter::run_call_block(const CallBlockStatement& statement,
                                                      OriginText* out) {
  const Value caller = define_macro(statement.caller);
  INFERD_ASSIGN(const Value value, evaluate_call(*statement.call, &caller));
  INFERD_TRY(write(value, out));
  return Flow::kNext;
}

Value Interpreter::define_macro(const MacroDefinition& macro) {
  if (!scope_->captured) {
    scope_->captured = true;
    captured_scopes_.push_back(scope_);
  }
  return Value::object(std::make_shared<MacroObject>(&meter_, macro, scope_));
}

Result<void> Interpreter::assign(const Target& target, const Value& value) {
  switch (target.kind) {
    case Target::Kind::kName:
      scope_->set(target.name, value);
      return {};
    case Target::Kind::kNamespaceAttribute: {
      const Value* object = scope_->find(target.name);
      auto* space = object != nullptr && object->is(Kind::kObject)
                        ? dynamic_cast<NamespaceObject*>(&object->as_object())
                        : nullptr;
      if (space == nullptr) {
        return type_error("'" + source_.names[target.name] +
                          "' is no namespace, so its attribute '" + target.attribute +
                          "' cannot be set");
      }
      space->set(target.attribute, value);
      return {};
    }
    case Target::Kind::kTuple:
      break;
  }
  INFERD_ASSIGN(const std::vector<Value> items, iterate(value));
  if (items.size() != target.parts.size()) {
    return type_error("cannot unpack " + std::to_string(items.size()) + " values into " +
                      std::to_string(target.parts.size()) + " variables");
  }
  for (size_t i = 0; i < items.size(); ++i) INFERD_TRY(assign(target.parts[i], items[i]));
  return {};
}

Result<Value> Interpreter::run_macro(const MacroDefinition& macro,
                                     const std::shared_ptr<Scope>& closure, Arguments arguments) {
  const DepthGuard guard(&depth_);
  INFERD_TRY(check_depth());
  const std::shared_ptr<Scope> scope = inner_scope(closure);
  const Restore<std::shared_ptr<Scope>> inner(&scope_, scope);
  INFERD_TRY(bind_parameters(macro, &arguments, scope.get()));
  OriginText out;
  INFERD_ASSIGN([[maybe_unused]] const Flow flow, run(macro.body, &out));
  return text(std::move(out));
}

// Sets the macro's parameters and special variables. Defaults are evaluated in the macro's scope,
// one after the other, so that a default may name a parameter before it.
Result<void> Interpreter::bind_parameters(const MacroDefinition& macro, Arguments* arguments,
                                          Scope* scope) {
  auto& positional = arguments->positional;
  auto& named = arguments->named;
  const auto take = [&named](std::string_view name) -> std::optional<Value> {
    for (auto it = named.begin(); it != named.end(); ++it) {
      if (it->first != name) continue;
      Value value = std::move(it->second);
      named.erase(it);
      return value;
    }
    return std::nullopt;
  };
  const size_t count = macro.parameters.size();
  for (size_t i = 0; i < count; ++i) {
    std::optional<Value> value;
    if (i < positional.size()) {
      value = positional[i];
    } else {
      value = take(macro.parameter_names[i]);
    }
    const size_t from_end = count - i;
    if (!value && from_end <= macro.defaults.size()) {
      INFERD_ASSIGN(value, evaluate(*macro.defaults[macro.defaults.size() - from_end]));
    }
    if (!value) {
      value = Value::undefined("the parameter '" + macro.parameter_names[i] + "' of the macro '" +
                               macro.name + "' was not provided");
    }
    scope->set(macro.parameters[i], std::move(*value));
  }
  if (macro.uses_caller) {
    std::optional<Value> caller = take("caller");
    scope->set(kNameCaller, caller ? *caller : Value::undefined("there is no caller here"));
  }
  if (macro.uses_kwargs) {
    auto rest = std::make_shared<DictObject>(&meter_);
    for (auto& [name, value] : named) rest->set(text(name, Origin::kTemplate), std::move(value));
    INFERD_ASSIGN(Value kwargs, make_dict(std::move(rest)));
    scope->set(kNameKwargs, std::move(kwargs));
  } else if (!named.empty()) {
    return type_error("the macro '" + macro.name + "' takes no argument named '" + named[0].first +
                      "'");
  }
  if (macro.uses_varargs) {
    const size_t taken = std::min(count, positional.size());
    INFERD_ASSIGN(Value varargs,
                  list({positional.begin() + static_cast<std::ptrdiff_t>(taken), positional.end()},
                       Flavor::kTuple));
    scope->set(kNameVarargs, std::move(varargs));
  } else if (positional.size() > count) {
    return type_error("the macro '" + macro.name + "' takes at most " + std::to_string(count) +
                      " arguments, got " + std::to_string(positional.size()));
  }
  return {};
}

Result<std::vector<Value>> Interpreter::iterate(const Value& value) {
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::kUndefined:
      return items;
    case Kind::kText: {
      const OriginText& text_value = value.as_text();
      INFERD_TRY(meter_.expect(text_value.size() * sizeof(Value)));
      for (size_t at = 0; at < text_value.size();) {
        INFERD_TRY(meter_.step());
        const size_t begin = at;
        next_character(text_value.view(), &at);
        items.push_back(text(text_value.slice(begin, at), value.is_markup()));
      }
      return items;
    }
    case Kind::kDict:
      for (const auto& [key, entry] : value.as_dict().entries()) items.push_back(key);
      break;
    case Kind::kSequence: {
      SequenceObject& sequence = value.as_sequence();
      const size_t first = sequence.flavor == Flavor::kIterator ? sequence.taken : 0;
      if (sequence.flavor == Flavor::kIterator) sequence.taken = sequence.items.size();
      if (sequence.failure) return *sequence.failure;
      items.assign(sequence.items.begin() + static_cast<std::ptrdiff_t>(first),
                   sequence.items.end());
      break;
    }
    default:
      return type_error("'" + std::string(type_name(value)) + "' object is not iterable");
  }
  INFERD_TRY(meter_.step(items.size()));
  return items;
}

}  // namespace inferd::jinja
