#include "text/jinja/printing.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/interpreter.h"
#include "text/jinja/sorting.h"
#include "text/jinja/unicode.h"

namespace inferd::jinja {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

void append_hex(std::string* out, uint32_t value, int digits) {
  for (int shift = (digits - 1) * 4; shift >= 0; shift -= 4) {
    out->push_back(kHexDigits[(value >> shift) & 0xF]);
  }
}

// A string as Python would write it: quotes, and escapes for what is not printable.
std::string quoted(std::string_view text) {
  const bool use_double =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = use_double ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_character(text, &at);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      out.append(text.substr(begin, at - begin));
    } else {
      out += c < 0x100 ? "\\x" : c < 0x10000 ? "\\u" : "\\U";
      append_hex(&out, c, c < 0x100 ? 2 : c < 0x10000 ? 4 : 8);
    }
  }
  out.push_back(quote);
  return out;
}

// repr(), and str() of everything but texts and undefined.
class Representation {
 public:
  explicit Representation(Interpreter& interpreter) : interpreter_(interpreter) {}

  Result<void> append(const Value& value) {
    INFERD_TRY(interpreter_.meter()->expect(out_.size() / kBytesPerStep));
    switch (value.kind()) {
      case Kind::kUndefined:
        out_ += "Undefined";
        return {};
      case Kind::kNone:
        out_ += "None";
        return {};
      case Kind::kBool:
        out_ += value.as_bool() ? "True" : "False";
        return {};
      case Kind::kInt:
        out_ += std::to_string(value.as_int());
        return {};
      case Kind::kFloat:
        out_ += print_real(value.as_real());
        return {};
      case Kind::kText:
        INFERD_TRY(interpreter_.meter()->expect(value.as_text().size()));
        out_ += value.is_markup() ? "Markup(" + quoted(value.view()) + ")" : quoted(value.view());
        return {};
      case Kind::kDict:
        return append_dict(value.as_dict());
      case Kind::kObject:
        out_ += value.as_object().printed();
        return {};
      case Kind::kSequence:
        return append_sequence(value.as_sequence());
    }
    return {};
  }
  std::string take() { return std::move(out_); }

 private:
  Result<void> append_items(const std::vector<Value>& items) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += ", ";
      INFERD_TRY(append(items[i]));
    }
    return {};
  }

  Result<void> append_dict(const DictObject& dict) {
    out_ += "{";
    bool first = true;
    for (const auto& [key, entry] : dict.entries()) {
      if (!first) out_ += ", ";
      first = false;
      INFERD_TRY(append(key));
      out_ += ": ";
      INFERD_TRY(append(entry));
    }
    out_ += "}";
    return {};
  }

  Result<void> append_sequence(const SequenceObject& sequence) {
    switch (sequence.flavor) {
      case Flavor::kList:
        out_ += "[";
        INFERD_TRY(append_items(sequence.items));
        out_ += "]";
        return {};
      case Flavor::kTuple:
      case Flavor::kGroup:
        out_ += "(";
        INFERD_TRY(append_items(sequence.items));
        out_ += sequence.items.size() == 1 ? ",)" : ")";
        return {};
      case Flavor::kRange:
        append_range(sequence);
        return {};
      case Flavor::kIterator:
        out_ += "<" + sequence.label + " object>";
        return {};
      default:
        break;
    }
    out_ += sequence.flavor == Flavor::kKeys     ? "dict_keys(["
            : sequence.flavor == Flavor::kValues ? "dict_values(["
                                                 : "dict_items([";
    INFERD_TRY(append_items(sequence.items));
    out_ += "])";
    return {};
  }

  void append_range(const SequenceObject& range) {
    if (!range.label.empty()) {
      out_ += range.label;
      return;
    }
    // A slice of a range: its bounds are worked out from its items, all within kRangeItemsMax of
    // others.
    const auto& items = range.items;
    const int64_t first = items.empty() ? 0 : items[0].as_int();
    const int64_t step = items.size() < 2 ? 1 : items[1].as_int() - first;
    out_ += "range(" + std::to_string(first) + ", ";
    out_ += items.empty() ? "0" : std::to_string(items.back().as_int() + (step > 0 ? 1 : -1));
    if (step != 1) out_ += ", " + std::to_string(step);
    out_ += ")";
  }

  Interpreter& interpreter_;
  std::string out_;
};

class JsonWriter {
 public:
  JsonWriter(Interpreter& interpreter, const JsonStyle& style)
      : interpreter_(interpreter),
        style_(style),
        item_separator_(style.item_separator ? *style.item_separator
                        : style.indent       ? ","
                                             : ", "),
        key_separator_(style.key_separator ? *style.key_separator : ": ") {}

  Result<void> write(const Value& value) {
    INFERD_TRY(interpreter_.meter()->expect(out_.size() / kBytesPerStep));
    switch (value.kind()) {
      case Kind::kNone:
        out_ += "null";
        return {};
      case Kind::kBool:
        out_ += value.as_bool() ? "true" : "false";
        return {};
      case Kind::kInt:
        out_ += std::to_string(value.as_int());
        return {};
      case Kind::kFloat:
        out_ += json_real(value.as_real());
        return {};
      case Kind::kText:
        return write_text(value.view());
      case Kind::kDict:
        return write_dict(value.as_dict());
      case Kind::kSequence: {
        const Flavor flavor = value.as_sequence().flavor;
        if (flavor == Flavor::kList || flavor == Flavor::kTuple || flavor == Flavor::kGroup) {
          return write_list(value.as_sequence().items);
        }
        break;
      }
      default:
        break;
    }
    return type_error("an object of type " + std::string(type_name(value)) +
                      " is not JSON serializable");
  }
  std::string take() { return std::move(out_); }

