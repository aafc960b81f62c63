#include "text/jinja/text_operations.h"

#include <algorithm>

#include "text/jinja/unicode.h"

namespace inferd::jinja {
namespace {

bool in_set(std::string_view character, char32_t c, std::optional<std::string_view> set) {
  return set ? set->find(character) != std::string_view::npos : is_space(c);
}

size_t skip_forward(std::string_view text, size_t begin, size_t end,
                    std::optional<std::string_view> set, bool while_in_set) {
  while (begin < end) {
    size_t next = begin;
    const char32_t c = next_character(text, &next);
    if (in_set(text.substr(begin, next - begin), c, set) != while_in_set) break;
    begin = next;
  }
  return begin;
}

size_t skip_backward(std::string_view text, size_t begin, size_t end,
                     std::optional<std::string_view> set, bool while_in_set) {
  while (end > begin) {
    const size_t before = previous_character(text, end);
    size_t next = before;
    const char32_t c = next_character(text, &next);
    if (in_set(text.substr(before, end - before), c, set) != while_in_set) break;
    end = before;
  }
  return end;
}

std::vector<OriginText> split_at_spaces(const OriginText& text, int64_t splits) {
  std::vector<OriginText> parts;
  const std::string_view view = text.view();
  size_t at = skip_forward(view, 0, view.size(), std::nullopt, true);
  while (at < view.size()) {
    if (splits >= 0 && static_cast<int64_t>(parts.size()) == splits) {
      parts.push_back(text.slice(at, view.size()));  // with the white space at its end
      return parts;
    }
    const size_t end = skip_forward(view, at, view.size(), std::nullopt, false);
    parts.push_back(text.slice(at, end));
    at = skip_forward(view, end, view.size(), std::nullopt, true);
  }
  return parts;
}

std::vector<OriginText> split_at_spaces_from_right(const OriginText& text, int64_t splits) {
  std::vector<OriginText> parts;
  const std::string_view view = text.view();
  size_t end = skip_backward(view, 0, view.size(), std::nullopt, true);
  while (end > 0) {
    if (splits >= 0 && static_cast<int64_t>(parts.size()) == splits) {
      parts.push_back(text.slice(0, end));
      break;
    }
    const size_t begin = skip_backward(view, 0, end, std::nullopt, false);
    parts.push_back(text.slice(begin, end));
    end = skip_backward(view, 0, begin, std::nullopt, true);
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

}  // namespace

OriginText strip(const OriginText& text, std::optional<std::string_view> set, Side side) {
  const std::string_view view = text.view();
  size_t begin = 0;
  size_t end = view.size();
  if (side != Side::kRight) begin = skip_forward(view, begin, end, set, true);
  if (side != Side::kLeft) end = skip_backward(view, begin, end, set, true);
  return text.slice(begin, end);
}

std::vector<OriginText> split(const OriginText& text, std::optional<std::string_view> separator,
                              int64_t splits, bool from_right) {
  if (!separator) {
    return from_right ? split_at_spaces_from_right(text, splits) : split_at_spaces(text, splits);
  }
  const std::string_view view = text.view();
  std::vector<size_t> places;
  if (!from_right) {
    places = occurrences(view, *separator, splits);
  } else {
    size_t end = view.size();
    while (splits < 0 || static_cast<int64_t>(places.size()) < splits) {
      if (end < separator->size()) break;
      const size_t found = view.rfind(*separator, end - separator->size());
      if (found == std::string_view::npos) break;
      places.push_back(found);
      end = found;
    }
    std::reverse(places.begin(), places.end());
  }
  std::vector<OriginText> parts;
  size_t begin = 0;
  for (const size_t place : places) {
    parts.push_back(text.slice(begin, place));
    begin = place + separator->size();
  }
  parts.push_back(text.slice(begin, view.size()));
  return parts;
}

std::vector<OriginText> split_lines(const OriginText& text, bool keep_ends) {
  std::vector<OriginText> lines;
  const std::string_view view = text.view();
  size_t begin = 0;
  for (size_t at = 0; at < view.size();) {
    const size_t end = at;
    const char32_t c = next_character(view, &at);
    if (!is_line_end(c)) continue;
    if (c == '\r' && at < view.size() && view[at] == '\n') ++at;
    lines.push_back(text.slice(begin, keep_ends ? at : end));
    begin = at;
  }
  if (begin < view.size()) lines.push_back(text.slice(begin, view.size()));
  return lines;
}

std::vector<size_t> occurrences(std::string_view text, std::string_view wanted, int64_t count) {
  std::vector<size_t> places;
  const auto full = [&] { return count >= 0 && static_cast<int64_t>(places.size()) >= count; };
  if (wanted.empty()) {
    for (size_t at = 0; at < text.size() && !full(); next_character(text, &at)) {
      places.push_back(at);
    }
    if (!full()) places.push_back(text.size());
    return places;
  }
  for (size_t at = text.find(wanted); at != std::string_view::npos && !full();
       at = text.find(wanted, at + wanted.size())) {
    places.push_back(at);
  }
  return places;
}

OriginText replace_at(const OriginText& text, const std::vector<size_t>& places,
                      size_t wanted_bytes, const OriginText& replacement) {
  OriginText result("", text.overall());
  size_t begin = 0;
  for (const size_t place : places) {
    result.append(text, begin, place);
    result.append(replacement);
    begin = place + wanted_bytes;
  }
  result.append(text, begin, text.size());
  return result;
}

OriginText join(const OriginText& separator, const std::vector<OriginText>& items) {
  OriginText result;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) result.append(separator);
    result.append(items[i]);
  }
  return result;
}

}  // namespace inferd::jinja
