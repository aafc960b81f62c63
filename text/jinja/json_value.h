// JSON of the caller as values of a template: all of it data.
// Owner: text/jinja. Pure but for the meter.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/result.h"
#include "text/jinja/value.h"

namespace inferd::jinja {

// Errors: kInvalidArgument for a string that is not UTF-8 and for an integer beyond 64 bits with
// sign; kResourceExhausted for nesting or memory over the limits.
Result<Value> value_from_json(Meter* meter, const nlohmann::ordered_json& json);

}  // namespace inferd::jinja
