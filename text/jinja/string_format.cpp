#include "text/jinja/string_format.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/attributes.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/printing.h"
#include "text/jinja/unicode.h"

namespace inferd::jinja {
namespace {

// Digits behind the point; a double has no more than 1074 of them.
constexpr int64_t kPrecisionMax = 1100;

// A format specification of format(), or the flags of a % conversion.
struct Spec {
  std::string fill = " ";
  char align = 0;  // < > ^ =
  char sign = '-';
  bool alternate = false;
  int64_t width = 0;
  char grouping = 0;  // , or _
  std::optional<int64_t> precision;
  char type = 0;
};

Error bad_spec(std::string_view spec) {
  return type_error("invalid format specifier '" + std::string(spec) + "'");
}

// Digits at *at; not set if there are none. Errors: a number that is far too large.
Result<std::optional<int64_t>> parse_count(std::string_view text, size_t* at) {
  int64_t value = 0;
  const auto parsed = std::from_chars(text.data() + *at, text.data() + text.size(), value);
  if (*at >= text.size() || text[*at] < '0' || text[*at] > '9') return std::optional<int64_t>();
  if (parsed.ec != std::errc()) return type_error("a width or precision is too large");
  *at = static_cast<size_t>(parsed.ptr - text.data());
  return std::optional(value);
}

bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

Result<Spec> parse_spec(std::string_view text) {
  Spec spec;
  size_t at = 0;
  if (!text.empty()) {
    size_t second = 0;
    next_character(text, &second);
    if (second < text.size() && is_align(text[second])) {
      spec.fill = text.substr(0, second);
      spec.align = text[second];
      at = second + 1;
    } else if (is_align(text[0])) {
      spec.align = text[0];
      at = 1;
    }
  }
  const auto take = [&](std::string_view choices) -> char {
    if (at >= text.size() || choices.find(text[at]) == std::string_view::npos) return 0;
    return text[at++];
  };
  if (const char sign = take("+- ")) spec.sign = sign;
  spec.alternate = take("#") != 0;
  if (take("0") != 0 && spec.align == 0) {
    spec.fill = "0";
    spec.align = '=';
  }
  INFERD_ASSIGN(const std::optional<int64_t> width, parse_count(text, &at));
  spec.width = width.value_or(0);
  spec.grouping = take(",_");
  if (take(".") != 0) {
    INFERD_ASSIGN(spec.precision, parse_count(text, &at));
    if (!spec.precision) return bad_spec(text);
  }
  spec.type = take("bcdeEfFgGnosxX%");
  if (at != text.size()) return bad_spec(text);
  return spec;
}

// Puts `body` into the field. `sign_bytes` of it stay in front of a '=' fill.
Result<OriginText> pad(Interpreter& interpreter, const OriginText& body, const Spec& spec,
                       char default_align, size_t sign_bytes = 0) {
  const auto size = static_cast<int64_t>(count_characters(body.view()));
  if (spec.width <= size) return body;
  const auto missing = static_cast<uint64_t>(spec.width - size);
  INFERD_TRY(interpreter.meter()->expect(missing * spec.fill.size() + body.size()));
  const char align = spec.align != 0 ? spec.align : default_align;
  const uint64_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  OriginText result("", body.overall());
  if (align == '=') result.append(body, 0, sign_bytes);
  for (uint64_t i = 0; i < before; ++i) result.append(spec.fill, body.overall());
  result.append(body, align == '=' ? sign_bytes : 0, body.size());
  for (uint64_t i = before; i < missing; ++i) result.append(spec.fill, body.overall());
  return result;
}

std::string grouped(const std::string& digits, char separator, size_t group) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % group == 0) out.push_back(separator);
    out.push_back(digits[i]);
  }
  return out;
}

std::string sign_text(bool negative, char sign) {
  return negative ? "-" : sign == '-' ? "" : std::string(1, sign);
}

