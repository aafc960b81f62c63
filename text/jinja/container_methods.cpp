// Methods of lists, tuples and dictionaries. Those that would change one are known, but have no
// function: the sandbox forbids them.
#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/registry.h"

namespace inferd::jinja {
namespace {

Result<Value> get(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"key", "default"}, 1));
  if (!arguments.named.empty()) return type_error("takes no named arguments");
  if (!bound[0].shape().hashable) {
    return type_error("unhashable type: '" + std::string(type_name(bound[0])) + "'");
  }
  if (!bound[0].is(Kind::kText)) INFERD_TRY(interpreter.meter()->step(self.as_dict().size()));
  const Value* found = self.as_dict().find(bound[0]);
  return found != nullptr ? *found : bound.get(1, Value::none());
}

template <Flavor kFlavor>
Result<Value> view(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  INFERD_TRY(interpreter.meter()->expect(self.as_dict().size() * sizeof(Value)));
  std::vector<Value> items;
  items.reserve(self.as_dict().size());
  for (const auto& [key, value] : self.as_dict().entries()) {
    if (kFlavor == Flavor::kItems) {
      INFERD_ASSIGN(Value pair, interpreter.list({key, value}, Flavor::kTuple));
      items.push_back(std::move(pair));
    } else {
      items.push_back(kFlavor == Flavor::kKeys ? key : value);
    }
  }
  return interpreter.list(std::move(items), kFlavor);
}

// Contents never change, so a copy may share them; but it is another object for `is sameas`.
Result<Value> copy_dict(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  auto copy = std::make_shared<DictObject>(interpreter.meter());
  INFERD_TRY(interpreter.meter()->step(self.as_dict().size()));
  for (const auto& [key, value] : self.as_dict().entries()) copy->set(key, value);
  return make_dict(std::move(copy));
}

Result<Value> copy_list(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  INFERD_TRY(interpreter.meter()->expect(self.as_sequence().items.size() * sizeof(Value)));
  return interpreter.list(self.as_sequence().items);
}

Result<Value> index(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"value", "start", "stop"}, 1));
  const auto& items = self.as_sequence().items;
  const auto size = static_cast<int64_t>(items.size());
  const auto place = [&](size_t argument, int64_t otherwise) -> Result<int64_t> {
    INFERD_ASSIGN(const int64_t given, bound.integer(argument, otherwise));
    return given >= 0 ? given : given < -size ? 0 : given + size;
  };
  INFERD_ASSIGN(const int64_t start, place(1, 0));
  INFERD_ASSIGN(const int64_t stop, place(2, size));
  for (int64_t i = start; i < std::min(stop, size); ++i) {
    INFERD_ASSIGN(const bool same, compare(interpreter, Comparison::kEqual,
                                           items[static_cast<size_t>(i)], bound[0]));
    if (same) return Value::integer(i);
  }
  return type_error("the value is not in the list");
}

Result<Value> count(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"value"}, 1));
  int64_t found = 0;
  for (const Value& item : self.as_sequence().items) {
    INFERD_ASSIGN(const bool same, compare(interpreter, Comparison::kEqual, item, bound[0]));
    found += same ? 1 : 0;
  }
  return Value::integer(found);
}

constexpr Method kListMethods[] = {
    {"append", nullptr}, {"clear", nullptr},   {"copy", copy_list}, {"count", count},
    {"extend", nullptr}, {"index", index},     {"insert", nullptr}, {"pop", nullptr},
    {"remove", nullptr}, {"reverse", nullptr}, {"sort", nullptr},
};
constexpr Method kTupleMethods[] = {{"count", count}, {"index", index}};
constexpr Method kDictMethods[] = {
    {"clear", nullptr},
    {"copy", copy_dict},
    {"get", get},
    {"items", view<Flavor::kItems>},
    {"keys", view<Flavor::kKeys>},
    {"pop", nullptr},
    {"popitem", nullptr},
    {"setdefault", nullptr},
    {"update", nullptr},
    {"values", view<Flavor::kValues>},
};

}  // namespace

Table<Method> list_methods() { return {kListMethods, std::size(kListMethods)}; }
Table<Method> tuple_methods() { return {kTupleMethods, std::size(kTupleMethods)}; }
Table<Method> dict_methods() { return {kDictMethods, std::size(kDictMethods)}; }

}  // namespace inferd::jinja
