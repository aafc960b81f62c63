// Runs a template: statements write text, expressions give values.
// Owner: text/jinja. One object per rendering, used by one thread; the Template may be shared.
//
// Values made during the rendering belong to the interpreter's meter and must not outlive it; the
// text that render() returns may.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja/arguments.h"
#include "text/jinja/ast.h"
#include "text/jinja/guards.h"
#include "text/jinja/limits.h"
#include "text/jinja/scope.h"
#include "text/jinja/value.h"

namespace inferd::jinja {

class LoopObject;

class Interpreter {
 public:
  Interpreter(const Template& source, const Limits& limits, std::optional<std::tm> now);
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;
  ~Interpreter();

  // Whether the template mentions the variable at all, and defining it if so.
  bool mentions(std::string_view name) const;
  void define(std::string_view name, Value value);

  // Runs the template once. The error's sentence names the line.
  Result<OriginText> render();

  // ---- for filters, tests, methods and objects ----
  Meter* meter() { return &meter_; }
  std::tm now() const;
  Value text(std::string bytes, Origin origin) {
    return Value::text(&meter_, std::move(bytes), origin);
  }
  Value text(OriginText text, bool markup = false) {
    return Value::text(&meter_, std::move(text), markup);
  }
  Result<Value> list(std::vector<Value> items, Flavor flavor = Flavor::kList) {
    return make_sequence(&meter_, flavor, std::move(items));
  }
  // The items that a `for` over `value` meets. An iterator is used up. Errors: not iterable.
  Result<std::vector<Value>> iterate(const Value& value);
  Result<Value> call(const Value& callee, Arguments arguments);
  Result<Value> call_filter(const std::string& name, const Value& input,
                            const Arguments& arguments);
  Result<bool> call_test(const std::string& name, const Value& input, const Arguments& arguments);
  // Keeps the object until the rendering ends, and then clears it: it may be part of a cycle.
  void keep(std::shared_ptr<Object> object) { kept_objects_.push_back(std::move(object)); }

  // ---- for macros and loops ----
  Result<Value> run_macro(const MacroDefinition& macro, const std::shared_ptr<Scope>& closure,
                          Arguments arguments);
  // A loop over `items` with its own text, `depth0` recursions deep.
  Result<Value> run_recursive_loop(const ForStatement& statement,
                                   const std::shared_ptr<Scope>& outer, const Value& items,
                                   int64_t depth0);
  // Whether the loop's `if` lets the item pass.
  Result<bool> passes(const ForStatement& statement, const std::shared_ptr<Scope>& outer,
                      const Value& item);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  // Statements (interpreter.cpp).
  Result<Flow> run(const Body& body, OriginText* out);
  Result<Flow> run(const Statement& statement, OriginText* out);
  Result<Flow> run_statement(const Statement& statement, OriginText* out);
  Result<Flow> run_in(std::shared_ptr<Scope> scope, const Body& body, OriginText* out);
  Result<Flow> run_if(const IfStatement& statement, OriginText* out);
  Result<Flow> run_for(const ForStatement& statement, const std::shared_ptr<Scope>& outer,
                       const Value& items, int64_t depth0, OriginText* out);
  Result<Flow> run_capture(const CaptureStatement& statement, OriginText* out);
  Result<Flow> run_with(const WithStatement& statement, OriginText* out);
  Result<Flow> run_call_block(const CallBlockStatement& statement, OriginText* out);
  Result<void> write(const Value& value, OriginText* out);
  Result<void> check_output(const OriginText& out) const;
  Result<void> assign(const Target& target, const Value& value);
  Result<void> bind_parameters(const MacroDefinition& macro, Arguments* arguments, Scope* scope);
  Value define_macro(const MacroDefinition& macro);
  std::shared_ptr<Scope> inner_scope(const std::shared_ptr<Scope>& outer) {
    return std::make_shared<Scope>(&meter_, outer);
  }

  // Expressions (evaluator.cpp).
  Result<Value> evaluate(const Expression& expression);
  Result<Value> evaluate_node(const Expression& expression);
  Result<Value> evaluate_name(const NameExpression& expression);
  Result<std::vector<Value>> evaluate_all(const std::vector<ExpressionPtr>& expressions);
  Result<Value> evaluate_dict(const OperandsExpression& expression);
  Result<Value> evaluate_concatenation(const OperandsExpression& expression);
  Result<Value> evaluate_comparison(const ComparisonExpression& expression);
  Result<Value> evaluate_conditional(const ConditionalExpression& expression);
  Result<Value> evaluate_slice(const SliceExpression& expression);
  Result<Value> evaluate_call(const CallExpression& expression, const Value* caller);
  Result<Value> evaluate_filter(const AppliedExpression& expression, const Value* captured);
  Result<Value> evaluate_test(const AppliedExpression& expression);
  Result<Arguments> evaluate_arguments(const ArgumentExpressions& expressions);
  Result<void> add_named(const Value& mapping, Arguments* arguments);
  Result<void> check_depth() const;
  void note_line(uint32_t line) {
    if (fault_line_ == 0) fault_line_ = line;
  }

  Meter meter_;  // first: everything below is charged to it
  const Template& source_;
  std::optional<std::tm> now_;
  uint32_t depth_ = 0;
  uint32_t fault_line_ = 0;  // of the innermost node that failed
  std::shared_ptr<Scope> scope_;
  std::vector<std::shared_ptr<Scope>> captured_scopes_;
  std::vector<std::shared_ptr<Object>> kept_objects_;
};

}  // namespace inferd::jinja
