// Filters on any value: default, attr, items. And the lookup of filters and methods.
#include <algorithm>

#include "text/jinja/attributes.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/registry.h"

namespace inferd::jinja {
namespace {

Result<Value> default_filter(Interpreter& interpreter, const Value& input,
                             const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"default_value", "boolean"}));
  const bool replaces = input.is(Kind::kUndefined) || (bound.truth_of(1, false) && !truth(input));
  if (!replaces) return input;
  return bound.has(0) ? bound[0] : interpreter.text("", Origin::kTemplate);
}

Result<Value> attr(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"name"}, 1));
  INFERD_ASSIGN(const OriginText name, to_text(bound[0], "the attribute's name"));
  if (!input.is(Kind::kDict)) return get_attribute(interpreter, input, name.view());
  // Of a dictionary only attributes count, never entries.
  if (find_method(input, name.view()) != nullptr) {
    return get_attribute(interpreter, input, name.view());
  }
  return Value::undefined("'dict object' has no attribute '" + std::string(name.view()) + "'");
}

Result<Value> items(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  if (input.is(Kind::kUndefined)) return make_iterator(interpreter.meter(), {});
  if (!input.is(Kind::kDict)) {
    return make_iterator(interpreter.meter(), {},
                         type_error("can only get item pairs from a mapping, not from '" +
                                    std::string(type_name(input)) + "'"));
  }
  std::vector<Value> pairs;
  for (const auto& [key, value] : input.as_dict().entries()) {
    INFERD_ASSIGN(Value pair, interpreter.list({key, value}, Flavor::kTuple));
    pairs.push_back(std::move(pair));
  }
  INFERD_TRY(interpreter.meter()->step(pairs.size()));
  return make_iterator(interpreter.meter(), std::move(pairs));
}

constexpr Named<FilterFunction> kFilters[] = {
    {"attr", attr},
    {"d", default_filter},
    {"default", default_filter},
    {"items", items},
};

template <typename T>
const T* find_in(const Table<T>& table, std::string_view name) {
  const T* found = std::find_if(table.begin(), table.end(),
                                [name](const T& entry) { return entry.name == name; });
  return found == table.end() ? nullptr : found;
}

}  // namespace

Table<Named<FilterFunction>> value_filters() { return {kFilters, std::size(kFilters)}; }

FilterFunction find_filter(std::string_view name) {
  for (const auto& table : {text_filters(), format_filters(), sequence_filters(),
                            selection_filters(), number_filters(), value_filters()}) {
    if (const auto* found = find_in(table, name)) return found->function;
  }
  return nullptr;
}

const Method* find_method(const Value& self, std::string_view name) {
  if (self.is(Kind::kText)) {
    const Method* found = find_in(text_methods(), name);
    return found != nullptr ? found : find_in(text_search_methods(), name);
  }
  if (self.is(Kind::kDict)) return find_in(dict_methods(), name);
  if (!self.is(Kind::kSequence)) return nullptr;
  switch (self.as_sequence().flavor) {
    case Flavor::kList:
      return find_in(list_methods(), name);
    case Flavor::kTuple:
    case Flavor::kGroup:
    case Flavor::kRange:
      return find_in(tuple_methods(), name);
    default:
      return nullptr;
  }
}

}  // namespace inferd::jinja
