// Filters that order, group, cut and count sequences.
#include <algorithm>

#include "text/jinja/attributes.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/registry.h"
#include "text/jinja/sorting.h"
#include "text/jinja/unicode.h"

namespace inferd::jinja {
namespace {

Result<Value> length(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  switch (input.kind()) {
    case Kind::kUndefined:
      return Value::integer(0);
    case Kind::kText:
      INFERD_TRY(interpreter.meter()->step(input.as_text().size() / kBytesPerStep));
      return Value::integer(static_cast<int64_t>(count_characters(input.view())), input.origin());
    case Kind::kDict:
      return Value::integer(static_cast<int64_t>(input.as_dict().size()));
    case Kind::kSequence:
      if (input.as_sequence().flavor == Flavor::kIterator) break;
      return Value::integer(static_cast<int64_t>(input.as_sequence().items.size()));
    case Kind::kObject: {
      INFERD_ASSIGN(const std::optional<int64_t> count, input.as_object().length(interpreter));
      if (count) return Value::integer(*count);
      break;
    }
    default:
      break;
  }
  return type_error("object of type '" + std::string(type_name(input)) + "' has no length");
}

Result<Value> first(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  const bool is_iterator =
      input.is(Kind::kSequence) && input.as_sequence().flavor == Flavor::kIterator;
  if (is_iterator) {  // the rest stays for others
    SequenceObject& sequence = input.as_sequence();
    if (sequence.taken < sequence.items.size()) return sequence.items[sequence.taken++];
    if (sequence.failure) return *sequence.failure;
  } else if (input.is(Kind::kText)) {
    const OriginText& text = input.as_text();
    size_t end = 0;
    if (!text.empty()) next_character(text.view(), &end);
    if (end > 0) return interpreter.text(text.slice(0, end), input.is_markup());
  } else {
    INFERD_ASSIGN(const std::vector<Value> items, interpreter.iterate(input));
    if (!items.empty()) return items[0];
  }
  return Value::undefined("there is no first item, the sequence is empty");
}

Result<Value> last(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  const bool reversible =
      input.is(Kind::kText) || input.is(Kind::kDict) ||
      (input.is(Kind::kSequence) && input.as_sequence().flavor != Flavor::kIterator);
  if (!reversible) {
    return type_error("'" + std::string(type_name(input)) + "' object is not reversible");
  }
  INFERD_ASSIGN(const std::vector<Value> items, interpreter.iterate(input));
  if (!items.empty()) return items.back();
  return Value::undefined("there is no last item, the sequence is empty");
}

Result<Value> list(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  INFERD_ASSIGN(std::vector<Value> items, interpreter.iterate(input));
  return interpreter.list(std::move(items));
}

Result<Value> reverse(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  if (!arguments.empty()) return type_error("takes no arguments");
  if (input.is(Kind::kText)) {
    return get_slice(interpreter, input, Value::none(), Value::none(), Value::integer(-1));
  }
  INFERD_ASSIGN(std::vector<Value> items, interpreter.iterate(input));
  std::reverse(items.begin(), items.end());
  const bool is_list = input.is(Kind::kSequence) && input.as_sequence().flavor == Flavor::kList;
  // What cannot be walked through backwards is copied to a list first.
  const bool copies =
      input.is(Kind::kUndefined) ||
      (input.is(Kind::kSequence) && input.as_sequence().flavor == Flavor::kIterator);
  if (copies) return interpreter.list(std::move(items));
  return make_iterator(interpreter.meter(), std::move(items), {},
                       is_list ? "list_reverseiterator" : "reversed");
}

// The sort key of each item: at the path, with case folded unless it matters.
Result<std::vector<Value>> keys_of(Interpreter& interpreter, const std::vector<Value>& items,
                                   const Value& path, bool case_sensitive,
                                   const Value* otherwise = nullptr) {
  std::vector<Value> keys;
  keys.reserve(items.size());
  for (const Value& item : items) {
    INFERD_ASSIGN(Value key, get_path(interpreter, item, path, otherwise));
    if (!case_sensitive) {
      INFERD_ASSIGN(key, fold_case(interpreter, key));
    }
    keys.push_back(std::move(key));
  }
  return keys;
}

Result<Value> reordered(Interpreter& interpreter, const std::vector<Value>& items,
                        const std::vector<size_t>& order) {
  std::vector<Value> sorted;
  sorted.reserve(order.size());
  for (const size_t i : order) sorted.push_back(items[i]);
  return interpreter.list(std::move(sorted));
}

Result<Value> sort(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"reverse", "case_sensitive", "attribute"}));
  INFERD_ASSIGN(const std::vector<Value> items, interpreter.iterate(input));
  // Several attributes with commas: the keys are lists.
  std::vector<Value> paths;
  const Value attribute = bound.get(2, Value::none());
  if (attribute.is(Kind::kText)) {
    std::string_view rest = attribute.view();
    while (true) {
      const size_t comma = rest.find(',');
      paths.push_back(interpreter.text(std::string(rest.substr(0, comma)), Origin::kTemplate));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  } else {
    paths.push_back(attribute);
  }
  std::vector<std::vector<Value>> parts(items.size());
  for (const Value& path : paths) {
    INFERD_ASSIGN(const std::vector<Value> keys,
                  keys_of(interpreter, items, path, bound.truth_of(1, false)));
    for (size_t i = 0; i < items.size(); ++i) parts[i].push_back(keys[i]);
  }
  std::vector<Value> keys;
  for (auto& part : parts) {
    INFERD_ASSIGN(Value key, interpreter.list(std::move(part)));
    keys.push_back(std::move(key));
  }
  INFERD_ASSIGN(const std::vector<size_t> order,
                sorted_order(interpreter, keys, bound.truth_of(0, false)));
  return reordered(interpreter, items, order);
}

