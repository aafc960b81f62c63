#include "text/jinja/objects.h"

#include <algorithm>

#include "text/jinja/interpreter.h"

namespace inferd::jinja {
namespace {

// cycler.next and cycler.reset.
class CyclerMethod final : public Object {
 public:
  CyclerMethod(std::shared_ptr<CyclerObject> cycler, bool resets)
      : cycler_(std::move(cycler)), resets_(resets) {}

  std::string_view type_name() const override { return "method"; }
  std::string printed() const override { return "<bound method of Cycler>"; }
  bool callable() const override { return true; }
  Result<Value> call(Interpreter&, Arguments arguments) override {
    if (!arguments.empty()) return type_error("the methods of a cycler take no arguments");
    if (!resets_) return cycler_->next();
    cycler_->reset();
    return Value::none();
  }

 private:
  std::shared_ptr<CyclerObject> cycler_;
  bool resets_;
};

}  // namespace

Result<std::optional<Value>> NamespaceObject::attribute(Interpreter&, std::string_view name) {
  const auto found = std::find_if(variables_.begin(), variables_.end(),
                                  [name](const auto& variable) { return variable.first == name; });
  return found == variables_.end() ? std::optional<Value>() : std::optional(found->second);
}

void NamespaceObject::set(std::string_view name, Value value) {
  for (auto& [existing, old] : variables_) {
    if (existing == name) {
      old = std::move(value);
      return;
    }
  }
  variables_.emplace_back(std::string(name), std::move(value));
  charge_.grow(sizeof(variables_[0]) + name.size());
}

Result<std::optional<Value>> MacroObject::attribute(Interpreter& interpreter,
                                                    std::string_view name) {
  const auto some = [](Value value) { return std::optional(std::move(value)); };
  if (name == "name") return some(interpreter.text(definition_.name, Origin::kTemplate));
  if (name == "catch_kwargs") return some(Value::boolean(definition_.uses_kwargs));
  if (name == "catch_varargs") return some(Value::boolean(definition_.uses_varargs));
  if (name == "caller") return some(Value::boolean(definition_.uses_caller));
  if (name != "arguments") return std::optional<Value>();
  std::vector<Value> names;
  for (const std::string& parameter : definition_.parameter_names) {
    names.push_back(interpreter.text(parameter, Origin::kTemplate));
  }
  INFERD_ASSIGN(Value list, interpreter.list(std::move(names), Flavor::kTuple));
  return some(std::move(list));
}

Result<Value> MacroObject::call(Interpreter& interpreter, Arguments arguments) {
  return interpreter.run_macro(definition_, closure_, std::move(arguments));
}

std::string MethodObject::printed() const {
  return "<built-in method " + std::string(method_.name) + " of " +
         std::string(inferd::jinja::type_name(self_)) + " object>";
}

Result<Value> MethodObject::call(Interpreter& interpreter, Arguments arguments) {
  auto result = method_.function(interpreter, self_, arguments);
  if (result) return result;
  return result.error().with_context(std::string(method_.name) + "()");
}

Result<Value> FunctionObject::call(Interpreter& interpreter, Arguments arguments) {
  return function_(interpreter, arguments);
}

Result<std::optional<Value>> CyclerObject::attribute(Interpreter&, std::string_view name) {
  if (name == "current" && !items_.empty()) return std::optional(items_[position_]);
  if (name != "next" && name != "reset") return std::optional<Value>();
  return std::optional(
      Value::object(std::make_shared<CyclerMethod>(shared_from_this(), name == "reset")));
}

Value CyclerObject::next() {
  if (items_.empty()) return Value();
  Value item = items_[position_];
  position_ = (position_ + 1) % items_.size();
  return item;
}

Result<Value> JoinerObject::call(Interpreter& interpreter, Arguments arguments) {
  if (!arguments.empty()) return type_error("a joiner takes no arguments");
  if (used_) return separator_;
  used_ = true;
  return interpreter.text("", Origin::kTemplate);
}

}  // namespace inferd::jinja
