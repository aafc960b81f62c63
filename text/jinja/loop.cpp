#include "text/jinja/loop.h"

#include "text/jinja/interpreter.h"

namespace inferd::jinja {
namespace {

// loop.cycle and loop.changed.
class LoopMethod final : public Object {
 public:
  LoopMethod(std::shared_ptr<LoopObject> loop, bool cycles)
      : loop_(std::move(loop)), cycles_(cycles) {}

  std::string_view type_name() const override { return "method"; }
  std::string printed() const override { return "<bound method of LoopContext>"; }
  bool callable() const override { return true; }
  Result<Value> call(Interpreter& interpreter, Arguments arguments) override {
    return cycles_ ? loop_->cycle(arguments) : loop_->changed(interpreter, arguments);
  }

 private:
  std::shared_ptr<LoopObject> loop_;
  bool cycles_;
};

}  // namespace

LoopObject::LoopObject(Meter* meter, const ForStatement& statement, std::shared_ptr<Scope> outer,
                       Value source, int64_t depth0)
    : statement_(statement),
      outer_(std::move(outer)),
      source_(std::move(source)),
      depth0_(depth0),
      charge_(meter, sizeof(LoopObject)) {}

Result<bool> LoopObject::fetch(Interpreter& interpreter) {
  SequenceObject& sequence = source_.as_sequence();
  size_t& position = sequence.flavor == Flavor::kIterator ? sequence.taken : position_;
  while (position < sequence.items.size()) {
    INFERD_TRY(interpreter.meter()->step());
    Value item = sequence.items[position++];
    if (statement_.test != nullptr) {
      INFERD_ASSIGN(const bool passes, interpreter.passes(statement_, outer_, item));
      if (!passes) continue;
    }
    ahead_.push_back(std::move(item));
    return true;
  }
  if (sequence.failure) return *sequence.failure;
  return false;
}

Result<std::optional<Value>> LoopObject::advance(Interpreter& interpreter) {
  if (ahead_.empty()) {
    INFERD_ASSIGN(const bool more, fetch(interpreter));
    if (!more) return std::optional<Value>();
  }
  previous_ = std::move(current_);
  current_ = std::move(ahead_.front());
  ahead_.pop_front();
  ++index0_;
  return current_;
}

Result<int64_t> LoopObject::total(Interpreter& interpreter) {
  if (!total_) {
    while (true) {
      INFERD_ASSIGN(const bool more, fetch(interpreter));
      if (!more) break;
    }
    total_ = index0_ + 1 + static_cast<int64_t>(ahead_.size());
  }
  return *total_;
}

Result<std::optional<int64_t>> LoopObject::length(Interpreter& interpreter) {
  INFERD_ASSIGN(const int64_t count, total(interpreter));
  return std::optional(count);
}

std::string LoopObject::printed() const { return "<LoopContext>"; }

// What asks for the items around the current one.
Result<std::optional<Value>> LoopObject::neighbour(Interpreter& interpreter,
                                                   std::string_view name) {
  if (name == "previtem") {
    return std::optional(previous_ ? *previous_
                                   : Value::undefined("there is no previous item in this loop"));
  }
  if (ahead_.empty()) {
    INFERD_ASSIGN([[maybe_unused]] const bool more, fetch(interpreter));
  }
  if (name == "last") return std::optional(Value::boolean(ahead_.empty()));
  return std::optional(ahead_.empty() ? Value::undefined("there is no next item in this loop")
                                      : ahead_.front());
}

Result<std::optional<Value>> LoopObject::attribute(Interpreter& interpreter,
                                                   std::string_view name) {
  const auto number = [](int64_t value) { return std::optional(Value::integer(value)); };
  if (name == "index0") return number(index0_);
  if (name == "index") return number(index0_ + 1);
  if (name == "first") return std::optional(Value::boolean(index0_ == 0));
  if (name == "depth0") return number(depth0_);
  if (name == "depth") return number(depth0_ + 1);
  if (name == "last" || name == "nextitem" || name == "previtem") {
    return neighbour(interpreter, name);
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    INFERD_ASSIGN(const int64_t count, total(interpreter));
    if (name == "length") return number(count);
    return number(name == "revindex" ? count - index0_ : count - index0_ - 1);
  }
  if (name == "cycle" || name == "changed") {
    return std::optional(
        Value::object(std::make_shared<LoopMethod>(shared_from_this(), name == "cycle")));
  }
  return std::optional<Value>();
}

Result<Value> LoopObject::call(Interpreter& interpreter, Arguments arguments) {
  if (!statement_.recursive) {
    return type_error("loop() may be called only in a for loop with the word 'recursive'");
  }
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"iterable"}, 1));
  return interpreter.run_recursive_loop(statement_, outer_, bound[0], depth0_ + 1);
}

void LoopObject::clear() {
  outer_.reset();
  ahead_.clear();
  previous_.reset();
  current_.reset();
  last_changed_.reset();
}

Result<Value> LoopObject::cycle(const Arguments& arguments) const {
  const auto& items = arguments.positional;
  if (items.empty() || !arguments.named.empty()) {
    return type_error("loop.cycle() needs the values to cycle through");
  }
  return items[static_cast<size_t>(index0_) % items.size()];
}

Result<Value> LoopObject::changed(Interpreter& interpreter, const Arguments& arguments) {
  if (!arguments.named.empty()) return type_error("loop.changed() takes no named arguments");
  const auto& values = arguments.positional;
  bool same = last_changed_ && last_changed_->size() == values.size();
  for (size_t i = 0; same && i < values.size(); ++i) {
    INFERD_ASSIGN(same, compare(interpreter, Comparison::kEqual, (*last_changed_)[i], values[i]));
  }
  if (!same) last_changed_ = values;
  return Value::boolean(!same);
}

}  // namespace inferd::jinja