 private:
  static std::string json_real(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return print_real(value);
  }

  void new_line() {
    if (!style_.indent) return;
    out_.push_back('\n');
    for (size_t i = 0; i < level_; ++i) out_ += *style_.indent;
  }

  Result<void> write_text(std::string_view text) {
    INFERD_TRY(interpreter_.meter()->expect(text.size()));
    out_.push_back('"');
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      const char32_t c = next_character(text, &at);
      const std::string_view simple = c == '"'    ? "\\\""
                                      : c == '\\' ? "\\\\"
                                      : c == '\n' ? "\\n"
                                      : c == '\r' ? "\\r"
                                      : c == '\t' ? "\\t"
                                      : c == '\f' ? "\\f"
                                      : c == '\b' ? "\\b"
                                                  : "";
      if (!simple.empty()) {
        out_ += simple;
      } else if (c < 0x20 || (style_.ensure_ascii && c > 0x7E)) {
        write_escape(c);
      } else {
        out_.append(text.substr(begin, at - begin));
      }
    }
    out_.push_back('"');
    return {};
  }

  void write_escape(char32_t c) {
    if (c >= 0x10000) {
      out_ += "\\u";
      append_hex(&out_, 0xD800 + ((c - 0x10000) >> 10), 4);
      c = 0xDC00 + ((c - 0x10000) & 0x3FF);
    }
    out_ += "\\u";
    append_hex(&out_, c, 4);
  }

  Result<void> write_list(const std::vector<Value>& items) {
    if (items.empty()) {
      out_ += "[]";
      return {};
    }
    out_ += "[";
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += item_separator_;
      new_line();
      INFERD_TRY(write(items[i]));
    }
    --level_;
    new_line();
    out_ += "]";
    return {};
  }

  Result<void> write_dict(const DictObject& dict) {
    if (dict.size() == 0) {
      out_ += "{}";
      return {};
    }
    std::vector<size_t> order(dict.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (style_.sort_keys) {
      std::vector<Value> keys;
      for (const auto& [key, entry] : dict.entries()) keys.push_back(key);
      INFERD_ASSIGN(order, sorted_order(interpreter_, keys, false));
    }
    out_ += "{";
    ++level_;
    bool first = true;
    for (const size_t i : order) {
      const auto& [key, entry] = dict.entries()[i];
      if (!first) out_ += item_separator_;
      first = false;
      new_line();
      INFERD_TRY(write_key(key));
      out_ += key_separator_;
      INFERD_TRY(write(entry));
    }
    --level_;
    new_line();
    out_ += "}";
    return {};
  }

  // Keys that are no strings become the strings that JSON would write for them.
  Result<void> write_key(const Value& key) {
    if (key.is(Kind::kText)) return write_text(key.view());
    if (!key.is_number() && !key.is(Kind::kNone)) {
      return type_error("keys must be str, int, float, bool or None, not " +
                        std::string(type_name(key)));
    }
    out_.push_back('"');
    INFERD_TRY(write(key));
    out_.push_back('"');
    return {};
  }

  Interpreter& interpreter_;
  const JsonStyle& style_;
  std::string item_separator_;
  std::string key_separator_;
  std::string out_;
  size_t level_ = 0;
};

}  // namespace

std::string print_real(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // Shortest digits that read back, as d.ddde±xx; then Python's choice between the two forms.
  char buffer[32];
  const auto printed =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(printed.ptr - buffer));
  const size_t mark = text.find('e');
  int exponent = 0;
  const size_t exponent_begin = text[mark + 1] == '+' ? mark + 2 : mark + 1;
  std::from_chars(text.data() + exponent_begin, text.data() + text.size(), exponent);
  std::string digits;
  for (const char c : text.substr(0, mark)) {
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  std::string out = std::signbit(value) ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (digits.size() > 1) out += "." + digits.substr(1);
    const std::string size = std::to_string(std::abs(exponent));
    return out + (exponent < 0 ? "e-" : "e+") + (size.size() < 2 ? "0" : "") + size;
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

Result<void> append_printed(Interpreter& interpreter, const Value& value, OriginText* out) {
  if (value.is(Kind::kUndefined)) return {};
  if (value.is(Kind::kText)) {
    INFERD_TRY(interpreter.meter()->expect(value.as_text().size()));
    out->append(value.as_text());
    return {};
  }
  INFERD_ASSIGN(const std::string text, represented(interpreter, value));
  out->append(text, value.shape().data ? Origin::kData : Origin::kTemplate);
  return {};
}

Result<OriginText> printed(Interpreter& interpreter, const Value& value) {
  if (value.is(Kind::kText)) return value.as_text();
  OriginText out("", value.shape().data ? Origin::kData : Origin::kTemplate);
  INFERD_TRY(append_printed(interpreter, value, &out));
  return out;
}

Result<std::string> represented(Interpreter& interpreter, const Value& value) {
  INFERD_TRY(interpreter.meter()->step(value.shape().weight));
  Representation representation(interpreter);
  INFERD_TRY(representation.append(value));
  return representation.take();
}

Result<OriginText> json_text(Interpreter& interpreter, const Value& value, const JsonStyle& style) {
  INFERD_TRY(interpreter.meter()->step(value.shape().weight));
  JsonWriter writer(interpreter, style);
  INFERD_TRY(writer.write(value));
  return OriginText(writer.take(), value.shape().data ? Origin::kData : Origin::kTemplate);
}

}  // namespace inferd::jinja
