// Filters that make or change numbers.
#include <charconv>
#include <cmath>
#include <limits>

#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/registry.h"
#include "text/jinja/string_format.h"
#include "text/jinja/text_operations.h"

namespace inferd::jinja {
namespace {

// The text without white space around it and underscores between digits; not set if they are
// misplaced.
std::optional<std::string> without_underscores(const OriginText& text) {
  const OriginText stripped = strip(text, std::nullopt, Side::kBoth);
  const std::string_view view = stripped.view();
  const auto is_digit = [&view](size_t i) {
    return i < view.size() && ((view[i] >= '0' && view[i] <= '9') ||
                               ((view[i] | 0x20) >= 'a' && (view[i] | 0x20) <= 'z'));
  };
  std::string out;
  for (size_t i = 0; i < view.size(); ++i) {
    if (view[i] != '_') {
      out.push_back(view[i]);
    } else if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) {
      return std::nullopt;
    }
  }
  return out;
}

// int(text, base): not set if it is no integer. Errors: beyond 64 bits.
Result<std::optional<int64_t>> parse_integer(const OriginText& text, int64_t base) {
  auto digits = without_underscores(text);
  if (!digits || digits->empty()) return std::optional<int64_t>();
  const bool negative = (*digits)[0] == '-';
  if (negative || (*digits)[0] == '+') digits->erase(0, 1);
  if (digits->size() > 1 && (*digits)[0] == '0') {
    const char mark = static_cast<char>((*digits)[1] | 0x20);
    const int64_t marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == marked || base == 0)) {
      digits->erase(0, 2);
      base = marked;
    } else if (base == 0 && digits->find_first_not_of('0') != std::string::npos) {
      return std::optional<int64_t>();  // 007
    }
  }
  if (base == 0) base = 10;
  uint64_t magnitude = 0;
  const char* const end = digits->data() + digits->size();
  const auto parsed = std::from_chars(digits->data(), end, magnitude, static_cast<int>(base));
  if (digits->empty() || parsed.ptr != end) return std::optional<int64_t>();
  const uint64_t most =
      static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) + (negative ? 1 : 0);
  if (parsed.ec != std::errc() || magnitude > most) {
    return type_error("an integer does not fit into 64 bits");
  }
  return std::optional(static_cast<int64_t>(negative ? 0 - magnitude : magnitude));
}

// float(text); not set if it is no number.
std::optional<double> parse_real(const OriginText& text) {
  auto digits = without_underscores(text);
  if (!digits || digits->empty()) return std::nullopt;
  const bool negative = (*digits)[0] == '-';
  if (negative || (*digits)[0] == '+') digits->erase(0, 1);
  if (digits->empty() || (*digits)[0] == '-') return std::nullopt;
  double value = 0;
  const char* const end = digits->data() + digits->size();
  const auto parsed = std::from_chars(digits->data(), end, value);
  if (parsed.ptr != end || digits->find('(') != std::string::npos) return std::nullopt;
  if (parsed.ec == std::errc::result_out_of_range) {
    // Beyond a double: too large, unless the exponent says too small.
    const bool small =
        digits->find("e-") != std::string::npos || digits->find("E-") != std::string::npos;
    value = small ? 0 : std::numeric_limits<double>::infinity();
  } else if (parsed.ec != std::errc()) {
    return std::nullopt;
  }
  return negative ? -value : value;
}

Result<int64_t> truncated(double value) {
  if (!(value > -9223372036854775809.0 && value < 9223372036854775808.0)) {
    return type_error("a float does not fit into a 64-bit integer");
  }
  return static_cast<int64_t>(value);
}

