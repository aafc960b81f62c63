// Filters whose input is a text, or is printed to become one.
#include <algorithm>

#include "text/jinja/attributes.h"
#include "text/jinja/case_mapping.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/printing.h"
#include "text/jinja/registry.h"
#include "text/jinja/text_operations.h"
#include "text/jinja/unicode.h"

namespace inferd::jinja {
namespace {

// The input as a text, printed if it is none. Markup stays Markup.
Result<Value> as_text_value(Interpreter& interpreter, const Value& input) {
  if (input.is(Kind::kText)) return input;
  INFERD_ASSIGN(OriginText text, printed(interpreter, input));
  return interpreter.text(std::move(text));
}

// Calls the method of the input's text.
Result<Value> by_method(Interpreter& interpreter, const Value& input, std::string_view name,
                        const Arguments& arguments) {
  INFERD_ASSIGN(const Value text, as_text_value(interpreter, input));
  const Method* method = find_method(text, name);
  INFERD_CHECK(method != nullptr && method->function != nullptr);
  return method->function(interpreter, text, arguments);
}

Result<Value> upper(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  return by_method(interpreter, input, "upper", arguments);
}

Result<Value> lower(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  return by_method(interpreter, input, "lower", arguments);
}

Result<Value> capitalize(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  return by_method(interpreter, input, "capitalize", arguments);
}

Result<Value> trim(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"chars"}));
  Arguments method_arguments;
  if (!bound.absent(0)) method_arguments.positional.push_back(bound[0]);
  return by_method(interpreter, input, "strip", method_arguments);
}

Result<Value> center(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"width"}));
  Arguments method_arguments;
  method_arguments.positional.push_back(bound.get(0, Value::integer(80)));
  return by_method(interpreter, input, "center", method_arguments);
}

// Words begin after white space, dashes and opening brackets; each gets one capital.
Result<Value> title(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  INFERD_ASSIGN(const Value value, as_text_value(interpreter, input));
  const OriginText& text = value.as_text();
  INFERD_TRY(interpreter.meter()->expect(text.size() * 3));
  OriginText result("", text.overall());
  const auto begins_word = [](char32_t c) {
    return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  for (size_t at = 0; at < text.size();) {
    size_t first_end = at;
    const bool is_word = !begins_word(next_character(text.view(), &first_end));
    size_t end = first_end;
    for (size_t next = end; is_word && next < text.size(); end = next) {
      if (begins_word(next_character(text.view(), &next))) break;
    }
    result.append(map_case(text.slice(at, first_end), CaseMapping::kUpper));
    result.append(map_case(text.slice(first_end, end), CaseMapping::kLower));
    at = end;
  }
  return interpreter.text(std::move(result));
}

Result<Value> replace(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"old", "new", "count"}, 2));
  INFERD_ASSIGN(const OriginText text, printed(interpreter, input));
  INFERD_ASSIGN(const OriginText wanted, printed(interpreter, bound[0]));
  INFERD_ASSIGN(const OriginText replacement, printed(interpreter, bound[1]));
  int64_t count = -1;
  if (!bound.absent(2)) {
    INFERD_ASSIGN(count, bound.integer(2, -1));
  }
  INFERD_TRY(interpreter.meter()->expect(text.size()));
  const auto places = occurrences(text.view(), wanted.view(), count);
  INFERD_TRY(interpreter.meter()->expect(text.size() + places.size() * replacement.size()));
  return interpreter.text(replace_at(text, places, wanted.size(), replacement));
}

Result<Value> join_filter(Interpreter& interpreter, const Value& input,
                          const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"d", "attribute"}));
  OriginText separator;
  if (bound.has(0)) {
    INFERD_ASSIGN(separator, printed(interpreter, bound[0]));
  }
  INFERD_ASSIGN(const std::vector<Value> items, interpreter.iterate(input));
  OriginText result;
  for (size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (!bound.absent(1)) {
      INFERD_ASSIGN(item, get_path(interpreter, item, bound[1]));
    }
    if (i > 0) result.append(separator);
    INFERD_TRY(append_printed(interpreter, item, &result));
    INFERD_TRY(interpreter.meter()->expect(result.size() / kBytesPerStep));
    INFERD_TRY(interpreter.meter()->step(separator.size() / kBytesPerStep));
  }
  return interpreter.text(std::move(result));
}

