// object.name, object[index] and object[start:stop:step].
// Owner: text/jinja.
#pragma once

#include <string_view>

#include "base/result.h"
#include "text/jinja/value.h"

namespace inferd::jinja {

// Python's attribute (a method, a namespace's variable) before the dictionary's entry of that name.
// Not found: undefined. Errors: `object` is undefined.
Result<Value> get_attribute(Interpreter& interpreter, const Value& object, std::string_view name);

// The element or entry before the attribute of that name. Not found, or an index of the wrong type:
// undefined. Errors: `object` is undefined.
Result<Value> get_item(Interpreter& interpreter, const Value& object, const Value& index);

// Each bound may be none. Errors: `object` cannot be sliced, a bound is no integer, a step of 0.
Result<Value> get_slice(Interpreter& interpreter, const Value& object, const Value& start,
                        const Value& stop, const Value& step);

// The path of the filters' `attribute` arguments: names and numbers with dots between them.
Result<Value> get_path(Interpreter& interpreter, const Value& object, const Value& path,
                       const Value* otherwise = nullptr);

// The position of element `index` (from the end if negative) among `count`; not set if outside.
std::optional<size_t> element_position(int64_t index, size_t count);

}  // namespace inferd::jinja
