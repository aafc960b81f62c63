// Values as text: Python's str(), repr() and json.dumps().
// Owner: text/jinja.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/jinja/value.h"

namespace inferd::jinja {

// The shortest decimal that reads back to the same double, in Python's form: 1.0, 1e+16, nan.
std::string print_real(double value);

// str(value), appended. Texts keep the origin of each byte; a container's text is data as a whole
// if anything in it is data. Undefined prints nothing.
Result<void> append_printed(Interpreter& interpreter, const Value& value, OriginText* out);
Result<OriginText> printed(Interpreter& interpreter, const Value& value);
// repr(value).
Result<std::string> represented(Interpreter& interpreter, const Value& value);

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // text put once per level; not set: everything on one line
  std::optional<std::string> item_separator;
  std::optional<std::string> key_separator;
  bool sort_keys = false;
};
// json.dumps(value). Data as a whole if anything in it is data.
Result<OriginText> json_text(Interpreter& interpreter, const Value& value, const JsonStyle& style);

}  // namespace inferd::jinja
