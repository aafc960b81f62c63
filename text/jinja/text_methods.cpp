// Methods of strings that make other strings. Those that look into strings are in
// text_search_methods.cpp.
#include <algorithm>

#include "text/jinja/case_mapping.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/printing.h"
#include "text/jinja/registry.h"
#include "text/jinja/string_format.h"
#include "text/jinja/text_operations.h"
#include "text/jinja/unicode.h"

namespace inferd::jinja {
namespace {

// A result of a method of `self`: of a Markup it is Markup again.
Value like(Interpreter& interpreter, const Value& self, OriginText text) {
  return interpreter.text(std::move(text), self.is_markup());
}

// An argument of a method of `self`: Markup escapes what is added to it.
OriginText added_to(const Value& self, const Value& argument) {
  return self.is_markup() && !argument.is_markup() ? escaped(argument.as_text())
                                                   : argument.as_text();
}

Result<Value> list_like(Interpreter& interpreter, const Value& self, std::vector<OriginText> parts,
                        Flavor flavor = Flavor::kList) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (OriginText& part : parts) items.push_back(like(interpreter, self, std::move(part)));
  INFERD_TRY(interpreter.meter()->step(items.size()));
  return interpreter.list(std::move(items), flavor);
}

template <CaseMapping kMapping>
Result<Value> cased(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  // A character's other case may take three times its bytes.
  INFERD_TRY(interpreter.meter()->expect(self.as_text().size() * 3));
  return like(interpreter, self, map_case(self.as_text(), kMapping));
}

template <Side kSide>
Result<Value> stripped(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"chars"}));
  INFERD_TRY(interpreter.meter()->expect(self.as_text().size()));
  if (bound.absent(0)) {
    return like(interpreter, self, strip(self.as_text(), std::nullopt, kSide));
  }
  INFERD_ASSIGN(const OriginText set, to_text(bound[0], "the characters to strip"));
  INFERD_TRY(interpreter.meter()->step(set.size()));
  return like(interpreter, self, strip(self.as_text(), set.view(), kSide));
}

template <bool kFromRight>
Result<Value> split_method(Interpreter& interpreter, const Value& self,
                           const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"sep", "maxsplit"}));
  INFERD_ASSIGN(const int64_t splits, bound.integer(1, -1));
  INFERD_TRY(interpreter.meter()->expect(self.as_text().size()));
  if (bound.absent(0)) {
    return list_like(interpreter, self, split(self.as_text(), std::nullopt, splits, kFromRight));
  }
  INFERD_ASSIGN(const OriginText separator, to_text(bound[0], "the separator"));
  if (separator.empty()) return type_error("empty separator");
  return list_like(interpreter, self, split(self.as_text(), separator.view(), splits, kFromRight));
}

Result<Value> splitlines(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"keepends"}));
  INFERD_TRY(interpreter.meter()->expect(self.as_text().size()));
  return list_like(interpreter, self, split_lines(self.as_text(), bound.truth_of(0, false)));
}

template <bool kFromRight>
Result<Value> partition(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"sep"}, 1));
  INFERD_ASSIGN(const OriginText separator, to_text(bound[0], "the separator"));
  if (separator.empty()) return type_error("empty separator");
  const OriginText& text = self.as_text();
  INFERD_TRY(interpreter.meter()->expect(text.size()));
  const size_t at =
      kFromRight ? text.view().rfind(separator.view()) : text.view().find(separator.view());
  std::vector<OriginText> parts(3, OriginText("", text.overall()));
  if (at == std::string_view::npos) {
    parts[kFromRight ? 2 : 0] = text;
  } else {
    parts = {text.slice(0, at), text.slice(at, at + separator.size()),
             text.slice(at + separator.size(), text.size())};
  }
  return list_like(interpreter, self, std::move(parts), Flavor::kTuple);
}

