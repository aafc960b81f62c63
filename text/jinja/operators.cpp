#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/jinja/interpreter.h"
#include "text/jinja/printing.h"
#include "text/jinja/string_format.h"

namespace inferd::jinja {
namespace {

std::string_view symbol(BinaryOperator op) {
  switch (op) {
    case BinaryOperator::kAdd:
      return "+";
    case BinaryOperator::kSubtract:
      return "-";
    case BinaryOperator::kMultiply:
      return "*";
    case BinaryOperator::kDivide:
      return "/";
    case BinaryOperator::kFloorDivide:
      return "//";
    case BinaryOperator::kModulo:
      return "%";
    case BinaryOperator::kPower:
      return "**";
  }
  return "?";
}

std::string quoted_type(const Value& value) { return "'" + std::string(type_name(value)) + "'"; }

Error overflow() { return type_error("an integer does not fit into 64 bits"); }
Error zero_division() { return type_error("division by zero"); }

Result<Value> text_sum(Interpreter& interpreter, const Value& left, const Value& right) {
  INFERD_TRY(interpreter.meter()->expect(left.as_text().size() + right.as_text().size()));
  const bool markup = left.is_markup() || right.is_markup();
  OriginText result("", mixed(left.origin(), right.origin()));
  for (const Value* part : {&left, &right}) {
    result.append(markup && !part->is_markup() ? escaped(part->as_text()) : part->as_text());
  }
  return interpreter.text(std::move(result), markup);
}

Result<Value> sequence_sum(Interpreter& interpreter, const SequenceObject& left,
                           const SequenceObject& right) {
  INFERD_TRY(interpreter.meter()->expect((left.items.size() + right.items.size()) * sizeof(Value)));
  std::vector<Value> items = left.items;
  items.insert(items.end(), right.items.begin(), right.items.end());
  return interpreter.list(std::move(items), left.flavor);
}

Result<Value> repeat(Interpreter& interpreter, const Value& value, int64_t times) {
  const auto count = static_cast<uint64_t>(std::max<int64_t>(times, 0));
  const uint64_t unit = value.is(Kind::kText) ? value.as_text().size()
                                              : value.as_sequence().items.size() * sizeof(Value);
  if (unit != 0 && count > std::numeric_limits<uint64_t>::max() / unit / 2) {
    return Error(ErrorCode::kResourceExhausted, "a repetition is too long");
  }
  INFERD_TRY(interpreter.meter()->expect(unit * count));
  if (value.is(Kind::kText)) {
    const OriginText& text = value.as_text();
    OriginText result("", text.overall());
    for (uint64_t i = 0; i < count && unit != 0; ++i) result.append(text);
    return interpreter.text(std::move(result), value.is_markup());
  }
  const SequenceObject& sequence = value.as_sequence();
  std::vector<Value> items;
  for (uint64_t i = 0; i < count && unit != 0; ++i) {
    items.insert(items.end(), sequence.items.begin(), sequence.items.end());
  }
  return interpreter.list(std::move(items), sequence.flavor);
}

bool repeats(const Value& value) {
  return value.is(Kind::kText) ||
         (value.is(Kind::kSequence) && (value.as_sequence().flavor == Flavor::kList ||
                                        value.as_sequence().flavor == Flavor::kTuple));
}

Result<int64_t> integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if (exponent % 2 != 0) {
      INFERD_ASSIGN(result, checked_multiply(result, base));
    }
    exponent /= 2;
    if (exponent > 0) {
      INFERD_ASSIGN(base, checked_multiply(base, base));
    }
  }
  return result;
}

Result<int64_t> integer_operation(BinaryOperator op, int64_t a, int64_t b) {
  switch (op) {
    case BinaryOperator::kAdd:
      return checked_add(a, b);
    case BinaryOperator::kSubtract:
      return checked_subtract(a, b);
    case BinaryOperator::kMultiply:
      return checked_multiply(a, b);
    case BinaryOperator::kPower:
      return integer_power(a, b);
    default:
      break;
  }
  if (b == 0) return zero_division();
  if (a == std::numeric_limits<int64_t>::min() && b == -1) {
    if (op == BinaryOperator::kModulo) return 0;
    return overflow();
  }
  // Python rounds down, and the remainder has the divisor's sign.
  const bool adjust = a % b != 0 && ((a % b < 0) != (b < 0));
  if (op == BinaryOperator::kModulo) return a % b + (adjust ? b : 0);
  return a / b - (adjust ? 1 : 0);
}

