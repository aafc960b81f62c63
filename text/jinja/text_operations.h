// Operations on texts that keep the origin of each byte: what Python's str methods do.
// Owner: text/jinja. Pure functions; sizes are checked by the callers, where a result can be larger
// than its arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/jinja/origin_text.h"

namespace inferd::jinja {

enum class Side : uint8_t { kLeft, kRight, kBoth };

// Without the characters of `set` at the ends; white space if it is not given.
OriginText strip(const OriginText& text, std::optional<std::string_view> set, Side side);

// At runs of white space, or at each `separator` (not empty); at most `splits` times if that is not
// negative. From the right if asked: that matters when the number of splits is limited.
std::vector<OriginText> split(const OriginText& text, std::optional<std::string_view> separator,
                              int64_t splits, bool from_right);
std::vector<OriginText> split_lines(const OriginText& text, bool keep_ends);

// Where `wanted` begins in `text`, without overlaps, at most `count` if that is not negative. An
// empty one is found before each character and at the end.
std::vector<size_t> occurrences(std::string_view text, std::string_view wanted, int64_t count);
// What stands at the `places`, each `wanted_bytes` long, gives way to `replacement`.
OriginText replace_at(const OriginText& text, const std::vector<size_t>& places,
                      size_t wanted_bytes, const OriginText& replacement);

OriginText join(const OriginText& separator, const std::vector<OriginText>& items);

}  // namespace inferd::jinja
