// UTF-8 text that knows, byte by byte, who wrote it: the template, or the data it works on.
// Owner: text/jinja. A value type. Must not know Jinja.
//
// Most texts have one origin; then the list of changes is empty and costs nothing. Positions are
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace inferd::jinja {

enum class Origin : uint8_t { kData, kTemplate };

// The origin of something made from both.
inline Origin mixed(Origin a, Origin b) {
  return a == Origin::kTemplate && b == Origin::kTemplate ? Origin::kTemplate : Origin::kData;
}

class OriginText {
 public:
  OriginText() = default;
  OriginText(std::string bytes, Origin origin) : bytes_(std::move(bytes)), first_(origin) {}

  std::string_view view() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  uint64_t memory_bytes() const {
    return bytes_.capacity() + changes_.capacity() * sizeof(uint32_t);
  }

  // Of the byte at `position`; of an empty text, the origin it was made with.
  Origin origin_at(size_t position) const;
  // kTemplate if the template wrote every byte.
  Origin overall() const { return changes_.empty() ? first_ : Origin::kData; }

  void append(std::string_view bytes, Origin origin);
  void append(const OriginText& other) { append(other, 0, other.size()); }
  // Bytes [begin, end) of `other`, each with its origin. `other` is not this object.
  void append(const OriginText& other, size_t begin, size_t end);
  OriginText slice(size_t begin, size_t end) const;
  void reserve(size_t bytes) { bytes_.reserve(bytes); }

  // Calls visit(std::string_view, Origin) for each longest run of one origin, in order.
  template <typename Visit>
  void for_each_run(size_t begin, size_t end, Visit visit) const {
    INFERD_DCHECK(begin <= end && end <= bytes_.size());
    size_t change = changes_after(begin);
    while (begin < end) {
      const size_t stop =
          change < changes_.size() && changes_[change] < end ? changes_[change] : end;
      visit(std::string_view(bytes_).substr(begin, stop - begin), origin_after(change));
      begin = stop;
      ++change;
    }
  }

 private:
  // How many changes lie at or before `position`.
  size_t changes_after(size_t position) const;
  Origin origin_after(size_t change_count) const {
    return change_count % 2 == 0 ? first_ : opposite(first_);
  }
  static Origin opposite(Origin origin) {
    return origin == Origin::kData ? Origin::kTemplate : Origin::kData;
  }

  std::string bytes_;
  Origin first_ = Origin::kTemplate;
  std::vector<uint32_t> changes_;  // ascending positions in (0, size) where the origin flips
};

}  // namespace inferd::jinja
