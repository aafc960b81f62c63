// Escapes in string literals, as Python's unicode_escape reads them.
// Owner: text/jinja. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace inferd::jinja {

// `body` is what stands between the quotes, UTF-8. Errors: kDataCorrupt for an incomplete escape,
// or one that names half of a surrogate pair or a character by its Unicode name.
Result<std::string> unescape_literal(std::string_view body);

}  // namespace inferd::jinja
