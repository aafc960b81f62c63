// Filters that write values in a form: JSON, formats, numbers as text, URLs.
#include <algorithm>
#include <cmath>

#include "text/jinja/interpreter.h"
#include "text/jinja/printing.h"
#include "text/jinja/registry.h"
#include "text/jinja/string_format.h"

namespace inferd::jinja {
namespace {

// tojson as Hugging Face sets it up: json.dumps with these options, and no HTML escapes.
Result<Value> tojson(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound,
                bind(arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = bound.truth_of(0, false);
  if (!bound.absent(1)) {
    if (bound[1].is(Kind::kText)) {
      style.indent = std::string(bound[1].view());
    } else {
      INFERD_ASSIGN(const int64_t width, bound.integer(1, 0));
      const auto blanks = static_cast<uint64_t>(std::max<int64_t>(width, 0));
      INFERD_TRY(interpreter.meter()->expect(blanks));
      style.indent = std::string(blanks, ' ');
    }
  }
  if (!bound.absent(2)) {
    INFERD_ASSIGN(const std::vector<Value> separators, interpreter.iterate(bound[2]));
    if (separators.size() != 2) return type_error("separators must be two strings");
    INFERD_ASSIGN(const OriginText item, to_text(separators[0], "a separator"));
    INFERD_ASSIGN(const OriginText key, to_text(separators[1], "a separator"));
    style.item_separator = std::string(item.view());
    style.key_separator = std::string(key.view());
  }
  style.sort_keys = bound.truth_of(3, false);
  INFERD_ASSIGN(OriginText text, json_text(interpreter, input, style));
  return interpreter.text(std::move(text));
}

Result<Value> format(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    return type_error("takes either positional or named arguments, not both");
  }
  INFERD_ASSIGN(OriginText text, printed(interpreter, input));
  const Value pattern = interpreter.text(std::move(text), input.is_markup());
  if (arguments.named.empty()) {
    INFERD_ASSIGN(const Value values, interpreter.list(arguments.positional, Flavor::kTuple));
    return percent_format(interpreter, pattern, values);
  }
  auto dict = std::make_shared<DictObject>(interpreter.meter());
  for (const auto& [name, value] : arguments.named) {
    dict->set(interpreter.text(name, Origin::kTemplate), value);
  }
  INFERD_ASSIGN(const Value values, make_dict(std::move(dict)));
  return percent_format(interpreter, pattern, values);
}

Result<Value> filesizeformat(Interpreter& interpreter, const Value& input,
                             const Arguments& arguments) {
  static constexpr const char* kPrefixes[] = {"k", "M", "G", "T", "P", "E", "Z", "Y"};
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"binary"}));
  const FilterFunction to_real = find_filter("float");
  INFERD_CHECK(to_real != nullptr);
  INFERD_ASSIGN(const Value size, to_real(interpreter, input, {}));
  const bool binary = bound.truth_of(0, false);
  const double base = binary ? 1024 : 1000;
  const double bytes = size.as_real();
  const Origin origin = input.shape().data ? Origin::kData : Origin::kTemplate;
  if (bytes == 1) return interpreter.text("1 Byte", origin);
  if (!(std::fabs(bytes) < 1e30)) return type_error("the size is out of range");
  if (bytes < base) {
    return interpreter.text(std::to_string(static_cast<int64_t>(std::max(bytes, -9e18))) + " Bytes",
                            origin);
  }
  double unit = base * base;
  size_t prefix = 0;
  for (; prefix + 1 < std::size(kPrefixes) && bytes >= unit; ++prefix) unit *= base;
  INFERD_ASSIGN(const OriginText number,
                format_value(interpreter, Value::real(base * bytes / unit), ".1f"));
  const std::string name(binary && prefix == 0 ? "K" : kPrefixes[prefix]);
  return interpreter.text(std::string(number.view()) + " " + name + (binary ? "iB" : "B"), origin);
}

// Percent-encodes all but letters, digits and _.-~, and "/" where it is no query.
OriginText url_quoted(const OriginText& text, bool for_query) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  OriginText result("", text.overall());
  text.for_each_run(0, text.size(), [&](std::string_view run, Origin origin) {
    std::string out;
    for (const char c : run) {
      const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-' || c == '~' ||
                         (c == '/' && !for_query);
      if (plain) {
        out.push_back(c);
      } else if (c == ' ' && for_query) {
        out.push_back('+');
      } else {
        out.push_back('%');
        out.push_back(kHex[static_cast<unsigned char>(c) >> 4]);
        out.push_back(kHex[static_cast<unsigned char>(c) & 0xF]);
      }
    }
    result.append(out, origin);
  });
  return result;
}

Result<Value> urlencode(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  const bool is_pairs = input.is(Kind::kDict) || input.is(Kind::kSequence);
  if (!is_pairs) {
    INFERD_ASSIGN(const OriginText text, printed(interpreter, input));
    INFERD_TRY(interpreter.meter()->expect(text.size() * 3));
    return interpreter.text(url_quoted(text, false));
  }
  std::vector<std::pair<Value, Value>> pairs;
  if (input.is(Kind::kDict)) {
    pairs = input.as_dict().entries();
  } else {
    INFERD_ASSIGN(const std::vector<Value> items, interpreter.iterate(input));
    for (const Value& item : items) {
      INFERD_ASSIGN(const std::vector<Value> pair, interpreter.iterate(item));
      if (pair.size() != 2) return type_error("needs pairs of a name and a value");
      pairs.emplace_back(pair[0], pair[1]);
    }
  }
  OriginText result;
  for (size_t i = 0; i < pairs.size(); ++i) {
    INFERD_ASSIGN(const OriginText name, printed(interpreter, pairs[i].first));
    INFERD_ASSIGN(const OriginText value, printed(interpreter, pairs[i].second));
    INFERD_TRY(interpreter.meter()->expect(result.size() + 3 * (name.size() + value.size())));
    if (i > 0) result.append("&", Origin::kTemplate);
    result.append(url_quoted(name, true));
    result.append("=", Origin::kTemplate);
    result.append(url_quoted(value, true));
  }
  return interpreter.text(std::move(result));
}

// Filters that Jinja2 has and no chat template needs.
Result<Value> unsupported(Interpreter&, const Value&, const Arguments&) {
  return Error(ErrorCode::kUnsupported, "this filter of Jinja2 is not supported");
}

constexpr Named<FilterFunction> kFilters[] = {
    {"filesizeformat", filesizeformat},
    {"format", format},
    {"pprint", unsupported},
    {"random", unsupported},
    {"striptags", unsupported},
    {"tojson", tojson},
    {"urlencode", urlencode},
    {"urlize", unsupported},
    {"wordwrap", unsupported},
    {"xmlattr", unsupported},
};

}  // namespace

Table<Named<FilterFunction>> format_filters() { return {kFilters, std::size(kFilters)}; }

}  // namespace inferd::jinja