Result<double> real_operation(BinaryOperator op, double a, double b) {
  switch (op) {
    case BinaryOperator::kAdd:
      return a + b;
    case BinaryOperator::kSubtract:
      return a - b;
    case BinaryOperator::kMultiply:
      return a * b;
    case BinaryOperator::kPower: {
      if (a == 0 && b < 0) return zero_division();
      if (a < 0 && std::isfinite(b) && b != std::floor(b)) {
        return Error(ErrorCode::kUnsupported, "a complex number is not supported");
      }
      const double power = std::pow(a, b);
      if (std::isinf(power) && std::isfinite(a) && std::isfinite(b)) {
        return type_error("the result of ** is too large");
      }
      return power;
    }
    default:
      break;
  }
  if (b == 0) return zero_division();
  if (op == BinaryOperator::kDivide) return a / b;
  double remainder = std::fmod(a, b);
  if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
  if (op == BinaryOperator::kModulo) return remainder == 0 ? std::copysign(0.0, b) : remainder;
  const double quotient = (a - remainder) / b;
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

// Python compares an int with a float exactly: -1, 0 or 1; 2 with a NaN.
int order(int64_t a, double b) {
  if (std::isnan(b)) return 2;
  if (b >= 9223372036854775808.0) return -1;
  if (b < -9223372036854775808.0) return 1;
  const auto whole = static_cast<int64_t>(b);
  if (a != whole) return a < whole ? -1 : 1;
  const double rest = b - static_cast<double>(whole);
  return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

int order_numbers(const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) {
    return left.as_int() < right.as_int() ? -1 : left.as_int() > right.as_int() ? 1 : 0;
  }
  if (left.is_integral()) return order(left.as_int(), right.as_real());
  if (right.is_integral()) {
    const int reversed = order(right.as_int(), left.as_real());
    return reversed == 2 ? 2 : -reversed;
  }
  const double a = left.as_real();
  const double b = right.as_real();
  return a < b ? -1 : a > b ? 1 : a == b ? 0 : 2;
}

bool contains_item(const std::vector<Value>& items, const Value& wanted) {
  return std::any_of(items.begin(), items.end(),
                     [&wanted](const Value& item) { return equal(item, wanted); });
}

bool is_set_like(Flavor flavor) { return flavor == Flavor::kKeys || flavor == Flavor::kItems; }

bool equal_sequences(const SequenceObject& left, const SequenceObject& right) {
  if (&left == &right) return true;
  const auto plain = [](Flavor flavor) {
    return flavor == Flavor::kGroup ? Flavor::kTuple : flavor;
  };
  if (plain(left.flavor) != plain(right.flavor) || left.items.size() != right.items.size()) {
    return false;
  }
  if (left.flavor == Flavor::kIterator || left.flavor == Flavor::kValues) return false;
  if (is_set_like(left.flavor)) {
    return std::all_of(left.items.begin(), left.items.end(),
                       [&right](const Value& item) { return contains_item(right.items, item); });
  }
  return std::equal(left.items.begin(), left.items.end(), right.items.begin(), equal);
}

bool equal_dicts(const DictObject& left, const DictObject& right) {
  if (&left == &right) return true;
  if (left.size() != right.size()) return false;
  return std::all_of(left.entries().begin(), left.entries().end(),
                     [&right](const DictObject::Entry& entry) {
                       const Value* other = right.find(entry.first);
                       return other != nullptr && equal(entry.second, *other);
                     });
}

Result<bool> contained(Interpreter& interpreter, const Value& item, const Value& container) {
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kText: {
      if (!item.is(Kind::kText)) {
        return type_error("'in <string>' requires a string as its left operand, not " +
                          quoted_type(item));
      }
      INFERD_TRY(interpreter.meter()->step(container.as_text().size() / kBytesPerStep));
      return container.view().find(item.view()) != std::string_view::npos;
    }
    case Kind::kDict:
      if (!item.shape().hashable) return type_error("unhashable type: " + quoted_type(item));
      if (!item.is(Kind::kText)) INFERD_TRY(interpreter.meter()->step(container.as_dict().size()));
      return container.as_dict().find(item) != nullptr;
    case Kind::kSequence: {
      const bool is_iterator = container.as_sequence().flavor == Flavor::kIterator;
      INFERD_TRY(interpreter.meter()->step(std::min(item.shape().weight, container.shape().weight) +
                                           container.as_sequence().items.size()));
      if (!is_iterator) return contains_item(container.as_sequence().items, item);
      INFERD_ASSIGN(const std::vector<Value> items, interpreter.iterate(container));
      return contains_item(items, item);
    }
    default:
      return type_error("argument of type " + quoted_type(container) + " is not iterable");
  }
}

}  // namespace

Result<int64_t> checked_add(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) return overflow();
  return result;
}

Result<int64_t> checked_subtract(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_sub_overflow(a, b, &result)) return overflow();
  return result;
}

Result<int64_t> checked_multiply(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) return overflow();
  return result;
}

