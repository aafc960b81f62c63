// Arguments of a call, filter or test, and their binding to parameters as Python binds them.
// Owner: text/jinja.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/jinja/value.h"

namespace inferd::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;  // each name once

  bool empty() const { return positional.empty() && named.empty(); }
  const Value* find(std::string_view name) const;
};

// Arguments by place, after binding.
class Bound {
 public:
  explicit Bound(std::vector<std::optional<Value>> values) : values_(std::move(values)) {}

  bool has(size_t i) const { return values_[i].has_value(); }
  // Not given, or none.
  bool absent(size_t i) const { return !has(i) || values_[i]->is(Kind::kNone); }
  const Value& operator[](size_t i) const { return *values_[i]; }
  Value get(size_t i, Value otherwise) const { return has(i) ? *values_[i] : otherwise; }
  bool truth_of(size_t i, bool otherwise) const { return has(i) ? truth(*values_[i]) : otherwise; }
  // Errors: kInvalidArgument if it is given and of another type.
  Result<int64_t> integer(size_t i, int64_t otherwise) const;

 private:
  std::vector<std::optional<Value>> values_;
};

// Binds to parameters of these names, of which the first `required` must be given.
// Errors: kInvalidArgument for too many, unknown, doubled and missing arguments.
Result<Bound> bind(const Arguments& arguments, std::initializer_list<std::string_view> names,
                   size_t required = 0);

// kInvalidArgument: what Python would raise as TypeError, ValueError and the like.
Error type_error(std::string message);

// `value` as an index, count or width. Errors: kInvalidArgument if it is no integer.
Result<int64_t> to_integer(const Value& value, std::string_view what);
// `value`, which must be a text. Errors: kInvalidArgument.
Result<OriginText> to_text(const Value& value, std::string_view what);
Result<void> require_text(const Value& value, std::string_view what);

}  // namespace inferd::jinja