Result<Value> to_int(Interpreter&, const Value& input, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"default", "base"}));
  INFERD_ASSIGN(const int64_t base, bound.integer(1, 10));
  const Value otherwise = bound.get(0, Value::integer(0));
  if (input.is_integral()) return Value::integer(input.as_int(), input.origin());
  if (input.is(Kind::kUndefined)) return type_error(input.undefined_reason());
  if (input.is(Kind::kFloat)) {
    if (std::isnan(input.as_real())) return otherwise;
    INFERD_ASSIGN(const int64_t value, truncated(input.as_real()));
    return Value::integer(value, input.origin());
  }
  if (!input.is(Kind::kText)) return otherwise;
  if (base == 0 || (base >= 2 && base <= 36)) {
    INFERD_ASSIGN(const std::optional<int64_t> parsed, parse_integer(input.as_text(), base));
    if (parsed) return Value::integer(*parsed, input.origin());
  }
  const std::optional<double> real = parse_real(input.as_text());
  if (!real || !std::isfinite(*real)) return otherwise;
  INFERD_ASSIGN(const int64_t value, truncated(*real));
  return Value::integer(value, input.origin());
}

Result<Value> to_float(Interpreter&, const Value& input, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"default"}));
  if (input.is_number()) return Value::real(input.as_real(), input.origin());
  if (input.is(Kind::kUndefined)) return type_error(input.undefined_reason());
  if (input.is(Kind::kText)) {
    if (const auto real = parse_real(input.as_text())) return Value::real(*real, input.origin());
  }
  return bound.get(0, Value::real(0));
}

Result<Value> absolute(Interpreter&, const Value& input, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  if (input.is(Kind::kFloat)) return Value::real(std::fabs(input.as_real()), input.origin());
  if (input.is_integral()) {
    return input.as_int() < 0 ? negate(input) : identity(input);
  }
  if (input.is(Kind::kUndefined)) return type_error(input.undefined_reason());
  return type_error("needs a number, not '" + std::string(type_name(input)) + "'");
}

// Half to even, on the exact decimal value: what Python's round() does.
double rounded(double value, int64_t precision) {
  if (!std::isfinite(value)) return value;
  if (precision == 0) return std::nearbyint(value);
  if (precision > 0) {
    if (precision > 330) return value;
    char buffer[1024];
    const auto printed = std::to_chars(buffer, buffer + sizeof(buffer), value,
                                       std::chars_format::fixed, static_cast<int>(precision));
    double result = 0;
    std::from_chars(buffer, printed.ptr, result);
    return result;
  }
  if (precision < -330) return std::copysign(0.0, value);
  const double unit = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(value / unit) * unit;
}

Result<Value> round_integer(int64_t value, int64_t precision, Origin origin) {
  if (precision >= 0) return Value::integer(value, origin);
  if (precision < -18) return Value::integer(0, origin);
  int64_t unit = 1;
  for (int64_t i = 0; i < -precision; ++i) unit *= 10;
  const int64_t rest = value % unit;
  const int64_t down = value - rest;
  const int64_t distance = rest < 0 ? -rest : rest;
  const bool odd = (down / unit) % 2 != 0;
  const bool away = distance > unit - distance || (distance == unit - distance && odd);
  if (!away) return Value::integer(down, origin);
  INFERD_ASSIGN(const int64_t result, checked_add(down, value < 0 ? -unit : unit));
  return Value::integer(result, origin);
}

Result<Value> round(Interpreter&, const Value& input, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"precision", "method"}));
  INFERD_ASSIGN(const int64_t precision, bound.integer(0, 0));
  std::string_view method = "common";
  if (bound.has(1) && bound[1].is(Kind::kText)) method = bound[1].view();
  if (method != "common" && method != "ceil" && method != "floor") {
    return type_error("the method must be common, ceil or floor");
  }
  if (!input.is_number()) {
    if (input.is(Kind::kUndefined)) return type_error(input.undefined_reason());
    return type_error("needs a number, not '" + std::string(type_name(input)) + "'");
  }
  if (method == "common") {
    if (input.is_integral()) return round_integer(input.as_int(), precision, input.origin());
    return Value::real(rounded(input.as_real(), precision), input.origin());
  }
  if (precision < -300 || precision > 300) return type_error("the precision is out of range");
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.as_real() * unit;
  if (!std::isfinite(scaled)) return type_error("cannot convert a float that is not finite");
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit,
                     input.origin());
}

constexpr Named<FilterFunction> kFilters[] = {
    {"abs", absolute},
    {"float", to_float},
    {"int", to_int},
    {"round", round},
};

}  // namespace

Table<Named<FilterFunction>> number_filters() { return {kFilters, std::size(kFilters)}; }

}  // namespace inferd::jinja
