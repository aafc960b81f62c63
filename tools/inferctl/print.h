// Printing and reading, for every command: JSON, tables, standard input.
// Owner: inferctl. One thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace inferd::inferctl {

// One line of JSON on standard output. Floats are printed so that they read back to the same bits;
// text that is not UTF-8 shows U+FFFD where it is broken.
void print_json(const nlohmann::ordered_json& value);

// A table with a head line, columns as wide as their widest cell; `right` columns are numbers.
class Table {
 public:
  struct Column {
    std::string head;
    bool right = false;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as columns.
  void add_row(std::vector<std::string> cells);
  std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Prints an array of objects as a table of these fields, those left out that occur in no row.
// `if_empty` is printed instead of a table without rows.
void print_rows(const nlohmann::ordered_json& rows, const std::vector<std::string>& fields,
                const std::string& if_empty);

// A field of a reply in words: "-" if it is missing, a text without quotes, a float with one
// decimal.
std::string field(const nlohmann::ordered_json& object, const std::string& name);
// The field as a number, 0 if it is missing or no number.
double number_field(const nlohmann::ordered_json& object, const std::string& name);

// A model's text made harmless for a terminal: control characters other than tab and newline, with
// which a text could move the cursor or worse, become U+FFFD.
std::string for_terminal(std::string_view text);

// "3 s", "5 min 10 s", "2 h 3 min", "4 d 1 h".
std::string format_duration(double seconds);

// All of standard input, as it is. A terminal gets a word about what is expected.
Result<void> read_standard_input(std::string& text);

// All of a file. Errors: kNotFound, kIo.
Result<std::string> read_file(const std::string& path);

}  // namespace inferd::inferctl
