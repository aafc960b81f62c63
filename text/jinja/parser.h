// Tokens to the syntax tree.
// Owner: text/jinja. Pure; any thread.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"
#include "text/jinja/ast.h"

namespace inferd::jinja {

// Errors: kDataCorrupt for a syntax error, kUnsupported for a tag that Jinja has and this
// interpreter lacks. Each names the line.
Result<std::unique_ptr<const Template>> parse(std::string_view source);

}  // namespace inferd::jinja