Result<Value> replace(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"old", "new", "count"}, 2));
  INFERD_ASSIGN(const int64_t count, bound.integer(2, -1));
  INFERD_ASSIGN(const OriginText wanted, to_text(bound[0], "the text to replace"));
  INFERD_TRY(require_text(bound[1], "the replacement"));
  const OriginText replacement = added_to(self, bound[1]);
  INFERD_TRY(interpreter.meter()->expect(self.as_text().size()));
  const auto places = occurrences(self.view(), wanted.view(), count);
  INFERD_TRY(
      interpreter.meter()->expect(self.as_text().size() + places.size() * replacement.size()));
  return like(interpreter, self, replace_at(self.as_text(), places, wanted.size(), replacement));
}

Result<Value> join_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"iterable"}, 1));
  INFERD_ASSIGN(const std::vector<Value> items, interpreter.iterate(bound[0]));
  std::vector<OriginText> texts;
  uint64_t bytes = 0;
  for (const Value& item : items) {
    if (!item.is(Kind::kText)) {
      return type_error("sequence item " + std::to_string(texts.size()) +
                        ": expected a string, found '" + std::string(type_name(item)) + "'");
    }
    texts.push_back(added_to(self, item));
    bytes += texts.back().size() + self.as_text().size();
  }
  INFERD_TRY(interpreter.meter()->expect(bytes));
  return like(interpreter, self, join(self.as_text(), texts));
}

Result<Value> format_method(Interpreter& interpreter, const Value& self,
                            const Arguments& arguments) {
  return brace_format(interpreter, self, arguments);
}

Result<Value> format_map(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"mapping"}, 1));
  if (!bound[0].is(Kind::kDict)) return type_error("needs a dictionary");
  Arguments named;
  for (const auto& [key, value] : bound[0].as_dict().entries()) {
    if (key.is(Kind::kText)) named.named.emplace_back(key.view(), value);
  }
  INFERD_TRY(interpreter.meter()->step(named.named.size()));
  return brace_format(interpreter, self, named);
}

// Puts `text` into a field of `width` characters.
Result<OriginText> padded(Interpreter& interpreter, const OriginText& text, int64_t width,
                          const OriginText& fill, char align) {
  const auto size = static_cast<int64_t>(count_characters(text.view()));
  if (width <= size) return text;
  const auto missing = static_cast<uint64_t>(width - size);
  if (missing > interpreter.meter()->limits().memory_bytes_max) {
    return Error(ErrorCode::kResourceExhausted, "the width " + std::to_string(width) +
                                                    " is over the limit of a template's memory");
  }
  INFERD_TRY(interpreter.meter()->expect(missing * fill.size() + text.size()));
  uint64_t left = align == '<' ? 0 : missing;
  // Where the rest is odd, Python's center() favours the left if the width is odd too.
  if (align == '^') left = missing / 2 + (missing & static_cast<uint64_t>(width) & 1);
  OriginText result("", text.overall());
  for (uint64_t i = 0; i < left; ++i) result.append(fill);
  result.append(text);
  for (uint64_t i = left; i < missing; ++i) result.append(fill);
  return result;
}

template <char kAlign>
Result<Value> justified(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"width", "fillchar"}, 1));
  INFERD_ASSIGN(const int64_t width, bound.integer(0, 0));
  OriginText fill(" ", Origin::kTemplate);
  if (bound.has(1)) {
    INFERD_ASSIGN(fill, to_text(bound[1], "the fill character"));
    if (count_characters(fill.view()) != 1) {
      return type_error("The fill character must be exactly one character long");
    }
  }
  INFERD_ASSIGN(OriginText text, padded(interpreter, self.as_text(), width, fill, kAlign));
  return like(interpreter, self, std::move(text));
}

