// Objects with behaviour other than loops: namespaces, macros, methods, functions, cyclers,
// joiners. Owner: text/jinja. Each belongs to one rendering.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/registry.h"
#include "text/jinja/scope.h"
#include "text/jinja/value.h"

namespace inferd::jinja {

// namespace(a=1): variables that inner scopes can assign.
class NamespaceObject final : public Object {
 public:
  explicit NamespaceObject(Meter* meter) : charge_(meter, sizeof(NamespaceObject)) {}

  std::string_view type_name() const override { return "Namespace"; }
  std::string printed() const override { return "<Namespace>"; }
  Result<std::optional<Value>> attribute(Interpreter& interpreter, std::string_view name) override;
  void clear() override { variables_.clear(); }

  void set(std::string_view name, Value value);

 private:
  std::vector<std::pair<std::string, Value>> variables_;
  Charge charge_;
};

// {% macro name(…) %}, or the body of {% call %}.
class MacroObject final : public Object {
 public:
  MacroObject(Meter* meter, const MacroDefinition& definition, std::shared_ptr<Scope> closure)
      : definition_(definition),
        closure_(std::move(closure)),
        charge_(meter, sizeof(MacroObject)) {}

  std::string_view type_name() const override { return "Macro"; }
  std::string printed() const override { return "<Macro '" + definition_.name + "'>"; }
  Result<std::optional<Value>> attribute(Interpreter& interpreter, std::string_view name) override;
  bool callable() const override { return true; }
  Result<Value> call(Interpreter& interpreter, Arguments arguments) override;

 private:
  const MacroDefinition& definition_;
  std::shared_ptr<Scope> closure_;
  Charge charge_;
};

// A method that is looked up but not yet called.
class MethodObject final : public Object {
 public:
  MethodObject(Value self, const Method* method) : self_(std::move(self)), method_(*method) {}

  std::string_view type_name() const override { return "builtin_function_or_method"; }
  std::string printed() const override;
  bool callable() const override { return true; }
  Result<Value> call(Interpreter& interpreter, Arguments arguments) override;

 private:
  Value self_;
  const Method& method_;
};

// range, namespace, raise_exception, …
class FunctionObject final : public Object {
 public:
  FunctionObject(std::string_view name, GlobalFunction function)
      : name_(name), function_(function) {}

  std::string_view type_name() const override { return "function"; }
  std::string printed() const override { return "<function " + std::string(name_) + ">"; }
  bool callable() const override { return true; }
  Result<Value> call(Interpreter& interpreter, Arguments arguments) override;

 private:
  std::string_view name_;  // of the constant table
  GlobalFunction function_;
};

// cycler(a, b): next() gives its items in turn.
class CyclerObject final : public Object, public std::enable_shared_from_this<CyclerObject> {
 public:
  CyclerObject(Meter* meter, std::vector<Value> items)
      : items_(std::move(items)), charge_(meter, sizeof(CyclerObject)) {}

  std::string_view type_name() const override { return "Cycler"; }
  std::string printed() const override { return "<Cycler>"; }
  Result<std::optional<Value>> attribute(Interpreter& interpreter, std::string_view name) override;
  void clear() override { items_.clear(); }
  Value next();
  void reset() { position_ = 0; }

 private:
  std::vector<Value> items_;
  size_t position_ = 0;
  Charge charge_;
};

// joiner(", "): nothing at the first call, then its text.
class JoinerObject final : public Object {
 public:
  JoinerObject(Meter* meter, Value separator)
      : separator_(std::move(separator)), charge_(meter, sizeof(JoinerObject)) {}

  std::string_view type_name() const override { return "Joiner"; }
  std::string printed() const override { return "<Joiner>"; }
  bool callable() const override { return true; }
  Result<Value> call(Interpreter& interpreter, Arguments arguments) override;
  void clear() override { separator_ = Value(); }

 private:
  Value separator_;
  bool used_ = false;
  Charge charge_;
};

}  // namespace inferd::jinja
