// "…%s…" % values and "…{}…".format(values), as Python formats them.
// Owner: text/jinja. The pattern's text keeps its origin, and so does each value's.
#pragma once

#include "base/result.h"
#include "text/jinja/arguments.h"
#include "text/jinja/value.h"

namespace inferd::jinja {

// `pattern` is a text. `values` is a tuple, a dictionary for %(name)s, or one value.
// Errors: too few or too many values, a wrong type, an unknown conversion.
Result<Value> percent_format(Interpreter& interpreter, const Value& pattern, const Value& values);

// `pattern` is a text. Attribute and item lookups in its fields obey the sandbox.
Result<Value> brace_format(Interpreter& interpreter, const Value& pattern,
                           const Arguments& arguments);

// One value in the form that `spec` describes:
// [[fill]align][sign][z][#][0][width][,][.precision][type].
Result<OriginText> format_value(Interpreter& interpreter, const Value& value,
                                std::string_view spec);

}  // namespace inferd::jinja