Result<Value> zfill(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"width"}, 1));
  INFERD_ASSIGN(const int64_t width, bound.integer(0, 0));
  const OriginText& text = self.as_text();
  const bool is_signed = !text.empty() && (text.view()[0] == '+' || text.view()[0] == '-');
  const size_t sign_bytes = is_signed ? 1 : 0;
  const auto sign_width = static_cast<int64_t>(sign_bytes);
  INFERD_ASSIGN(const int64_t rest_width, checked_subtract(width, sign_width));
  INFERD_ASSIGN(const OriginText filled, padded(interpreter, text.slice(sign_bytes, text.size()),
                                                rest_width, OriginText("0", text.overall()), '>'));
  OriginText result = text.slice(0, sign_bytes);
  result.append(filled);
  return like(interpreter, self, std::move(result));
}

template <bool kPrefix>
Result<Value> without_affix(Interpreter& interpreter, const Value& self,
                            const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"affix"}, 1));
  INFERD_ASSIGN(const OriginText affix, to_text(bound[0], "the prefix or suffix"));
  const OriginText& text = self.as_text();
  INFERD_TRY(interpreter.meter()->expect(text.size()));
  if (kPrefix && text.view().starts_with(affix.view())) {
    return like(interpreter, self, text.slice(affix.size(), text.size()));
  }
  if (!kPrefix && text.view().ends_with(affix.view())) {
    return like(interpreter, self, text.slice(0, text.size() - affix.size()));
  }
  return self;
}

Result<Value> expandtabs(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"tabsize"}));
  INFERD_ASSIGN(const int64_t tab_size, bound.integer(0, 8));
  const OriginText& text = self.as_text();
  const auto tabs = std::count(text.view().begin(), text.view().end(), '\t');
  const uint64_t tab_bytes = tab_size > 0 ? static_cast<uint64_t>(tab_size) : 0;
  if (tab_bytes > interpreter.meter()->limits().memory_bytes_max) {
    return Error(ErrorCode::kResourceExhausted, "the size of a tab is too large");
  }
  INFERD_TRY(interpreter.meter()->expect(text.size() + static_cast<uint64_t>(tabs) * tab_bytes));
  OriginText result("", text.overall());
  uint64_t column = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_character(text.view(), &at);
    if (c == '\t') {
      const uint64_t blanks = tab_bytes == 0 ? 0 : tab_bytes - column % tab_bytes;
      result.append(std::string(blanks, ' '), text.origin_at(begin));
      column += blanks;
    } else {
      result.append(text, begin, at);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  return like(interpreter, self, std::move(result));
}

Result<Value> unsupported(Interpreter&, const Value&, const Arguments&) {
  return Error(ErrorCode::kUnsupported, "this method of strings is not supported");
}

constexpr Method kMethods[] = {
    {"capitalize", cased<CaseMapping::kCapitalize>},
    {"casefold", cased<CaseMapping::kLower>},
    {"center", justified<'^'>},
    {"encode", unsupported},
    {"expandtabs", expandtabs},
    {"format", format_method},
    {"format_map", format_map},
    {"join", join_method},
    {"ljust", justified<'<'>},
    {"lower", cased<CaseMapping::kLower>},
    {"lstrip", stripped<Side::kLeft>},
    {"maketrans", unsupported},
    {"partition", partition<false>},
    {"removeprefix", without_affix<true>},
    {"removesuffix", without_affix<false>},
    {"replace", replace},
    {"rjust", justified<'>'>},
    {"rpartition", partition<true>},
    {"rsplit", split_method<true>},
    {"rstrip", stripped<Side::kRight>},
    {"split", split_method<false>},
    {"splitlines", splitlines},
    {"strip", stripped<Side::kBoth>},
    {"swapcase", cased<CaseMapping::kSwap>},
    {"title", cased<CaseMapping::kTitle>},
    {"translate", unsupported},
    {"upper", cased<CaseMapping::kUpper>},
    {"zfill", zfill},
};

}  // namespace

Table<Method> text_methods() { return {kMethods, std::size(kMethods)}; }

}  // namespace inferd::jinja