Result<OriginText> format_integer(Interpreter& interpreter, int64_t value, Origin origin,
                                  const Spec& spec) {
  if (spec.precision) return type_error("precision not allowed in an integer format");
  if (spec.type == 'c') {
    if (value < 0 || value >= 0x110000 || (value >= 0xD800 && value < 0xE000)) {
      return type_error("%c takes the number of a character");
    }
    std::string character;
    append_utf8(&character, static_cast<char32_t>(value));
    return pad(interpreter, OriginText(character, origin), spec, '<');
  }
  const int base = spec.type == 'b'                       ? 2
                   : spec.type == 'o'                     ? 8
                   : spec.type == 'x' || spec.type == 'X' ? 16
                                                          : 10;
  const uint64_t magnitude =
      value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  char buffer[72];
  const auto printed = std::to_chars(buffer, buffer + sizeof(buffer), magnitude, base);
  std::string digits(buffer, printed.ptr);
  if (spec.grouping != 0) digits = grouped(digits, spec.grouping, base == 10 ? 3 : 4);
  std::string front = sign_text(value < 0, spec.sign);
  if (spec.alternate && base != 10) {
    front += base == 2 ? "0b" : base == 8 ? "0o" : "0x";
  }
  const size_t sign_bytes = front.size();
  std::string text = front + digits;
  if (spec.type == 'X') {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  }
  return pad(interpreter, OriginText(text, origin), spec, '>', sign_bytes);
}

