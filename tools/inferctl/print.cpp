#include "tools/inferctl/print.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <iostream>

#include "base/unique_fd.h"

namespace inferd::inferctl {
namespace {

// Appends all that can be read from `fd`.
Result<void> read_all(int fd, const std::string& what, std::string& text) {
  std::array<char, size_t{1} << 16> buffer;
  for (;;) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error("reading " + what + " failed", errno);
    if (got == 0) return {};
    text.append(buffer.data(), static_cast<size_t>(got));
  }
}

// Terminal columns of UTF-8 text, one a character: good enough to align names.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

}  // namespace

void print_json(const nlohmann::ordered_json& value) {
  std::cout << value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
}

void Table::add_row(std::vector<std::string> cells) {
  INFERD_CHECK(cells.size() == columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text() const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t width = width_of(columns_[c].head);
    for (const auto& row : rows_) width = std::max(width, width_of(row[c]));
    widths.push_back(width);
  }
  std::string text;
  const auto add_line = [&](auto&& cell_of) {
    std::string line;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string& cell = cell_of(c);
      const std::string padding(widths[c] - width_of(cell), ' ');
      line += columns_[c].right ? padding + cell : cell + padding;
      line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  };
  add_line([&](size_t c) -> const std::string& { return columns_[c].head; });
  for (const auto& row : rows_) add_line([&](size_t c) -> const std::string& { return row[c]; });
  return text;
}

void print_rows(const nlohmann::ordered_json& rows, const std::vector<std::string>& fields,
                const std::string& if_empty) {
  if (!rows.is_array() || rows.empty()) {
    std::cout << if_empty << '\n';
    return;
  }
  std::vector<std::string> names;
  for (const std::string& name : fields) {
    const bool occurs = std::any_of(rows.begin(), rows.end(), [&](const auto& row) {
      return row.is_object() && row.contains(name);
    });
    if (occurs) names.push_back(name);
  }
  std::vector<Table::Column> columns;
  for (const std::string& name : names) {
    bool numbers = true;
    for (const auto& row : rows) {
      numbers = numbers && row.is_object() && (!row.contains(name) || row.at(name).is_number());
    }
    std::string head = name;
    std::replace(head.begin(), head.end(), '_', ' ');
    std::transform(head.begin(), head.end(), head.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
    columns.push_back({head, numbers});
  }
  Table table(std::move(columns));
  for (const auto& row : rows) {
    std::vector<std::string> cells;
    for (const std::string& name : names) cells.push_back(for_terminal(field(row, name)));
    table.add_row(std::move(cells));
  }
  std::cout << table.text();
}

std::string field(const nlohmann::ordered_json& object, const std::string& name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  if (found == object.end() || found->is_null()) return "-";
  if (found->is_string()) return found->get<std::string>();
  if (found->is_boolean()) return found->get<bool>() ? "yes" : "no";
  if (found->is_number_float()) {
    char text[64];
    std::snprintf(text, sizeof text, "%.1f", found->get<double>());
    return text;
  }
  return found->dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

double number_field(const nlohmann::ordered_json& object, const std::string& name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

std::string for_terminal(std::string_view text) {
  std::string safe;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool c0 = (byte < 0x20 && byte != '\t' && byte != '\n') || byte == 0x7F;
    // U+0080 to U+009F, the second range of control characters, as UTF-8.
    const bool c1 =
        byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (!c0 && !c1) {
      safe += text[i];
      continue;
    }
    safe += "\uFFFD";
    if (c1) ++i;
  }
  return safe;
}

std::string format_duration(double seconds) {
  const auto whole = static_cast<uint64_t>(std::max(seconds, 0.0));
  const auto part = [](uint64_t value, const char* unit) {
    return std::to_string(value) + " " + unit;
  };
  if (whole < 60) return part(whole, "s");
  if (whole < 3600) return part(whole / 60, "min") + " " + part(whole % 60, "s");
  if (whole < 86400) return part(whole / 3600, "h") + " " + part(whole % 3600 / 60, "min");
  return part(whole / 86400, "d") + " " + part(whole % 86400 / 3600, "h");
}

Result<void> read_standard_input(std::string& text) {
  if (::isatty(STDIN_FILENO)) std::cerr << "(reading standard input; Ctrl-D ends it)\n";
  return read_all(STDIN_FILENO, "standard input", text);
}

Result<std::string> read_file(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd && errno == ENOENT) {
    return Error(ErrorCode::kNotFound, "there is no file " + path + "; check its path");
  }
  if (!fd) return errno_error("opening " + path + " failed", errno);
  std::string text;
  INFERD_TRY(read_all(fd.get(), path, text));
  return text;
}

}  // namespace inferd::inferctl
