// Values of a template: what Python objects a chat template meets.
// Owner: text/jinja. Values are cheap to copy (contents are shared and, but for namespaces and
// iterators, immutable). Contents that a rendering makes belong to its Meter and must not outlive
// it.
//
// Every text knows the origin of its bytes; a number, bool or none carries one origin, so that a
// number from the input stays data when it is printed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/jinja/limits.h"
#include "text/jinja/origin_text.h"

namespace inferd::jinja {

class Value;
class Object;
class DictObject;
struct TextObject;
struct SequenceObject;

// In the order of Value's variant.
enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kSequence,  // list, tuple, range, views, iterators: see Flavor
  kDict,
  kObject,  // namespace, macro, method, function, loop, cycler, joiner
};

// A name or attribute that is not there. `reason` is the sentence for whoever uses it none the
// less.
struct Undefined {
  std::shared_ptr<const std::string> reason;
};
struct None {};

// What must be known of a value before walking through all of it. A value may contain another many
// times over, so that walking takes far longer than building: `weight` tells how long.
struct Shape {
  uint32_t nesting = 0;  // 0 for what contains nothing
  uint64_t weight = 1;   // values in it, each counted as often as it is reached, and blocks of text
  bool data = false;     // whether any byte of what it would print came from data
  bool hashable = true;  // whether it may be the key of a dictionary

  void contain(const Shape& item);
};

class Value {
 public:
  // Defined out of line: values are copied everywhere, and the variant's code is large.
  Value();
  Value(const Value& other);
  Value(Value&& other) noexcept;
  Value& operator=(const Value& other);
  Value& operator=(Value&& other) noexcept;
  ~Value();

  static Value undefined(std::string reason);
  static Value none(Origin origin = Origin::kTemplate) { return Value(None{}, origin); }
  static Value boolean(bool value, Origin origin = Origin::kTemplate) {
    return Value(value, origin);
  }
  static Value integer(int64_t value, Origin origin = Origin::kTemplate) {
    return Value(value, origin);
  }
  static Value real(double value, Origin origin = Origin::kTemplate) {
    return Value(value, origin);
  }
  static Value text(Meter* meter, OriginText text, bool markup = false);
  static Value text(Meter* meter, std::string text, Origin origin) {
    return Value::text(meter, OriginText(std::move(text), origin));
  }
  static Value object(std::shared_ptr<Object> object);
  static Value dict(std::shared_ptr<const DictObject> dict);
  explicit Value(std::shared_ptr<SequenceObject> sequence);

  Kind kind() const { return static_cast<Kind>(state_.index()); }
  bool is(Kind kind) const { return this->kind() == kind; }
  bool is_number() const { return is(Kind::kBool) || is(Kind::kInt) || is(Kind::kFloat); }
  bool is_integral() const { return is(Kind::kBool) || is(Kind::kInt); }

  // Each may be called on its kind only.
  const std::string& undefined_reason() const;
  bool as_bool() const { return std::get<bool>(state_); }
  const OriginText& as_text() const;
  std::string_view view() const { return as_text().view(); }
  bool is_markup() const;  // a text made by `safe` or `escape`; false for other kinds
  SequenceObject& as_sequence() const { return *std::get<std::shared_ptr<SequenceObject>>(state_); }
  const DictObject& as_dict() const { return *std::get<std::shared_ptr<const DictObject>>(state_); }
  Object& as_object() const { return *std::get<std::shared_ptr<Object>>(state_); }
  const std::shared_ptr<Object>& object_pointer() const {
    return std::get<std::shared_ptr<Object>>(state_);
  }
  // Numbers; a bool counts as 0 or 1, as in Python.
  int64_t as_int() const { return is(Kind::kBool) ? as_bool() : std::get<int64_t>(state_); }
  double as_real() const {
    return is(Kind::kFloat) ? std::get<double>(state_) : static_cast<double>(as_int());
  }

  // Of a number, bool or none. Texts answer OriginText::overall(); containers always
  // say kTemplate: see shape().data.
  Origin origin() const;
  bool same_object(const Value& other) const;  // Python's `is`
  Shape shape() const;

 private:
  template <typename T>
  Value(T state, Origin origin) : state_(std::move(state)), origin_(origin) {}

  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const TextObject>,
               std::shared_ptr<SequenceObject>, std::shared_ptr<const DictObject>,
               std::shared_ptr<Object>>
      state_;
  Origin origin_ = Origin::kTemplate;
};

struct TextObject {
  TextObject(Meter* meter, OriginText text_value, bool is_markup);

  const OriginText text;
  const bool markup;
  const Charge charge;
};

enum class Flavor : uint8_t {
  kList,
  kTuple,
  kGroup,  // a tuple (grouper, list) that groupby returns
  kRange,
  kKeys,
  kValues,
  kItems,
  kIterator,  // what map, select, … return: no length, no index, can be walked through once
};

struct SequenceObject {
  SequenceObject(Meter* meter, Flavor flavor_value, std::vector<Value> items_value);

  const Flavor flavor;
  const std::vector<Value> items;
  const Shape shape;
  std::string label;             // of an iterator: Python's type; of a range: printed
  size_t taken = 0;              // of an iterator: items already walked through
  std::optional<Error> failure;  // of an iterator: what ends the walk after the last item
  const Charge charge;
};

// A dictionary in insertion order.
class DictObject {
 public:
  explicit DictObject(Meter* meter);

  using Entry = std::pair<Value, Value>;
  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  const Shape& shape() const { return shape_; }

  // Only while it is being built, before it is shared. An existing key keeps its place.
  void set(Value key, Value value);

 private:
  // Keys that are texts, by content; built when the dictionary outgrows a linear search.
  static constexpr size_t kLinearMax = 8;
  std::optional<size_t> position(const Value& key) const;
  std::optional<size_t> position(std::string_view key) const;

  std::vector<Entry> entries_;
  std::unordered_map<std::string_view, size_t> index_;
  Shape shape_;
  Charge charge_;
};

class Interpreter;
struct Arguments;

// Anything with behaviour: it may have attributes and may be called.
class Object {
 public:
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;

  virtual std::string_view type_name() const = 0;  // as Python's messages name it
  virtual std::string printed() const = 0;         // str() and repr()
  // How many items it has, for what has a length.
  virtual Result<std::optional<int64_t>> length(Interpreter& interpreter);
  // Not set: no such attribute.
  virtual Result<std::optional<Value>> attribute(Interpreter& interpreter, std::string_view name);
  virtual bool callable() const { return false; }
  virtual Result<Value> call(Interpreter& interpreter, Arguments arguments);
  // Drops what it refers to: cycles end here when the rendering is over.
  virtual void clear() {}
};

// Makes a list, tuple, range or view. Errors: kResourceExhausted if it is nested too deep or
// unfolds to more than kWeightMax values.
Result<Value> make_sequence(Meter* meter, Flavor flavor, std::vector<Value> items);
Result<Value> make_dict(std::shared_ptr<DictObject> dict);
// An iterator over `items` that, if `failure` is set, ends with it.
Value make_iterator(Meter* meter, std::vector<Value> items, std::optional<Error> failure = {},
                    std::string type = "generator");

// Python's name of the type: "str", "list", "dict", …
std::string_view type_name(const Value& value);
// Python's truth of a value.
bool truth(const Value& value);

}  // namespace inferd::jinja
