#include "text/jinja/value.h"

#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/operators.h"

namespace inferd::jinja {
namespace {

// What one element or entry costs beside the contents that it shares.
constexpr uint64_t kItemBytes = sizeof(Value);
constexpr uint64_t kEntryBytes = sizeof(DictObject::Entry);

Shape shape_of(Flavor flavor, const std::vector<Value>& items) {
  Shape shape;
  shape.nesting = 1;
  for (const Value& item : items) shape.contain(item.shape());
  if (flavor == Flavor::kList || flavor == Flavor::kKeys || flavor == Flavor::kItems) {
    shape.hashable = false;
  } else if (flavor != Flavor::kTuple && flavor != Flavor::kGroup) {
    shape.hashable = true;  // by identity
  }
  return shape;
}

Result<void> check_shape(const Shape& shape) {
  if (shape.nesting > kNestingMax) {
    return Error(ErrorCode::kResourceExhausted, "lists and dictionaries are nested deeper than " +
                                                    std::to_string(kNestingMax) + " levels");
  }
  if (shape.weight > kWeightMax) {
    return Error(ErrorCode::kResourceExhausted, "a list or dictionary unfolds to more than " +
                                                    std::to_string(kWeightMax) + " values");
  }
  return {};
}

}  // namespace

void Shape::contain(const Shape& item) {
  nesting = std::max(nesting, item.nesting + 1);
  weight = std::min(weight + item.weight, kWeightMax + 1);
  data = data || item.data;
  hashable = hashable && item.hashable;
}

Value::Value() : state_(Undefined{}) {}
Value::Value(const Value& other) = default;
Value::Value(Value&& other) noexcept = default;
Value& Value::operator=(const Value& other) = default;
Value& Value::operator=(Value&& other) noexcept = default;
Value::~Value() = default;

Value Value::undefined(std::string reason) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(reason))},
               Origin::kTemplate);
}

Value Value::text(Meter* meter, OriginText text, bool markup) {
  const Origin origin = text.overall();
  return Value(std::make_shared<const TextObject>(meter, std::move(text), markup), origin);
}

Value Value::object(std::shared_ptr<Object> object) {
  INFERD_CHECK(object != nullptr);
  return Value(std::move(object), Origin::kTemplate);
}

Value Value::dict(std::shared_ptr<const DictObject> dict) {
  INFERD_CHECK(dict != nullptr);
  return Value(std::move(dict), Origin::kTemplate);
}

Value::Value(std::shared_ptr<SequenceObject> sequence) : state_(std::move(sequence)) {}

const std::string& Value::undefined_reason() const {
  static const std::string kPlain = "a value is undefined";
  const auto& reason = std::get<Undefined>(state_).reason;
  return reason ? *reason : kPlain;
}

const OriginText& Value::as_text() const {
  return std::get<std::shared_ptr<const TextObject>>(state_)->text;
}

bool Value::is_markup() const {
  const auto* text = std::get_if<std::shared_ptr<const TextObject>>(&state_);
  return text != nullptr && (*text)->markup;
}

Origin Value::origin() const { return is(Kind::kText) ? as_text().overall() : origin_; }

bool Value::same_object(const Value& other) const {
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::kUndefined:
      return std::get<Undefined>(state_).reason == std::get<Undefined>(other.state_).reason;
    case Kind::kNone:
      return true;
    case Kind::kBool:
      return as_bool() == other.as_bool();
    case Kind::kInt:
      return as_int() == other.as_int();
    case Kind::kFloat:
      return as_real() == other.as_real();
    case Kind::kText:
      return view() == other.view();
    case Kind::kSequence:
      return &as_sequence() == &other.as_sequence();
    case Kind::kDict:
      return &as_dict() == &other.as_dict();
    case Kind::kObject:
      return &as_object() == &other.as_object();
  }
  return false;
}

Shape Value::shape() const {
  if (is(Kind::kSequence)) return as_sequence().shape;
  if (is(Kind::kDict)) return as_dict().shape();
  Shape shape;
  if (is(Kind::kText)) shape.weight += as_text().size() / kBytesPerStep;
  // What a namespace or a macro prints tells of values that it refers to: count it as data.
  shape.data = is(Kind::kObject) || origin() == Origin::kData;
  return shape;
}

TextObject::TextObject(Meter* meter, OriginText text_value, bool is_markup)
    : text(std::move(text_value)),
      markup(is_markup),
      charge(meter, sizeof(TextObject) + text.memory_bytes()) {}