Result<Value> dictsort(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"case_sensitive", "by", "reverse"}));
  if (!input.is(Kind::kDict)) {
    return type_error("needs a dictionary, not '" + std::string(type_name(input)) + "'");
  }
  bool by_value = false;
  if (bound.has(1)) {
    by_value = bound[1].is(Kind::kText) && bound[1].view() == "value";
    const bool by_key = bound[1].is(Kind::kText) && bound[1].view() == "key";
    if (!by_value && !by_key) return type_error("sorts by either 'key' or 'value'");
  }
  std::vector<Value> items;
  for (const auto& [key, value] : input.as_dict().entries()) {
    INFERD_ASSIGN(Value pair, interpreter.list({key, value}, Flavor::kTuple));
    items.push_back(std::move(pair));
  }
  INFERD_ASSIGN(
      const std::vector<Value> keys,
      keys_of(interpreter, items, Value::integer(by_value ? 1 : 0), bound.truth_of(0, false)));
  INFERD_ASSIGN(const std::vector<size_t> order,
                sorted_order(interpreter, keys, bound.truth_of(2, false)));
  return reordered(interpreter, items, order);
}

Result<Value> groupby(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"attribute", "default", "case_sensitive"}, 1));
  const bool case_sensitive = bound.truth_of(2, false);
  const Value otherwise = bound.get(1, Value::none());
  const Value* default_value = bound.absent(1) ? nullptr : &otherwise;
  INFERD_ASSIGN(const std::vector<Value> items, interpreter.iterate(input));
  INFERD_ASSIGN(const std::vector<Value> keys,
                keys_of(interpreter, items, bound[0], case_sensitive, default_value));
  INFERD_ASSIGN(const std::vector<size_t> order, sorted_order(interpreter, keys, false));
  std::vector<Value> groups;
  for (size_t i = 0; i < order.size();) {
    std::vector<Value> members;
    const size_t begin = i;
    for (; i < order.size() && equal(keys[order[i]], keys[order[begin]]); ++i) {
      members.push_back(items[order[i]]);
    }
    // The first member's own key, before case was folded.
    INFERD_ASSIGN(const Value grouper, get_path(interpreter, members[0], bound[0], default_value));
    INFERD_ASSIGN(const Value list_of_members, interpreter.list(std::move(members)));
    INFERD_ASSIGN(Value group, interpreter.list({grouper, list_of_members}, Flavor::kGroup));
    groups.push_back(std::move(group));
  }
  return interpreter.list(std::move(groups));
}

Result<Value> unique(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"case_sensitive", "attribute"}));
  INFERD_ASSIGN(const std::vector<Value> items, interpreter.iterate(input));
  INFERD_ASSIGN(const std::vector<Value> keys,
                keys_of(interpreter, items, bound.get(1, Value::none()), bound.truth_of(0, false)));
  DictObject seen(interpreter.meter());
  std::vector<Value> kept;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!keys[i].shape().hashable) {
      return make_iterator(
          interpreter.meter(), std::move(kept),
          type_error("unhashable type: '" + std::string(type_name(keys[i])) + "'"));
    }
    if (!keys[i].is(Kind::kText)) INFERD_TRY(interpreter.meter()->step(seen.size()));
    if (seen.find(keys[i]) != nullptr) continue;
    seen.set(keys[i], Value::none());
    kept.push_back(items[i]);
  }
  return make_iterator(interpreter.meter(), std::move(kept));
}

