// The rounds of a `for`, and the variable `loop` of its body.
// Owner: text/jinja. Belongs to one rendering.
//
// Items are taken from the source, and the loop's `if` is asked, only when a round begins, or when
// the body asks for `loop.last`, `loop.nextitem` or `loop.length`: the condition may depend on the
// body.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/scope.h"
#include "text/jinja/value.h"

namespace inferd::jinja {

class LoopObject final : public Object, public std::enable_shared_from_this<LoopObject> {
 public:
  // `source` is a sequence; `outer` the scope around the loop.
  LoopObject(Meter* meter, const ForStatement& statement, std::shared_ptr<Scope> outer,
             Value source, int64_t depth0);

  // The next round's item; not set when there is none.
  Result<std::optional<Value>> advance(Interpreter& interpreter);

  std::string_view type_name() const override { return "LoopContext"; }
  std::string printed() const override;
  Result<std::optional<Value>> attribute(Interpreter& interpreter, std::string_view name) override;
  Result<std::optional<int64_t>> length(Interpreter& interpreter) override;
  bool callable() const override { return statement_.recursive; }
  // loop(items): the same loop over other items, one level deeper.
  Result<Value> call(Interpreter& interpreter, Arguments arguments) override;
  void clear() override;

  // loop.cycle(…) and loop.changed(…).
  Result<Value> cycle(const Arguments& arguments) const;
  Result<Value> changed(Interpreter& interpreter, const Arguments& arguments);

 private:
  // Takes one more item that passes the loop's `if` into ahead_; false at the end.
  Result<bool> fetch(Interpreter& interpreter);
  Result<int64_t> total(Interpreter& interpreter);
  Result<std::optional<Value>> neighbour(Interpreter& interpreter, std::string_view name);

  const ForStatement& statement_;
  std::shared_ptr<Scope> outer_;
  Value source_;
  size_t position_ = 0;      // in a source that is no iterator
  std::deque<Value> ahead_;  // taken, but not yet a round's item
  int64_t index0_ = -1;
  int64_t depth0_;
  std::optional<int64_t> total_;
  std::optional<Value> previous_;
  std::optional<Value> current_;
  std::optional<std::vector<Value>> last_changed_;
  Charge charge_;
};

}  // namespace inferd::jinja
