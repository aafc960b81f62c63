// The tests behind `is`.
#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/printing.h"
#include "text/jinja/registry.h"

namespace inferd::jinja {
namespace {

// A test that looks at the value alone.
template <bool (*kHolds)(const Value&)>
Result<bool> plain(Interpreter&, const Value& input, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  return kHolds(input);
}

bool is_defined(const Value& value) { return !value.is(Kind::kUndefined); }
bool is_undefined(const Value& value) { return value.is(Kind::kUndefined); }
bool is_none(const Value& value) { return value.is(Kind::kNone); }
bool is_boolean(const Value& value) { return value.is(Kind::kBool); }
bool is_true(const Value& value) { return value.is(Kind::kBool) && value.as_bool(); }
bool is_false(const Value& value) { return value.is(Kind::kBool) && !value.as_bool(); }
bool is_integer(const Value& value) { return value.is(Kind::kInt); }
bool is_float(const Value& value) { return value.is(Kind::kFloat); }
bool is_number(const Value& value) { return value.is_number(); }
bool is_string(const Value& value) { return value.is(Kind::kText); }
bool is_mapping(const Value& value) { return value.is(Kind::kDict); }
bool is_escaped(const Value& value) { return value.is_markup(); }

// Python asks for __len__ and __getitem__, which Undefined and dictionaries have too.
bool is_sequence(const Value& value) {
  if (value.is(Kind::kSequence)) {
    const Flavor flavor = value.as_sequence().flavor;
    return flavor == Flavor::kList || flavor == Flavor::kTuple || flavor == Flavor::kGroup ||
           flavor == Flavor::kRange;
  }
  return value.is(Kind::kText) || value.is(Kind::kDict) || value.is(Kind::kUndefined);
}

bool is_iterable(const Value& value) {
  return value.is(Kind::kText) || value.is(Kind::kDict) || value.is(Kind::kSequence) ||
         value.is(Kind::kUndefined) ||
         (value.is(Kind::kObject) && value.as_object().type_name() == "LoopContext");
}

bool is_callable(const Value& value) {
  return value.is(Kind::kUndefined) ||
         (value.is(Kind::kObject) &&
          (value.as_object().callable() || value.as_object().type_name() == "LoopContext"));
}

Result<bool> remainder_is(Interpreter& interpreter, const Value& input, int64_t divisor,
                          int64_t wanted) {
  INFERD_ASSIGN(const Value rest,
                apply(interpreter, BinaryOperator::kModulo, input, Value::integer(divisor)));
  return equal(rest, Value::integer(wanted));
}

Result<bool> odd(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  return remainder_is(interpreter, input, 2, 1);
}

Result<bool> even(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  return remainder_is(interpreter, input, 2, 0);
}

Result<bool> divisibleby(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"num"}, 1));
  INFERD_ASSIGN(const Value rest, apply(interpreter, BinaryOperator::kModulo, input, bound[0]));
  return equal(rest, Value::integer(0));
}

template <Comparison kOperator>
Result<bool> compares(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"other"}, 1));
  return compare(interpreter, kOperator, input, bound[0]);
}

Result<bool> sameas(Interpreter&, const Value& input, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"other"}, 1));
  return input.same_object(bound[0]);
}

// Whether str(value) has letters with case, all of them upper (or lower).
template <bool kUpper>
Result<bool> cased(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  INFERD_ASSIGN(OriginText text, printed(interpreter, input));
  const Value value = interpreter.text(std::move(text));
  const Method* method = find_method(value, kUpper ? "isupper" : "islower");
  INFERD_CHECK(method != nullptr);
  INFERD_ASSIGN(const Value answer, method->function(interpreter, value, {}));
  return truth(answer);
}

Result<bool> names_filter(Interpreter&, const Value& input, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  return input.is(Kind::kText) && find_filter(input.view()) != nullptr;
}

Result<bool> names_test(Interpreter&, const Value& input, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  return input.is(Kind::kText) && find_test(input.view()) != nullptr;
}

constexpr Named<TestFunction> kTests[] = {
    {"!=", compares<Comparison::kNotEqual>},
    {"<", compares<Comparison::kLess>},
    {"<=", compares<Comparison::kLessOrEqual>},
    {"==", compares<Comparison::kEqual>},
    {">", compares<Comparison::kGreater>},
    {">=", compares<Comparison::kGreaterOrEqual>},
    {"boolean", plain<is_boolean>},
    {"callable", plain<is_callable>},
    {"defined", plain<is_defined>},
    {"divisibleby", divisibleby},
    {"eq", compares<Comparison::kEqual>},
    {"equalto", compares<Comparison::kEqual>},
    {"escaped", plain<is_escaped>},
    {"even", even},
    {"false", plain<is_false>},
    {"filter", names_filter},
    {"float", plain<is_float>},
    {"ge", compares<Comparison::kGreaterOrEqual>},
    {"greaterthan", compares<Comparison::kGreater>},
    {"gt", compares<Comparison::kGreater>},
    {"in", compares<Comparison::kIn>},
    {"integer", plain<is_integer>},
    {"iterable", plain<is_iterable>},
    {"le", compares<Comparison::kLessOrEqual>},
    {"lessthan", compares<Comparison::kLess>},
    {"lower", cased<false>},
    {"lt", compares<Comparison::kLess>},
    {"mapping", plain<is_mapping>},
    {"ne", compares<Comparison::kNotEqual>},
    {"none", plain<is_none>},
    {"number", plain<is_number>},
    {"odd", odd},
    {"sameas", sameas},
    {"sequence", plain<is_sequence>},
    {"string", plain<is_string>},
    {"test", names_test},
    {"true", plain<is_true>},
    {"undefined", plain<is_undefined>},
    {"upper", cased<true>},
};

}  // namespace

TestFunction find_test(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTests), std::end(kTests),
                                   [name](const auto& entry) { return entry.name == name; });
  return found == std::end(kTests) ? nullptr : found->function;
}

}  // namespace inferd::jinja
