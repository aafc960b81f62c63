#include "text/jinja/attributes.h"

#include <algorithm>
#include <charconv>

#include "text/jinja/interpreter.h"
#include "text/jinja/objects.h"
#include "text/jinja/printing.h"
#include "text/jinja/registry.h"
#include "text/jinja/unicode.h"

namespace inferd::jinja {
namespace {

// "None", "dict object": how Jinja2's messages call an object.
std::string object_name(const Value& value) {
  if (value.is(Kind::kNone)) return "None";
  return std::string(type_name(value)) + " object";
}

Value no_attribute(const Value& object, std::string_view name) {
  return Value::undefined("'" + object_name(object) + "' has no attribute '" + std::string(name) +
                          "'");
}

Value unsafe(const Value& object, std::string_view name) {
  return Value::undefined("access to attribute '" + std::string(name) + "' of '" +
                          std::string(type_name(object)) + "' object is unsafe");
}

// Python's getattr, as far as the sandbox lets it; not set if there is no such attribute.
Result<std::optional<Value>> python_attribute(Interpreter& interpreter, const Value& object,
                                              std::string_view name) {
  std::optional<Value> found;
  if (object.is(Kind::kObject)) {
    INFERD_ASSIGN(found, object.as_object().attribute(interpreter, name));
  } else if (const Method* method = find_method(object, name)) {
    if (method->function == nullptr) return std::optional(unsafe(object, name));
    found = Value::object(std::make_shared<MethodObject>(object, method));
  } else if (object.is(Kind::kSequence) && object.as_sequence().flavor == Flavor::kGroup &&
             (name == "grouper" || name == "list")) {
    found = object.as_sequence().items[name == "list" ? 1 : 0];
  }
  const bool is_internal = name.starts_with("__") && name.ends_with("__");
  if ((found && name.starts_with('_')) || is_internal) return std::optional(unsafe(object, name));
  return found;
}

bool has_elements(const Value& object) {
  if (!object.is(Kind::kSequence)) return false;
  switch (object.as_sequence().flavor) {
    case Flavor::kList:
    case Flavor::kTuple:
    case Flavor::kGroup:
    case Flavor::kRange:
      return true;
    default:
      return false;
  }
}

// The one character at `index`; not set if outside.
Result<std::optional<Value>> character_at(Interpreter& interpreter, const Value& object,
                                          int64_t index) {
  const OriginText& text = object.as_text();
  INFERD_TRY(interpreter.meter()->step(text.size() / kBytesPerStep));
  const auto position = element_position(index, count_characters(text.view()));
  if (!position) return std::optional<Value>();
  const size_t begin = byte_of_character(text.view(), *position);
  size_t end = begin;
  next_character(text.view(), &end);
  return std::optional(interpreter.text(text.slice(begin, end), object.is_markup()));
}

struct SliceRange {
  int64_t start;
  int64_t step;
  size_t count;
};

// Python's slice.indices() for `size` elements.
Result<SliceRange> slice_range(size_t size, const Value& start, const Value& stop,
                               const Value& step) {
  int64_t stride = 1;
  if (!step.is(Kind::kNone)) {
    INFERD_ASSIGN(stride, to_integer(step, "the step of a slice"));
  }
  if (stride == 0) return type_error("the step of a slice cannot be zero");
  const auto length = static_cast<int64_t>(size);
  const int64_t lowest = stride < 0 ? -1 : 0;
  const int64_t highest = stride < 0 ? length - 1 : length;
  const auto bound = [&](const Value& value, int64_t otherwise) -> Result<int64_t> {
    if (value.is(Kind::kNone)) return otherwise;
    INFERD_ASSIGN(const int64_t index, to_integer(value, "a bound of a slice"));
    if (index < -length) return lowest;
    return std::clamp(index < 0 ? index + length : index, lowest, highest);
  };
  INFERD_ASSIGN(const int64_t first, bound(start, stride < 0 ? highest : lowest));
  INFERD_ASSIGN(const int64_t last, bound(stop, stride < 0 ? lowest : highest));
  SliceRange range{first, stride, 0};
  // |stride| as unsigned, so that the smallest integer has one.
  const uint64_t width =
      stride < 0 ? 0 - static_cast<uint64_t>(stride) : static_cast<uint64_t>(stride);
  const int64_t distance = stride < 0 ? first - last : last - first;
  if (distance > 0)
    range.count = static_cast<size_t>((static_cast<uint64_t>(distance) - 1) / width + 1);
  return range;
}

Result<Value> slice_text(Interpreter& interpreter, const Value& object, const Value& start,
                         const Value& stop, const Value& step) {
  const OriginText& text = object.as_text();
  INFERD_TRY(interpreter.meter()->expect(text.size()));
  const size_t size = count_characters(text.view());
  INFERD_ASSIGN(const SliceRange range, slice_range(size, start, stop, step));
  if (range.count == 0) {
    return interpreter.text(OriginText("", text.overall()), object.is_markup());
  }
  if (range.step == 1) {
    const auto first = static_cast<size_t>(range.start);
    const size_t begin = byte_of_character(text.view(), first);
    const size_t end = begin + byte_of_character(text.view().substr(begin), range.count);
    return interpreter.text(text.slice(begin, end), object.is_markup());
  }
  INFERD_TRY(interpreter.meter()->expect(size * sizeof(size_t)));
  std::vector<size_t> begins;  // of each character, and the end
  begins.reserve(size + 1);
  for (size_t at = 0; at < text.size(); next_character(text.view(), &at)) begins.push_back(at);
  begins.push_back(text.size());
  OriginText result;
  int64_t at = range.start;
  for (size_t i = 0; i < range.count; ++i) {
    result.append(text, begins[static_cast<size_t>(at)], begins[static_cast<size_t>(at) + 1]);
    if (i + 1 < range.count) at += range.step;
  }
  return interpreter.text(std::move(result), object.is_markup());
}

}  // namespace

std::optional<size_t> element_position(int64_t index, size_t count) {
  const auto size = static_cast<int64_t>(count);
  if (index < -size || index >= size) return std::nullopt;
  return static_cast<size_t>(index < 0 ? index + size : index);
}

Result<Value> get_attribute(Interpreter& interpreter, const Value& object, std::string_view name) {
  if (object.is(Kind::kUndefined)) return type_error(object.undefined_reason());
  INFERD_ASSIGN(std::optional<Value> found, python_attribute(interpreter, object, name));
  if (found) return std::move(*found);
  if (object.is(Kind::kDict)) {
    if (const Value* entry = object.as_dict().find(name)) return *entry;
  }
  return no_attribute(object, name);
}

Result<Value> get_item(Interpreter& interpreter, const Value& object, const Value& index) {
  if (object.is(Kind::kUndefined)) return type_error(object.undefined_reason());
  if (object.is(Kind::kDict)) {
    if (index.shape().hashable) {
      if (!index.is(Kind::kText)) {
        INFERD_TRY(interpreter.meter()->step(object.as_dict().size()));
      }
      if (const Value* entry = object.as_dict().find(index)) return *entry;
    }
  } else if (index.is_integral()) {
    if (has_elements(object)) {
      const auto& items = object.as_sequence().items;
      if (const auto at = element_position(index.as_int(), items.size())) return items[*at];
    } else if (object.is(Kind::kText)) {
      INFERD_ASSIGN(std::optional<Value> character,
                    character_at(interpreter, object, index.as_int()));
      if (character) return std::move(*character);
    }
  }
  if (index.is(Kind::kText)) {
    INFERD_ASSIGN(std::optional<Value> found, python_attribute(interpreter, object, index.view()));
    if (found) return std::move(*found);
    return no_attribute(object, index.view());
  }
  INFERD_ASSIGN(const std::string printed_index, represented(interpreter, index));
  return Value::undefined(object_name(object) + " has no element " + printed_index);
}

Result<Value> get_slice(Interpreter& interpreter, const Value& object, const Value& start,
                        const Value& stop, const Value& step) {
  if (object.is(Kind::kUndefined)) return type_error(object.undefined_reason());
  if (object.is(Kind::kText)) return slice_text(interpreter, object, start, stop, step);
  if (!has_elements(object)) {
    return type_error("'" + std::string(type_name(object)) + "' object cannot be sliced");
  }
  const SequenceObject& sequence = object.as_sequence();
  INFERD_ASSIGN(const SliceRange range, slice_range(sequence.items.size(), start, stop, step));
  INFERD_TRY(interpreter.meter()->expect(range.count * sizeof(Value)));
  std::vector<Value> items;
  items.reserve(range.count);
  int64_t at = range.start;
  for (size_t i = 0; i < range.count; ++i) {
    items.push_back(sequence.items[static_cast<size_t>(at)]);
    if (i + 1 < range.count) at += range.step;
  }
  const Flavor flavor = sequence.flavor == Flavor::kGroup ? Flavor::kTuple : sequence.flavor;
  return interpreter.list(std::move(items), flavor);
}

Result<Value> get_path(Interpreter& interpreter, const Value& object, const Value& path,
                       const Value* otherwise) {
  if (path.is(Kind::kNone)) return object;
  Value item = object;
  const auto follow = [&](const Value& part) -> Result<void> {
    INFERD_ASSIGN(item, get_item(interpreter, item, part));
    if (item.is(Kind::kUndefined) && otherwise != nullptr) item = *otherwise;
    return {};
  };
  if (!path.is(Kind::kText)) {
    INFERD_TRY(follow(path));
    return item;
  }
  std::string_view rest = path.view();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    int64_t number = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), number);
    const bool is_number = !part.empty() && part[0] != '-' && parsed.ec == std::errc() &&
                           parsed.ptr == part.data() + part.size();
    INFERD_TRY(follow(is_number ? Value::integer(number)
                                : interpreter.text(std::string(part), Origin::kTemplate)));
    if (dot == std::string_view::npos) return item;
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace inferd::jinja
