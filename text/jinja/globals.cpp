// Functions that every template may call.
#include <locale.h>

#include <algorithm>

#include "text/jinja/interpreter.h"
#include "text/jinja/objects.h"
#include "text/jinja/printing.h"
#include "text/jinja/registry.h"

namespace inferd::jinja {
namespace {

Result<Value> range(Interpreter& interpreter, const Arguments& arguments) {
  const size_t count = arguments.positional.size();
  if (!arguments.named.empty() || count < 1 || count > 3) {
    return type_error("range() takes one to three integers");
  }
  int64_t numbers[3] = {0, 0, 1};
  Origin origin = Origin::kTemplate;
  for (size_t i = 0; i < count; ++i) {
    INFERD_ASSIGN(numbers[i], to_integer(arguments.positional[i], "an argument of range()"));
    origin = mixed(origin, arguments.positional[i].origin());
  }
  if (count == 1) std::swap(numbers[0], numbers[1]);
  const auto [start, stop, step] = numbers;
  if (step == 0) return type_error("the step of range() must not be zero");
  // Unsigned, so that neither the distance nor the step's magnitude overflows.
  const auto from = static_cast<uint64_t>(start);
  const auto to = static_cast<uint64_t>(stop);
  const uint64_t distance =
      step > 0 ? (stop > start ? to - from : 0) : (stop < start ? from - to : 0);
  const uint64_t width = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  const uint64_t size = distance > 0 ? (distance - 1) / width + 1 : 0;
  if (size > static_cast<uint64_t>(kRangeItemsMax)) {
    return type_error("range() is limited to " + std::to_string(kRangeItemsMax) + " items");
  }
  INFERD_TRY(interpreter.meter()->step(size));
  std::vector<Value> items;
  items.reserve(size);
  for (int64_t i = 0; i < static_cast<int64_t>(size); ++i) {
    items.push_back(Value::integer(start + i * step, origin));
  }
  INFERD_ASSIGN(Value result, interpreter.list(std::move(items), Flavor::kRange));
  std::string& label = result.as_sequence().label;
  label = "range(" + std::to_string(start) + ", " + std::to_string(stop);
  label += step == 1 ? ")" : ", " + std::to_string(step) + ")";
  return result;
}

// The entries of dict(mapping or pairs, name=value, …).
Result<std::shared_ptr<DictObject>> make_entries(Interpreter& interpreter,
                                                 const Arguments& arguments) {
  auto dict = std::make_shared<DictObject>(interpreter.meter());
  if (arguments.positional.size() > 1) return type_error("dict() takes at most one mapping");
  for (const Value& source : arguments.positional) {
    if (source.is(Kind::kDict)) {
      for (const auto& [key, value] : source.as_dict().entries()) dict->set(key, value);
      INFERD_TRY(interpreter.meter()->step(source.as_dict().size()));
      continue;
    }
    INFERD_ASSIGN(const std::vector<Value> pairs, interpreter.iterate(source));
    for (const Value& item : pairs) {
      INFERD_ASSIGN(const std::vector<Value> pair, interpreter.iterate(item));
      if (pair.size() != 2) return type_error("dict() needs pairs of a key and a value");
      if (!pair[0].shape().hashable) return type_error("a key of dict() is not hashable");
      if (!pair[0].is(Kind::kText)) INFERD_TRY(interpreter.meter()->step(dict->size()));
      dict->set(pair[0], pair[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) {
    dict->set(interpreter.text(name, Origin::kTemplate), value);
  }
  return dict;
}

Result<Value> dict(Interpreter& interpreter, const Arguments& arguments) {
  INFERD_ASSIGN(std::shared_ptr<DictObject> entries, make_entries(interpreter, arguments));
  return make_dict(std::move(entries));
}

Result<Value> make_namespace(Interpreter& interpreter, const Arguments& arguments) {
  INFERD_ASSIGN(const std::shared_ptr<DictObject> entries, make_entries(interpreter, arguments));
  auto space = std::make_shared<NamespaceObject>(interpreter.meter());
  for (const auto& [name, value] : entries->entries()) {
    INFERD_TRY(require_text(name, "a name of a namespace"));
    space->set(name.view(), value);
  }
  interpreter.keep(space);
  return Value::object(std::move(space));
}

Result<Value> cycler(Interpreter& interpreter, const Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty()) {
    return type_error("cycler() needs the values to cycle through");
  }
  auto object = std::make_shared<CyclerObject>(interpreter.meter(), arguments.positional);
  interpreter.keep(object);
  return Value::object(std::move(object));
}

Result<Value> joiner(Interpreter& interpreter, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"sep"}));
  const Value comma = interpreter.text(", ", Origin::kTemplate);
  auto object = std::make_shared<JoinerObject>(interpreter.meter(), bound.get(0, comma));
  interpreter.keep(object);
  return Value::object(std::move(object));
}

Result<Value> raise_exception(Interpreter& interpreter, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"message"}, 1));
  INFERD_ASSIGN(const OriginText message, printed(interpreter, bound[0]));
  return Error(ErrorCode::kInvalidArgument,
               "the template refuses this conversation: " + std::string(message.view()));
}

// strftime in the C locale, whatever the process has set.
Result<std::string> format_time(const std::tm& now, const std::string& format) {
  static const locale_t locale = newlocale(LC_ALL_MASK, "C", nullptr);
  INFERD_CHECK(locale != nullptr);
  std::string expanded;  // what C does not know, or knows otherwise for a time without a zone
  for (size_t i = 0; i < format.size(); ++i) {
    const char next = format[i] == '%' && i + 1 < format.size() ? format[i + 1] : '\0';
    if (next == 'f') expanded += "000000";
    if (next == 'f' || next == 'z' || next == 'Z') {
      ++i;
      continue;
    }
    expanded += format[i];
    if (next != '\0') expanded += format[++i];
  }
  if (expanded.empty()) return expanded;
  // A conversion writes at most some dozens of bytes; a "%100000d" may fail, and then says so.
  std::string buffer(expanded.size() * 64 + 64, '\0');
  const size_t written = strftime_l(buffer.data(), buffer.size(), expanded.c_str(), &now, locale);
  if (written == 0) return type_error("strftime_now() got a format that yields no text");
  buffer.resize(written);
  return buffer;
}

Result<Value> strftime_now(Interpreter& interpreter, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"format"}, 1));
  INFERD_ASSIGN(const OriginText format, to_text(bound[0], "the format of strftime_now()"));
  INFERD_TRY(interpreter.meter()->expect(format.size() * 64));
  if (format.view().find('\0') != std::string_view::npos) {
    return type_error("strftime_now() got a format with a NUL character");
  }
  INFERD_ASSIGN(std::string text, format_time(interpreter.now(), std::string(format.view())));
  return interpreter.text(std::move(text), format.overall());
}

Result<Value> unsupported(Interpreter&, const Arguments&) {
  return Error(ErrorCode::kUnsupported, "the function lipsum() is not supported");
}

constexpr Named<GlobalFunction> kGlobals[] = {
    {"cycler", cycler},
    {"dict", dict},
    {"joiner", joiner},
    {"lipsum", unsupported},
    {"namespace", make_namespace},
    {"raise_exception", raise_exception},
    {"range", range},
    {"strftime_now", strftime_now},
};

}  // namespace

GlobalFunction find_global(std::string_view name) {
  const auto* found = std::find_if(std::begin(kGlobals), std::end(kGlobals),
                                   [name](const auto& entry) { return entry.name == name; });
  return found == std::end(kGlobals) ? nullptr : found->function;
}

}  // namespace inferd::jinja
