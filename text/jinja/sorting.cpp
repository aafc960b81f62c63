#include "text/jinja/sorting.h"

#include <algorithm>

#include "text/jinja/case_mapping.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"

namespace inferd::jinja {
namespace {

// Merge sort: unlike std::stable_sort it may be left in the middle, when two keys do not compare.
class Merger {
 public:
  Merger(Interpreter& interpreter, const std::vector<Value>& keys, bool reverse)
      : interpreter_(interpreter), keys_(keys), reverse_(reverse), order_(keys.size()) {
    for (size_t i = 0; i < order_.size(); ++i) order_[i] = i;
  }

  Result<std::vector<size_t>> run() {
    for (size_t width = 1; width < order_.size(); width *= 2) {
      for (size_t begin = 0; begin + width < order_.size(); begin += 2 * width) {
        INFERD_TRY(merge(begin, begin + width, std::min(begin + 2 * width, order_.size())));
      }
    }
    return std::move(order_);
  }

 private:
  // Whether `b`, which stood behind `a`, must go before it.
  Result<bool> overtakes(size_t a, size_t b) {
    const Value& left = keys_[a];
    const Value& right = keys_[b];
    INFERD_TRY(interpreter_.meter()->step(std::min(left.shape().weight, right.shape().weight)));
    return reverse_ ? less(left, right) : less(right, left);
  }

  Result<void> merge(size_t begin, size_t middle, size_t end) {
    std::vector<size_t> merged;
    size_t left = begin;
    size_t right = middle;
    while (left < middle && right < end) {
      INFERD_ASSIGN(const bool take_right, overtakes(order_[left], order_[right]));
      merged.push_back(order_[take_right ? right++ : left++]);
    }
    while (left < middle) merged.push_back(order_[left++]);
    std::copy(merged.begin(), merged.end(), order_.begin() + static_cast<std::ptrdiff_t>(begin));
    return {};
  }

  Interpreter& interpreter_;
  const std::vector<Value>& keys_;
  bool reverse_;
  std::vector<size_t> order_;
};

}  // namespace

Result<std::vector<size_t>> sorted_order(Interpreter& interpreter, const std::vector<Value>& keys,
                                         bool reverse) {
  INFERD_TRY(interpreter.meter()->expect(keys.size() * 2 * sizeof(size_t)));
  return Merger(interpreter, keys, reverse).run();
}

Result<Value> fold_case(Interpreter& interpreter, const Value& value) {
  if (!value.is(Kind::kText)) return value;
  INFERD_TRY(interpreter.meter()->expect(value.as_text().size()));
  return interpreter.text(map_case(value.as_text(), CaseMapping::kLower));
}

}  // namespace inferd::jinja