template <bool kMaximum>
Result<Value> extreme(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"case_sensitive", "attribute"}));
  INFERD_ASSIGN(const std::vector<Value> items, interpreter.iterate(input));
  if (items.empty()) return Value::undefined("there is no aggregated item, the sequence is empty");
  INFERD_ASSIGN(const std::vector<Value> keys,
                keys_of(interpreter, items, bound.get(1, Value::none()), bound.truth_of(0, false)));
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    INFERD_ASSIGN(const bool better,
                  compare(interpreter, kMaximum ? Comparison::kGreater : Comparison::kLess, keys[i],
                          keys[best]));
    if (better) best = i;
  }
  return items[best];
}

Result<Value> sum(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"attribute", "start"}));
  INFERD_ASSIGN(const std::vector<Value> items, interpreter.iterate(input));
  Value total = bound.get(1, Value::integer(0));
  if (total.is(Kind::kText)) return type_error("cannot sum strings; use the filter 'join'");
  for (const Value& item : items) {
    Value part = item;
    if (!bound.absent(0)) {
      INFERD_ASSIGN(part, get_path(interpreter, item, bound[0]));
    }
    INFERD_ASSIGN(total, apply(interpreter, BinaryOperator::kAdd, total, part));
  }
  return total;
}

Result<Value> batch(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"linecount", "fill_with"}, 1));
  INFERD_ASSIGN(const int64_t size, bound.integer(0, 1));
  INFERD_ASSIGN(const std::vector<Value> items, interpreter.iterate(input));
  std::vector<Value> batches;
  std::vector<Value> current;
  for (const Value& item : items) {
    if (static_cast<int64_t>(current.size()) == size) {
      INFERD_ASSIGN(Value full, interpreter.list(std::exchange(current, {})));
      batches.push_back(std::move(full));
    }
    current.push_back(item);
  }
  if (!current.empty()) {
    if (!bound.absent(1) && static_cast<int64_t>(current.size()) < size) {
      INFERD_TRY(interpreter.meter()->expect(static_cast<uint64_t>(size)));
      INFERD_TRY(interpreter.meter()->expect(static_cast<uint64_t>(size) * sizeof(Value)));
      current.resize(static_cast<size_t>(size), bound[1]);
    }
    INFERD_ASSIGN(Value rest, interpreter.list(std::move(current)));
    batches.push_back(std::move(rest));
  }
  return make_iterator(interpreter.meter(), std::move(batches));
}

Result<Value> slice(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  INFERD_ASSIGN(const Bound bound, bind(arguments, {"slices", "fill_with"}, 1));
  INFERD_ASSIGN(const int64_t slices, bound.integer(0, 1));
  if (slices == 0) return type_error("division by zero");
  INFERD_ASSIGN(const std::vector<Value> items, interpreter.iterate(input));
  const auto count = static_cast<uint64_t>(std::max<int64_t>(slices, 0));
  INFERD_TRY(interpreter.meter()->expect(count));
  INFERD_TRY(interpreter.meter()->expect(count * sizeof(SequenceObject)));
  std::vector<Value> result;
  size_t at = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const bool longer = i < items.size() % count;
    const size_t size = items.size() / count + (longer ? 1 : 0);
    std::vector<Value> part(items.begin() + static_cast<std::ptrdiff_t>(at),
                            items.begin() + static_cast<std::ptrdiff_t>(at + size));
    at += size;
    if (!bound.absent(1) && !longer) part.push_back(bound[1]);
    INFERD_ASSIGN(Value list_of_part, interpreter.list(std::move(part)));
    result.push_back(std::move(list_of_part));
  }
  return make_iterator(interpreter.meter(), std::move(result));
}

constexpr Named<FilterFunction> kFilters[] = {
    {"batch", batch},        {"count", length},    {"dictsort", dictsort},
    {"first", first},        {"groupby", groupby}, {"last", last},
    {"length", length},      {"list", list},       {"max", extreme<true>},
    {"min", extreme<false>}, {"reverse", reverse}, {"slice", slice},
    {"sort", sort},          {"sum", sum},         {"unique", unique},
};

}  // namespace

Table<Named<FilterFunction>> sequence_filters() { return {kFilters, std::size(kFilters)}; }

}  // namespace inferd::jinja