Result<Value> indent(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"width", "first", "blank"}));
  INFERD_TRY(require_text(input, "the input"));
  OriginText indention("    ", Origin::kTemplate);
  if (bound.has(0) && bound[0].is(Kind::kText)) {
    indention = bound[0].as_text();
  } else if (bound.has(0)) {
    INFERD_ASSIGN(const int64_t width, bound.integer(0, 4));
    const auto bytes = static_cast<uint64_t>(std::max<int64_t>(width, 0));
    INFERD_TRY(interpreter.meter()->expect(bytes));
    indention = OriginText(std::string(bytes, ' '), Origin::kTemplate);
  }
  const bool blank = bound.truth_of(2, false);
  // Jinja2 adds a line end, so that the last line counts even if it is empty.
  OriginText text = input.as_text();
  text.append("\n", text.overall());
  const std::vector<OriginText> lines = split_lines(text, false);
  INFERD_TRY(interpreter.meter()->expect(text.size() + (lines.size() + 1) * indention.size()));
  OriginText result("", input.origin());
  if (bound.truth_of(1, false)) result.append(indention);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      result.append("\n", input.origin());
      if (blank || !lines[i].empty()) result.append(indention);
    }
    result.append(lines[i]);
  }
  return interpreter.text(std::move(result), input.is_markup());
}

Result<Value> truncate(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"length", "killwords", "end", "leeway"}));
  INFERD_ASSIGN(const int64_t length, bound.integer(0, 255));
  OriginText end("...", Origin::kTemplate);
  if (bound.has(2)) {
    INFERD_ASSIGN(end, to_text(bound[2], "the end"));
  }
  int64_t leeway = 5;
  if (!bound.absent(3)) {
    INFERD_ASSIGN(leeway, bound.integer(3, leeway));
  }
  const auto end_size = static_cast<int64_t>(count_characters(end.view()));
  if (length < end_size || leeway < 0) {
    return type_error("the length must be at least that of the end, and the leeway not negative");
  }
  INFERD_TRY(require_text(input, "the input"));
  const OriginText& text = input.as_text();
  INFERD_TRY(interpreter.meter()->expect(text.size()));
  INFERD_ASSIGN(const int64_t longest, checked_add(length, leeway));
  if (static_cast<int64_t>(count_characters(text.view())) <= longest) return input;
  OriginText kept =
      text.slice(0, byte_of_character(text.view(), static_cast<size_t>(length - end_size)));
  if (!bound.truth_of(1, false)) kept = split(kept, " ", 1, true)[0];
  kept.append(end);
  return interpreter.text(std::move(kept));
}

Result<Value> wordcount(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  INFERD_ASSIGN(const OriginText text, printed(interpreter, input));
  int64_t words = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_character(text.view(), &at);
    const bool is_word = c == '_' || is_letter(c) || is_numeric(c);
    words += is_word && !in_word ? 1 : 0;
    in_word = is_word;
  }
  return Value::integer(words, text.overall());
}

Result<Value> string(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  return as_text_value(interpreter, input);
}

Result<Value> safe(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  INFERD_ASSIGN(OriginText text, printed(interpreter, input));
  return interpreter.text(std::move(text), true);
}

template <bool kForce>
Result<Value> escape(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  INFERD_ASSIGN(OriginText text, printed(interpreter, input));
  INFERD_TRY(interpreter.meter()->expect(text.size() * 6));
  if (kForce || !input.is_markup()) text = escaped(text);
  return interpreter.text(std::move(text), true);
}

constexpr Named<FilterFunction> kFilters[] = {
    {"capitalize", capitalize},
    {"center", center},
    {"e", escape<false>},
    {"escape", escape<false>},
    {"forceescape", escape<true>},
    {"indent", indent},
    {"join", join_filter},
    {"lower", lower},
    {"replace", replace},
    {"safe", safe},
    {"string", string},
    {"title", title},
    {"trim", trim},
    {"truncate", truncate},
    {"upper", upper},
    {"wordcount", wordcount},
};

}  // namespace

Table<Named<FilterFunction>> text_filters() { return {kFilters, std::size(kFilters)}; }

}  // namespace inferd::jinja
