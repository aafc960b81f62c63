// Operators of the expression language, with Python's meaning for each pair of kinds.
// Owner: text/jinja. Errors are those that Python raises (kInvalidArgument), a number beyond 64
// bits, or a limit (kResourceExhausted).
#pragma once

#include <cstdint>

#include "base/result.h"
#include "text/jinja/value.h"

namespace inferd::jinja {

enum class BinaryOperator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower
};
enum class Comparison : uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  kIn,
  kNotIn,
};

Result<Value> apply(Interpreter& interpreter, BinaryOperator op, const Value& left,
                    const Value& right);
Result<Value> negate(const Value& value);    // -x
Result<Value> identity(const Value& value);  // +x

// Python's ==. Never fails; 1, 1.0 and True are equal.
bool equal(const Value& left, const Value& right);
Result<bool> compare(Interpreter& interpreter, Comparison op, const Value& left,
                     const Value& right);
// `left < right` for sorting: numbers, texts, and lists or tuples of such.
Result<bool> less(const Value& left, const Value& right);

// `value` as HTML text: what is no markup yet has & < > " ' replaced.
OriginText escaped(const OriginText& text);

// Checked arithmetic on 64 bits; errors are kInvalidArgument.
Result<int64_t> checked_add(int64_t a, int64_t b);
Result<int64_t> checked_subtract(int64_t a, int64_t b);
Result<int64_t> checked_multiply(int64_t a, int64_t b);

}  // namespace inferd::jinja