SequenceObject::SequenceObject(Meter* meter, Flavor flavor_value, std::vector<Value> items_value)
    : flavor(flavor_value),
      items(std::move(items_value)),
      shape(shape_of(flavor, items)),
      charge(meter, sizeof(SequenceObject) + items.capacity() * kItemBytes) {}

DictObject::DictObject(Meter* meter) : charge_(meter, sizeof(DictObject)) {
  shape_.nesting = 1;
  shape_.hashable = false;
}

std::optional<size_t> DictObject::position(std::string_view key) const {
  if (!index_.empty()) {
    const auto found = index_.find(key);
    return found == index_.end() ? std::nullopt : std::optional(found->second);
  }
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].first.is(Kind::kText) && entries_[i].first.view() == key) return i;
  }
  return std::nullopt;
}

std::optional<size_t> DictObject::position(const Value& key) const {
  if (key.is(Kind::kText)) return position(key.view());
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (equal(entries_[i].first, key)) return i;
  }
  return std::nullopt;
}

const Value* DictObject::find(const Value& key) const {
  const auto at = position(key);
  return at ? &entries_[*at].second : nullptr;
}

const Value* DictObject::find(std::string_view key) const {
  const auto at = position(key);
  return at ? &entries_[*at].second : nullptr;
}

void DictObject::set(Value key, Value value) {
  INFERD_DCHECK(key.shape().hashable);
  shape_.contain(key.shape());
  shape_.contain(value.shape());
  if (const auto at = position(key)) {
    entries_[*at].second = std::move(value);
    return;
  }
  entries_.emplace_back(std::move(key), std::move(value));
  charge_.grow(kEntryBytes);
  const auto add = [this](size_t i) {
    if (entries_[i].first.is(Kind::kText)) index_.emplace(entries_[i].first.view(), i);
  };
  if (entries_.size() == kLinearMax + 1) {
    for (size_t i = 0; i < entries_.size(); ++i) add(i);
  } else if (entries_.size() > kLinearMax) {
    add(entries_.size() - 1);
  }
}

Result<std::optional<Value>> Object::attribute(Interpreter&, std::string_view) {
  return std::optional<Value>();
}

Result<std::optional<int64_t>> Object::length(Interpreter&) { return std::optional<int64_t>(); }

Result<Value> Object::call(Interpreter&, Arguments) {
  return Error(ErrorCode::kInvalidArgument,
               "'" + std::string(type_name()) + "' object is not callable");
}

Result<Value> make_sequence(Meter* meter, Flavor flavor, std::vector<Value> items) {
  auto sequence = std::make_shared<SequenceObject>(meter, flavor, std::move(items));
  INFERD_TRY(check_shape(sequence->shape));
  return Value(std::move(sequence));
}

Result<Value> make_dict(std::shared_ptr<DictObject> dict) {
  INFERD_TRY(check_shape(dict->shape()));
  return Value::dict(std::move(dict));
}

Value make_iterator(Meter* meter, std::vector<Value> items, std::optional<Error> failure,
                    std::string type) {
  auto sequence = std::make_shared<SequenceObject>(meter, Flavor::kIterator, std::move(items));
  sequence->failure = std::move(failure);
  sequence->label = std::move(type);
  return Value(std::move(sequence));
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kText:
      return value.is_markup() ? "Markup" : "str";
    case Kind::kDict:
      return "dict";
    case Kind::kObject:
      return value.as_object().type_name();
    case Kind::kSequence:
      break;
  }
  switch (value.as_sequence().flavor) {
    case Flavor::kList:
      return "list";
    case Flavor::kTuple:
      return "tuple";
    case Flavor::kGroup:
      return "_GroupTuple";
    case Flavor::kRange:
      return "range";
    case Flavor::kKeys:
      return "dict_keys";
    case Flavor::kValues:
      return "dict_values";
    case Flavor::kItems:
      return "dict_items";
    case Flavor::kIterator:
      break;
  }
  return value.as_sequence().label;
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.as_bool();
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_real() != 0;
    case Kind::kText:
      return !value.as_text().empty();
    case Kind::kSequence:
      return value.as_sequence().flavor == Flavor::kIterator || !value.as_sequence().items.empty();
    case Kind::kDict:
      return value.as_dict().size() != 0;
    case Kind::kObject:
      return true;
  }
  return false;
}

}  // namespace inferd::jinja
