#include "text/jinja/arguments.h"

#include <algorithm>

namespace inferd::jinja {

const Value* Arguments::find(std::string_view name) const {
  const auto found = std::find_if(named.begin(), named.end(),
                                  [name](const auto& entry) { return entry.first == name; });
  return found == named.end() ? nullptr : &found->second;
}

Result<int64_t> Bound::integer(size_t i, int64_t otherwise) const {
  if (!has(i)) return otherwise;
  return to_integer(*values_[i], "an argument");
}

Result<Bound> bind(const Arguments& arguments, std::initializer_list<std::string_view> names,
                   size_t required) {
  if (arguments.positional.size() > names.size()) {
    return type_error("takes at most " + std::to_string(names.size()) + " arguments, got " +
                      std::to_string(arguments.positional.size()));
  }
  std::vector<std::optional<Value>> values(arguments.positional.begin(),
                                           arguments.positional.end());
  values.resize(names.size());
  for (const auto& [name, value] : arguments.named) {
    const auto* found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) return type_error("takes no argument named '" + name + "'");
    auto& place = values[static_cast<size_t>(found - names.begin())];
    if (place.has_value()) return type_error("got argument '" + name + "' twice");
    place = value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values[i].has_value()) {
      return type_error("needs an argument '" + std::string(names.begin()[i]) + "'");
    }
  }
  return Bound(std::move(values));
}

Error type_error(std::string message) {
  return Error(ErrorCode::kInvalidArgument, std::move(message));
}

Result<int64_t> to_integer(const Value& value, std::string_view what) {
  if (value.is_integral()) return value.as_int();
  if (value.is(Kind::kUndefined)) return type_error(value.undefined_reason());
  return type_error(std::string(what) + " must be an integer, not '" +
                    std::string(type_name(value)) + "'");
}

Result<void> require_text(const Value& value, std::string_view what) {
  if (value.is(Kind::kText)) return {};
  if (value.is(Kind::kUndefined)) return type_error(value.undefined_reason());
  return type_error(std::string(what) + " must be a string, not '" + std::string(type_name(value)) +
                    "'");
}

Result<OriginText> to_text(const Value& value, std::string_view what) {
  INFERD_TRY(require_text(value, what));
  return value.as_text();
}

}  // namespace inferd::jinja
