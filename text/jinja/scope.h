// Variables of one frame of a template: the input, the top level, a loop's round, a macro's call.
// Owner: text/jinja. Belongs to one rendering.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace inferd::jinja {

class Scope {
 public:
  Scope(Meter* meter, std::shared_ptr<Scope> parent)
      : parent_(std::move(parent)), charge_(meter, kScopeBytes) {}

  // In this scope or the ones around it; null if there is none.
  const Value* find(NameId name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent_.get()) {
      for (const auto& [id, value] : scope->variables_) {
        if (id == name) return &value;
      }
    }
    return nullptr;
  }
  // In this scope.
  void set(NameId name, Value value) {
    for (auto& [id, old] : variables_) {
      if (id == name) {
        old = std::move(value);
        return;
      }
    }
    variables_.emplace_back(name, std::move(value));
  }
  void clear() { variables_.clear(); }

  // A macro refers to it: it outlives its block, and may be part of a cycle.
  bool captured = false;

 private:
  static constexpr uint64_t kScopeBytes = 256;  // with a handful of variables

  std::shared_ptr<Scope> parent_;
  std::vector<std::pair<NameId, Value>> variables_;
  Charge charge_;
};

}  // namespace inferd::jinja
