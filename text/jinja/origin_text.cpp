#include "text/jinja/origin_text.h"

#include <algorithm>
#include <limits>

namespace inferd::jinja {

size_t OriginText::changes_after(size_t position) const {
  if (changes_.empty()) return 0;
  return static_cast<size_t>(std::upper_bound(changes_.begin(), changes_.end(), position) -
                             changes_.begin());
}

Origin OriginText::origin_at(size_t position) const {
  return origin_after(changes_after(position));
}

void OriginText::append(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  INFERD_CHECK(bytes_.size() + bytes.size() <= std::numeric_limits<uint32_t>::max());
  if (bytes_.empty()) {
    first_ = origin;
  } else if (origin_after(changes_.size()) != origin) {
    changes_.push_back(static_cast<uint32_t>(bytes_.size()));
  }
  bytes_.append(bytes);
}

void OriginText::append(const OriginText& other, size_t begin, size_t end) {
  INFERD_DCHECK(&other != this);
  other.for_each_run(begin, end,
                     [this](std::string_view run, Origin origin) { append(run, origin); });
}

OriginText OriginText::slice(size_t begin, size_t end) const {
  OriginText result("", overall());
  result.append(*this, begin, end);
  return result;
}

}  // namespace inferd::jinja
