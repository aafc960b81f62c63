// Methods of strings that answer a question about them.
#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/registry.h"
#include "text/jinja/text_operations.h"
#include "text/jinja/unicode.h"

namespace inferd::jinja {
namespace {

// The bytes [begin, end) of a text that the arguments start and end (in characters) select; not set
// if start is behind the end.
struct Window {
  size_t begin;
  size_t end;
};

Result<std::optional<Window>> window(Interpreter& interpreter, const Value& self,
                                     const Bound& bound, size_t first_argument) {
  INFERD_TRY(interpreter.meter()->step(self.as_text().size() / kBytesPerStep));
  const auto size = static_cast<int64_t>(count_characters(self.view()));
  const auto place = [&](size_t argument, int64_t otherwise) -> Result<int64_t> {
    if (bound.absent(argument)) return otherwise;
    INFERD_ASSIGN(const int64_t index, to_integer(bound[argument], "a position in a string"));
    return index < 0 ? std::max<int64_t>(index < -size ? 0 : index + size, 0) : index;
  };
  INFERD_ASSIGN(const int64_t start, place(first_argument, 0));
  INFERD_ASSIGN(const int64_t end, place(first_argument + 1, size));
  if (start > size || start > end) return std::optional<Window>();
  return std::optional(
      Window{byte_of_character(self.view(), static_cast<size_t>(start)),
             byte_of_character(self.view(), static_cast<size_t>(std::min(end, size)))});
}

template <bool kPrefix>
Result<Value> has_affix(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"affix", "start", "end"}, 1));
  INFERD_ASSIGN(const std::optional<Window> range, window(interpreter, self, bound, 1));
  std::vector<Value> affixes{bound[0]};
  if (bound[0].is(Kind::kSequence) && bound[0].as_sequence().flavor == Flavor::kTuple) {
    affixes = bound[0].as_sequence().items;
  }
  for (const Value& candidate : affixes) {
    INFERD_ASSIGN(const OriginText affix, to_text(candidate, "the prefix or suffix"));
    if (!range) continue;
    const std::string_view view = self.view().substr(range->begin, range->end - range->begin);
    if (kPrefix ? view.starts_with(affix.view()) : view.ends_with(affix.view())) {
      return Value::boolean(true);
    }
  }
  return Value::boolean(false);
}

// find, rfind; with kMustExist index, rindex. The answer counts characters.
template <bool kFromRight, bool kMustExist>
Result<Value> find(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"sub", "start", "end"}, 1));
  INFERD_ASSIGN(const OriginText wanted, to_text(bound[0], "the text to find"));
  INFERD_ASSIGN(const std::optional<Window> range, window(interpreter, self, bound, 1));
  const Origin origin = mixed(self.origin(), wanted.overall());
  size_t found = std::string_view::npos;
  if (range) {
    const std::string_view view = self.view().substr(range->begin, range->end - range->begin);
    found = kFromRight ? view.rfind(wanted.view()) : view.find(wanted.view());
  }
  if (found == std::string_view::npos) {
    if (kMustExist) return type_error("substring not found");
    return Value::integer(-1, origin);
  }
  return Value::integer(
      static_cast<int64_t>(count_characters(self.view().substr(0, range->begin + found))), origin);
}

Result<Value> count(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"sub", "start", "end"}, 1));
  INFERD_ASSIGN(const OriginText wanted, to_text(bound[0], "the text to count"));
  INFERD_ASSIGN(const std::optional<Window> range, window(interpreter, self, bound, 1));
  const Origin origin = mixed(self.origin(), wanted.overall());
  if (!range) return Value::integer(0, origin);
  const std::string_view view = self.view().substr(range->begin, range->end - range->begin);
  return Value::integer(static_cast<int64_t>(occurrences(view, wanted.view(), -1).size()), origin);
}

// Whether there are characters and all are of a class.
template <bool (*kClass)(char32_t)>
Result<Value> all_are(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  INFERD_TRY(interpreter.meter()->step(self.as_text().size() / kBytesPerStep));
  bool all = !self.as_text().empty();
  for (size_t at = 0; at < self.view().size() && all;)
    all = kClass(next_character(self.view(), &at));
  return Value::boolean(all);
}

bool is_alphanumeric(char32_t c) { return is_letter(c) || is_numeric(c); }
bool is_not_alphanumeric(char32_t c) { return c != '_' && !is_alphanumeric(c); }

Result<Value> isascii(Interpreter&, const Value& self, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  return Value::boolean(std::all_of(self.view().begin(), self.view().end(),
                                    [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}

Result<Value> isprintable(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  if (self.as_text().empty()) return Value::boolean(true);
  return all_are<is_printable>(interpreter, self, arguments);
}

Result<Value> isidentifier(Interpreter&, const Value& self, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  const std::string_view view = self.view();
  size_t at = 0;
  bool good = !view.empty() && !is_decimal(next_character(view, &at));
  for (at = 0; at < view.size() && good;) good = !is_not_alphanumeric(next_character(view, &at));
  return Value::boolean(good);
}

// Whether some characters have case and all of those are of the one asked for.
template <bool kUpper>
Result<Value> cased(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  INFERD_TRY(interpreter.meter()->step(self.as_text().size() / kBytesPerStep));
  bool any = false;
  for (size_t at = 0; at < self.view().size();) {
    const char32_t c = next_character(self.view(), &at);
    if ((kUpper ? is_lower(c) : is_upper(c)) || is_title(c)) return Value::boolean(false);
    any = any || (kUpper ? is_upper(c) : is_lower(c));
  }
  return Value::boolean(any);
}

Result<Value> istitle(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  INFERD_TRY(interpreter.meter()->step(self.as_text().size() / kBytesPerStep));
  bool any = false;
  bool after_letter = false;
  for (size_t at = 0; at < self.view().size();) {
    const char32_t c = next_character(self.view(), &at);
    const bool capital = is_upper(c) || is_title(c);
    if ((capital && after_letter) || (is_lower(c) && !after_letter)) return Value::boolean(false);
    after_letter = capital || is_lower(c);
    any = any || after_letter;
  }
  return Value::boolean(any);
}

constexpr Method kMethods[] = {
    {"count", count},
    {"endswith", has_affix<false>},
    {"find", find<false, false>},
    {"index", find<false, true>},
    {"isalnum", all_are<is_alphanumeric>},
    {"isalpha", all_are<is_letter>},
    {"isascii", isascii},
    {"isdecimal", all_are<is_decimal>},
    {"isdigit", all_are<is_decimal>},
    {"isidentifier", isidentifier},
    {"islower", cased<false>},
    {"isnumeric", all_are<is_numeric>},
    {"isprintable", isprintable},
    {"isspace", all_are<is_space>},
    {"istitle", istitle},
    {"isupper", cased<true>},
    {"rfind", find<true, false>},
    {"rindex", find<true, true>},
    {"startswith", has_affix<true>},
};

}  // namespace

Table<Method> text_search_methods() { return {kMethods, std::size(kMethods)}; }

}  // namespace inferd::jinja