// The digits of a finite, non-negative number.
Result<std::string> real_digits(double value, const Spec& spec) {
  const char type = static_cast<char>(spec.type | 0x20);
  const int64_t precision = spec.precision.value_or(6);
  if (precision > kPrecisionMax) return type_error("a precision is too large");
  std::string buffer(2048, '\0');
  char* const begin = buffer.data();
  char* const end = begin + buffer.size();
  const auto form = [&](std::chars_format format, int64_t digits) {
    const auto printed = std::to_chars(begin, end, value, format, static_cast<int>(digits));
    return std::string(begin, printed.ptr);
  };
  if (spec.type == '%' || type == 'f') return form(std::chars_format::fixed, precision);
  if (type == 'e') return form(std::chars_format::scientific, precision);
  if (type == 'g' || type == 'n') {
    return form(std::chars_format::general, std::max<int64_t>(precision, 1));
  }
  if (!spec.precision) return print_real(value);
  std::string text = form(std::chars_format::general, std::max<int64_t>(precision, 1));
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

Result<OriginText> format_real(Interpreter& interpreter, double value, Origin origin,
                               const Spec& spec) {
  if (spec.alternate) return Error(ErrorCode::kUnsupported, "# in the format of a float");
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double magnitude = std::fabs(value) * (spec.type == '%' ? 100 : 1);
  std::string digits;
  if (std::isfinite(magnitude)) {
    INFERD_ASSIGN(digits, real_digits(magnitude, spec));
  } else {
    digits = std::isnan(value) ? "nan" : "inf";
  }
  if (spec.type == 'E' || spec.type == 'F' || spec.type == 'G') {
    std::transform(digits.begin(), digits.end(), digits.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  }
  if (spec.grouping != 0) {
    const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
    digits = grouped(digits.substr(0, whole), spec.grouping, 3) + digits.substr(whole);
  }
  if (spec.type == '%') digits += "%";
  const std::string front = sign_text(negative, spec.sign);
  return pad(interpreter, OriginText(front + digits, origin), spec, '>', front.size());
}

Result<OriginText> format_text(Interpreter& interpreter, const OriginText& text, const Spec& spec) {
  OriginText body = text;
  if (spec.precision) {
    body = text.slice(0, byte_of_character(text.view(), static_cast<size_t>(*spec.precision)));
  }
  return pad(interpreter, body, spec, '<');
}

// The part of a % conversion behind the %.
struct Conversion {
  std::optional<std::string> key;
  Spec spec;
  bool width_from_arguments = false;
  bool precision_from_arguments = false;
};

Result<Conversion> parse_conversion(std::string_view pattern, size_t* at) {
  Conversion result;
  const auto here = [&] { return *at < pattern.size() ? pattern[*at] : '\0'; };
  if (here() == '(') {
    int open = 1;
    const size_t begin = ++*at;
    for (; *at < pattern.size() && open > 0; ++*at) {
      open += pattern[*at] == '(' ? 1 : pattern[*at] == ')' ? -1 : 0;
    }
    if (open > 0) return type_error("incomplete format key");
    result.key = std::string(pattern.substr(begin, *at - 1 - begin));
  }
  bool zero = false;
  for (; std::string_view("-+ #0").find(here()) != std::string_view::npos && here() != 0; ++*at) {
    if (here() == '-') result.spec.align = '<';
    if (here() == '+' || (here() == ' ' && result.spec.sign == '-')) result.spec.sign = here();
    if (here() == '#') result.spec.alternate = true;
    if (here() == '0') zero = true;
  }
  if (zero && result.spec.align == 0) {
    result.spec.align = '=';
    result.spec.fill = "0";
  }
  if (here() == '*') {
    result.width_from_arguments = true;
    ++*at;
  } else {
    INFERD_ASSIGN(const std::optional<int64_t> width, parse_count(pattern, at));
    result.spec.width = width.value_or(0);
  }
  if (here() == '.') {
    ++*at;
    if (here() == '*') {
      result.precision_from_arguments = true;
      ++*at;
    } else {
      INFERD_ASSIGN(const std::optional<int64_t> precision, parse_count(pattern, at));
      result.spec.precision = precision.value_or(0);
    }
  }
  if (here() == 'h' || here() == 'l' || here() == 'L') ++*at;
  if (here() == 0) return type_error("incomplete format");
  result.spec.type = here();
  ++*at;
  return result;
}

class PercentFormatter {
 public:
  PercentFormatter(Interpreter& interpreter, const Value& pattern, const Value& values)
      : interpreter_(interpreter), pattern_(pattern), values_(values) {
    const bool is_tuple =
        values.is(Kind::kSequence) && (values.as_sequence().flavor == Flavor::kTuple ||
                                       values.as_sequence().flavor == Flavor::kGroup);
    if (is_tuple) {
      arguments_ = values.as_sequence().items;
    } else {
      arguments_.push_back(values);
      // Python takes any object with [] for a mapping, whose values need not all be used.
      may_be_left_ = values.is(Kind::kDict) || values.is(Kind::kSequence);
    }
  }

  Result<Value> run() {
    const std::string_view pattern = pattern_.view();
    OriginText result("", pattern_.origin());
    for (size_t at = 0; at < pattern.size();) {
      const size_t percent = std::min(pattern.find('%', at), pattern.size());
      result.append(pattern_.as_text(), at, percent);
      if (percent == pattern.size()) break;
      at = percent + 1;
      INFERD_ASSIGN(Conversion conversion, parse_conversion(pattern, &at));
      if (conversion.spec.type == '%') {
        result.append("%", pattern_.as_text().origin_at(percent));
        continue;
      }
      INFERD_ASSIGN(const OriginText part, convert(&conversion));
      result.append(part);
      INFERD_TRY(interpreter_.meter()->expect(result.size()));
    }
    if (used_ < arguments_.size() && !may_be_left_) {
      return type_error("not all arguments converted during string formatting");
    }
    return interpreter_.text(std::move(result), pattern_.is_markup());
  }

 private:
  Result<Value> next() {
    if (used_ >= arguments_.size()) return type_error("not enough arguments for format string");
    return arguments_[used_++];
  }

  Result<OriginText> convert(Conversion* conversion) {
    Spec& spec = conversion->spec;
    Value value;
    if (conversion->key) {
      if (!values_.is(Kind::kDict)) return type_error("format requires a mapping");
      const Value* found = values_.as_dict().find(*conversion->key);
      if (found == nullptr) return type_error("there is no key '" + *conversion->key + "'");
      value = *found;
      may_be_left_ = true;
    }
    if (conversion->width_from_arguments) {
      INFERD_ASSIGN(const Value width, next());
      INFERD_ASSIGN(spec.width, to_integer(width, "* in a format"));
      if (spec.width < 0) {
        INFERD_ASSIGN(spec.width, checked_subtract(0, spec.width));
        spec.align = '<';
      }
    }
    if (conversion->precision_from_arguments) {
      INFERD_ASSIGN(const Value precision, next());
      INFERD_ASSIGN(const int64_t digits, to_integer(precision, "* in a format"));
      spec.precision = std::max<int64_t>(digits, 0);
    }
    if (!conversion->key) {
      INFERD_ASSIGN(value, next());
    }
    return convert_value(value, spec);
  }

  Result<OriginText> convert_value(const Value& value, Spec spec) {
    const char type = spec.type;
    if (type == 's' || type == 'r' || type == 'a') return convert_text(value, spec);
    if (type == 'c' && value.is(Kind::kText)) {
      if (count_characters(value.view()) != 1) return type_error("%c requires an int or a char");
      spec.fill = " ";
      return pad(interpreter_, value.as_text(), spec, '>');
    }
    if (!value.is_number()) {
      if (value.is(Kind::kUndefined)) return type_error(value.undefined_reason());
      return type_error(std::string("%") + type + " format: a number is required, not " +
                        std::string(type_name(value)));
    }
    if (std::string_view("eEfFgG").find(type) != std::string_view::npos) {
      return format_real(interpreter_, value.as_real(), value.origin(), spec);
    }
    if (std::string_view("diuoxXc").find(type) == std::string_view::npos) {
      return type_error(std::string("unsupported format character '") + type + "'");
    }
    return convert_integer(value, spec);
  }

  Result<OriginText> convert_text(const Value& value, Spec spec) {
    spec.fill = " ";
    if (spec.align == '=') spec.align = '>';
    OriginText text;
    if (spec.type == 's') {
      INFERD_ASSIGN(text, printed(interpreter_, value));
      if (pattern_.is_markup() && !value.is_markup()) text = escaped(text);
    } else {
      INFERD_ASSIGN(std::string represented_text, represented(interpreter_, value));
      text = OriginText(std::move(represented_text),
                        value.shape().data ? Origin::kData : Origin::kTemplate);
    }
    if (spec.align == 0) spec.align = '>';
    return format_text(interpreter_, text, spec);
  }

  Result<OriginText> convert_integer(const Value& value, Spec spec) {
    if (value.is(Kind::kFloat) &&
        std::string_view("diu").find(spec.type) == std::string_view::npos) {
      return type_error(std::string("%") + spec.type +
                        " format: an integer is required, not float");
    }
    if (value.is(Kind::kFloat) && !(std::fabs(value.as_real()) < 9.2e18)) {
      return type_error("a float does not fit into an integer format");
    }
    const int64_t integer =
        value.is(Kind::kFloat) ? static_cast<int64_t>(value.as_real()) : value.as_int();
    const int64_t digits_min = spec.precision.value_or(0);
    spec.precision.reset();
    if (digits_min == 0) return format_integer(interpreter_, integer, value.origin(), spec);
    // A precision is the least number of digits; then the field is filled as usual.
    if (digits_min > kPrecisionMax) return type_error("a precision is too large");
    Spec inner = spec;
    inner.align = '=';
    inner.fill = "0";
    inner.width = digits_min + (integer < 0 || spec.sign != '-' ? 1 : 0) +
                  (spec.alternate && spec.type != 'd' ? 2 : 0);
    INFERD_ASSIGN(const OriginText text,
                  format_integer(interpreter_, integer, value.origin(), inner));
    return pad(interpreter_, text, spec, '>', integer < 0 || spec.sign != '-' ? 1 : 0);
  }

  Interpreter& interpreter_;
  const Value& pattern_;
  const Value& values_;
  std::vector<Value> arguments_;
  size_t used_ = 0;
  bool may_be_left_ = false;
};

class BraceFormatter {
 public:
  BraceFormatter(Interpreter& interpreter, const Value& pattern, const Arguments& arguments)
      : interpreter_(interpreter), pattern_(pattern), arguments_(arguments) {}

  Result<Value> run() {
    INFERD_ASSIGN(OriginText result, expand(0, pattern_.as_text().size(), kFieldDepthMax));
    return interpreter_.text(std::move(result), pattern_.is_markup());
  }

 private:
  static constexpr int kFieldDepthMax = 2;  // a field in the specification of a field

  Result<OriginText> expand(size_t begin, size_t end, int depth) {
    if (depth == 0) return type_error("fields are nested too deep in a format");
    const OriginText& text = pattern_.as_text();
    const std::string_view pattern = text.view();
    OriginText result("", text.overall());
    for (size_t at = begin; at < end;) {
      const char c = pattern[at];
      const bool doubled = at + 1 < end && pattern[at + 1] == c;
      if (c != '{' && c != '}') {
        const size_t next = std::min(pattern.find_first_of("{}", at), end);
        result.append(text, at, next);
        at = next;
      } else if (doubled && depth == kFieldDepthMax) {
        result.append(text, at, at + 1);
        at += 2;
      } else if (c == '}') {
        return type_error("single '}' encountered in format string");
      } else {
        INFERD_ASSIGN(const size_t close, closing(at + 1, end));
        INFERD_ASSIGN(const OriginText part, field(at + 1, close, depth));
        result.append(part);
        INFERD_TRY(interpreter_.meter()->expect(result.size()));
        at = close + 1;
      }
    }
    return result;
  }

  // The brace that closes the field whose contents begin at `at`.
  Result<size_t> closing(size_t at, size_t end) const {
    int open = 1;
    for (; at < end; ++at) {
      const char c = pattern_.view()[at];
      open += c == '{' ? 1 : c == '}' ? -1 : 0;
      if (open == 0) return at;
    }
    return type_error("expected '}' before end of string");
  }

  // name!conversion:specification
  Result<OriginText> field(size_t begin, size_t end, int depth) {
    const std::string_view pattern = pattern_.view();
    size_t name_end = begin;
    int brackets = 0;
    for (; name_end < end; ++name_end) {
      const char c = pattern[name_end];
      brackets += c == '[' ? 1 : c == ']' ? -1 : 0;
      if (brackets <= 0 && (c == '!' || c == ':')) break;
    }
    INFERD_ASSIGN(Value value, lookup(pattern.substr(begin, name_end - begin)));
    size_t at = name_end;
    if (at < end && pattern[at] == '!') {
      const char conversion = at + 1 < end ? pattern[at + 1] : ' ';
      if (conversion != 's' && conversion != 'r') {
        return type_error("unknown conversion in a format: use !s or !r");
      }
      INFERD_ASSIGN(value, convert(value, conversion));
      at += 2;
      if (at < end && pattern[at] != ':') return type_error("expected ':' after conversion");
    }
    OriginText spec;
    if (at < end) {
      INFERD_ASSIGN(spec, expand(at + 1, end, depth - 1));
    }
    INFERD_ASSIGN(const OriginText text, format_value(interpreter_, value, spec.view()));
    return pattern_.is_markup() && !value.is_markup() ? escaped(text) : text;
  }

  Result<Value> convert(const Value& value, char conversion) {
    if (conversion == 's') {
      INFERD_ASSIGN(OriginText text, printed(interpreter_, value));
      return interpreter_.text(std::move(text));
    }
    INFERD_ASSIGN(std::string text, represented(interpreter_, value));
    return interpreter_.text(std::move(text),
                             value.shape().data ? Origin::kData : Origin::kTemplate);
  }

  // first.attribute[key]…
  Result<Value> lookup(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    INFERD_ASSIGN(Value value, argument(name.substr(0, first_end)));
    for (size_t at = first_end; at < name.size();) {
      const bool is_attribute = name[at] == '.';
      const size_t end = is_attribute ? std::min(name.find_first_of(".[", at + 1), name.size())
                                      : name.find(']', at + 1);
      if (end == std::string_view::npos) return type_error("missing ']' in format string");
      const std::string_view part = name.substr(at + 1, end - at - 1);
      if (part.empty()) return type_error("empty attribute in format string");
      if (is_attribute) {
        INFERD_ASSIGN(value, get_attribute(interpreter_, value, part));
        at = end;
      } else {
        INFERD_ASSIGN(value, get_item(interpreter_, value, key(part)));
        at = end + 1;
        if (at < name.size() && name[at] != '.' && name[at] != '[') {
          return type_error("only '.' or '[' may follow ']' in format field specifier");
        }
      }
    }
    return value;
  }

  Value key(std::string_view part) {
    int64_t number = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), number);
    const bool is_number = part[0] >= '0' && part[0] <= '9' && parsed.ec == std::errc() &&
                           parsed.ptr == part.data() + part.size();
    return is_number ? Value::integer(number)
                     : interpreter_.text(std::string(part), Origin::kTemplate);
  }

  Result<Value> argument(std::string_view name) {
    int64_t index = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool is_number = !name.empty() && name[0] >= '0' && name[0] <= '9' &&
                           parsed.ec == std::errc() && parsed.ptr == name.data() + name.size();
    if (!name.empty() && !is_number) {
      const Value* found = arguments_.find(name);
      if (found == nullptr) return type_error("there is no argument '" + std::string(name) + "'");
      return *found;
    }
    const bool automatic = name.empty();
    if (numbered_ && *numbered_ != automatic) {
      return type_error("automatic and explicit field numbers cannot be mixed");
    }
    numbered_ = automatic;
    const size_t place = automatic ? next_++ : static_cast<size_t>(index);
    if (place >= arguments_.positional.size()) {
      return type_error("a format names argument " + std::to_string(place) + ", of " +
                        std::to_string(arguments_.positional.size()));
    }
    return arguments_.positional[place];
  }

  Interpreter& interpreter_;
  const Value& pattern_;
  const Arguments& arguments_;
  size_t next_ = 0;
  std::optional<bool> numbered_;  // true: {}, false: {0}
};

}  // namespace

