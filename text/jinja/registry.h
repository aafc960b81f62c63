// The filters, tests, methods and global functions that a template may name.
// Owner: text/jinja. Tables are constant; lookups may happen on any thread.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/jinja/arguments.h"
#include "text/jinja/value.h"

namespace inferd::jinja {

using FilterFunction = Result<Value> (*)(Interpreter&, const Value& input, const Arguments&);
using TestFunction = Result<bool> (*)(Interpreter&, const Value& input, const Arguments&);
using MethodFunction = Result<Value> (*)(Interpreter&, const Value& self, const Arguments&);
using GlobalFunction = Result<Value> (*)(Interpreter&, const Arguments&);

// Null if there is none of that name. Filters and tests that Jinja2 has and this interpreter lacks
// are found: they fail with kUnsupported when they run.
FilterFunction find_filter(std::string_view name);
TestFunction find_test(std::string_view name);
GlobalFunction find_global(std::string_view name);

struct Method {
  std::string_view name;
  MethodFunction function;  // null: it would change the object, which the sandbox forbids
};
// The method of a string, list, tuple or dictionary; null if Python's type has none of that name.
const Method* find_method(const Value& self, std::string_view name);

template <typename Function>
struct Named {
  std::string_view name;
  Function function;
};

// Tables by subject; each is defined in the file of its subject.
template <typename T>
struct Table {
  const T* entries;
  size_t count;
  const T* begin() const { return entries; }
  const T* end() const { return entries + count; }
};
Table<Named<FilterFunction>> text_filters();
Table<Named<FilterFunction>> format_filters();
Table<Named<FilterFunction>> sequence_filters();
Table<Named<FilterFunction>> selection_filters();
Table<Named<FilterFunction>> number_filters();
Table<Named<FilterFunction>> value_filters();
Table<Method> text_methods();
Table<Method> text_search_methods();
Table<Method> list_methods();
Table<Method> tuple_methods();
Table<Method> dict_methods();

}  // namespace inferd::jinja
