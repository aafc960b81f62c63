// Sorting by keys that may not be comparable.
// Owner: text/jinja.
#pragma once

#include <cstddef>
#include <vector>

#include "base/result.h"
#include "text/jinja/value.h"

namespace inferd::jinja {

// The order that sorts `keys`; equal keys stay in their order, also when reversed. Errors: two keys
// that Python cannot compare.
Result<std::vector<size_t>> sorted_order(Interpreter& interpreter, const std::vector<Value>& keys,
                                         bool reverse);

// The key of `value` where case is ignored: a text in lower case, else the value itself.
Result<Value> fold_case(Interpreter& interpreter, const Value& value);

}  // namespace inferd::jinja