Result<Value> percent_format(Interpreter& interpreter, const Value& pattern, const Value& values) {
  return PercentFormatter(interpreter, pattern, values).run();
}

Result<Value> brace_format(Interpreter& interpreter, const Value& pattern,
                           const Arguments& arguments) {
  return BraceFormatter(interpreter, pattern, arguments).run();
}

Result<OriginText> format_value(Interpreter& interpreter, const Value& value,
                                std::string_view spec_text) {
  if (spec_text.empty()) return printed(interpreter, value);
  INFERD_ASSIGN(const Spec spec, parse_spec(spec_text));
  const bool wants_text = spec.type == 0 || spec.type == 's';
  if (value.is(Kind::kText)) {
    if (!wants_text || spec.align == '=' || spec.sign != '-') return bad_spec(spec_text);
    return format_text(interpreter, value.as_text(), spec);
  }
  if (!value.is_number()) {
    return type_error("unsupported format string passed to " + std::string(type_name(value)) +
                      ".__format__");
  }
  if (spec.type == 's') return bad_spec(spec_text);
  const bool as_real = value.is(Kind::kFloat) ||
                       std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  if (as_real && spec.type != 0) {
    if (std::string_view("eEfFgG%n").find(spec.type) == std::string_view::npos) {
      return bad_spec(spec_text);
    }
    return format_real(interpreter, value.as_real(), value.origin(), spec);
  }
  if (as_real) return format_real(interpreter, value.as_real(), value.origin(), spec);
  return format_integer(interpreter, value.as_int(), value.origin(), spec);
}

}  // namespace inferd::jinja
