// map, select, reject and their relatives: filters that apply another filter or test to each item.
#include "text/jinja/attributes.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/registry.h"

namespace inferd::jinja {
namespace {

// The arguments without the first `count` positional ones.
Arguments without_first(const Arguments& arguments, size_t count) {
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(count),
                         arguments.positional.end());
  rest.named = arguments.named;
  return rest;
}

// In Python these are generators: a mistake shows when an item is asked for, not before.
Value failing_iterator(Interpreter& interpreter, std::vector<Value> items, Error error) {
  return make_iterator(interpreter.meter(), std::move(items), std::move(error));
}

Result<Value> map_attribute(Interpreter& interpreter, const std::vector<Value>& items,
                            const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"attribute", "default"}, 1));
  const Value otherwise = bound.get(1, Value::none());
  std::vector<Value> mapped;
  for (const Value& item : items) {
    auto value = get_path(interpreter, item, bound[0], bound.absent(1) ? nullptr : &otherwise);
    if (!value) return failing_iterator(interpreter, std::move(mapped), value.error());
    mapped.push_back(std::move(*value));
  }
  return make_iterator(interpreter.meter(), std::move(mapped));
}

Result<Value> map(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!truth(input)) return make_iterator(interpreter.meter(), {});
  INFERD_ASSIGN(const std::vector<Value> items, interpreter.iterate(input));
  if (arguments.positional.empty()) {
    if (arguments.find("attribute") == nullptr) {
      return failing_iterator(interpreter, {}, type_error("needs the name of a filter"));
    }
    return map_attribute(interpreter, items, arguments);
  }
  INFERD_ASSIGN(const OriginText name, to_text(arguments.positional[0], "the filter's name"));
  const Arguments rest = without_first(arguments, 1);
  std::vector<Value> mapped;
  for (const Value& item : items) {
    auto value = interpreter.call_filter(std::string(name.view()), item, rest);
    if (!value) return failing_iterator(interpreter, std::move(mapped), value.error());
    mapped.push_back(std::move(*value));
  }
  return make_iterator(interpreter.meter(), std::move(mapped));
}

Result<bool> chosen(Interpreter& interpreter, const Value& item, const Arguments& arguments,
                    size_t test_argument) {
  if (arguments.positional.size() <= test_argument) return truth(item);
  INFERD_ASSIGN(const OriginText name,
                to_text(arguments.positional[test_argument], "the test's name"));
  return interpreter.call_test(std::string(name.view()), item,
                               without_first(arguments, test_argument + 1));
}

template <bool kKeep, bool kByAttribute>
Result<Value> select(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!truth(input)) return make_iterator(interpreter.meter(), {});
  INFERD_ASSIGN(const std::vector<Value> items, interpreter.iterate(input));
  if (kByAttribute && arguments.positional.empty()) {
    return failing_iterator(interpreter, {}, type_error("needs the name of an attribute"));
  }
  std::vector<Value> selected;
  for (const Value& item : items) {
    Result<Value> subject = item;
    if (kByAttribute) subject = get_path(interpreter, item, arguments.positional[0]);
    if (!subject) return failing_iterator(interpreter, std::move(selected), subject.error());
    const auto passes = chosen(interpreter, *subject, arguments, kByAttribute ? 1 : 0);
    if (!passes) return failing_iterator(interpreter, std::move(selected), passes.error());
    if (*passes == kKeep) selected.push_back(item);
  }
  return make_iterator(interpreter.meter(), std::move(selected));
}

constexpr Named<FilterFunction> kFilters[] = {
    {"map", map},
    {"reject", select<false, false>},
    {"rejectattr", select<false, true>},
    {"select", select<true, false>},
    {"selectattr", select<true, true>},
};

}  // namespace

Table<Named<FilterFunction>> selection_filters() { return {kFilters, std::size(kFilters)}; }

}  // namespace inferd::jinja