Result<Value> apply(Interpreter& interpreter, BinaryOperator op, const Value& left,
                    const Value& right) {
  if (op == BinaryOperator::kModulo && left.is(Kind::kText)) {
    return percent_format(interpreter, left, right);
  }
  for (const Value* side : {&left, &right}) {
    if (side->is(Kind::kUndefined)) return type_error(side->undefined_reason());
  }
  if (left.is_number() && right.is_number()) {
    const Origin origin = mixed(left.origin(), right.origin());
    const bool integers = left.is_integral() && right.is_integral() &&
                          op != BinaryOperator::kDivide &&
                          !(op == BinaryOperator::kPower && right.as_int() < 0);
    if (integers) {
      INFERD_ASSIGN(const int64_t result, integer_operation(op, left.as_int(), right.as_int()));
      return Value::integer(result, origin);
    }
    INFERD_ASSIGN(const double result, real_operation(op, left.as_real(), right.as_real()));
    return Value::real(result, origin);
  }
  if (op == BinaryOperator::kAdd) {
    if (left.is(Kind::kText) && right.is(Kind::kText)) return text_sum(interpreter, left, right);
    if (left.is(Kind::kSequence) && right.is(Kind::kSequence) && repeats(left) && repeats(right) &&
        left.as_sequence().flavor == right.as_sequence().flavor) {
      return sequence_sum(interpreter, left.as_sequence(), right.as_sequence());
    }
  }
  if (op == BinaryOperator::kMultiply) {
    if (repeats(left) && right.is_integral()) return repeat(interpreter, left, right.as_int());
    if (left.is_integral() && repeats(right)) return repeat(interpreter, right, left.as_int());
  }
  return type_error("unsupported operand types for " + std::string(symbol(op)) + ": " +
                    quoted_type(left) + " and " + quoted_type(right));
}

Result<Value> negate(const Value& value) {
  if (value.is(Kind::kFloat)) return Value::real(-value.as_real(), value.origin());
  if (value.is_integral()) {
    INFERD_ASSIGN(const int64_t result, checked_subtract(0, value.as_int()));
    return Value::integer(result, value.origin());
  }
  if (value.is(Kind::kUndefined)) return type_error(value.undefined_reason());
  return type_error("bad operand type for unary -: " + quoted_type(value));
}

Result<Value> identity(const Value& value) {
  if (value.is(Kind::kFloat)) return value;
  if (value.is_integral()) return Value::integer(value.as_int(), value.origin());
  if (value.is(Kind::kUndefined)) return type_error(value.undefined_reason());
  return type_error("bad operand type for unary +: " + quoted_type(value));
}

bool equal(const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) return order_numbers(left, right) == 0;
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kText:
      return left.view() == right.view();
    case Kind::kSequence:
      return equal_sequences(left.as_sequence(), right.as_sequence());
    case Kind::kDict:
      return equal_dicts(left.as_dict(), right.as_dict());
    default:
      return left.same_object(right);
  }
}

Result<bool> less(const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) return order_numbers(left, right) == -1;
  // UTF-8 sorts as its characters do.
  if (left.is(Kind::kText) && right.is(Kind::kText)) return left.view() < right.view();
  for (const Value* side : {&left, &right}) {
    if (side->is(Kind::kUndefined)) return type_error(side->undefined_reason());
  }
  if (repeats(left) && repeats(right) && left.as_sequence().flavor == right.as_sequence().flavor) {
    const auto& a = left.as_sequence().items;
    const auto& b = right.as_sequence().items;
    const size_t common = std::min(a.size(), b.size());
    for (size_t i = 0; i < common; ++i) {
      if (!equal(a[i], b[i])) return less(a[i], b[i]);
    }
    return a.size() < b.size();
  }
  return type_error("'<' is not supported between instances of " + quoted_type(left) + " and " +
                    quoted_type(right));
}

Result<bool> compare(Interpreter& interpreter, Comparison op, const Value& left,
                     const Value& right) {
  const bool is_membership = op == Comparison::kIn || op == Comparison::kNotIn;
  if (is_membership) {
    INFERD_ASSIGN(const bool found, contained(interpreter, left, right));
    return found == (op == Comparison::kIn);
  }
  INFERD_TRY(interpreter.meter()->step(std::min(left.shape().weight, right.shape().weight)));
  switch (op) {
    case Comparison::kEqual:
      return equal(left, right);
    case Comparison::kNotEqual:
      return !equal(left, right);
    case Comparison::kLess:
      return less(left, right);
    case Comparison::kGreater:
      return less(right, left);
    default:
      break;
  }
  // With a NaN, neither a <= b nor b < a.
  if (left.is_number() && right.is_number() && order_numbers(left, right) == 2) return false;
  INFERD_ASSIGN(const bool reversed,
                op == Comparison::kLessOrEqual ? less(right, left) : less(left, right));
  return !reversed;
}

OriginText escaped(const OriginText& text) {
  OriginText result("", text.overall());
  text.for_each_run(0, text.size(), [&result](std::string_view run, Origin origin) {
    std::string out;
    for (const char c : run) {
      switch (c) {
        case '&':
          out += "&amp;";
          break;
        case '<':
          out += "&lt;";
          break;
        case '>':
          out += "&gt;";
          break;
        case '"':
          out += "&#34;";
          break;
        case '\'':
          out += "&#39;";
          break;
        default:
          out.push_back(c);
      }
    }
    result.append(out, origin);
  });
  return result;
}

}  // namespace inferd::jinja
