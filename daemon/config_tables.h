// Walks an array of tables of the configuration, such as all [[model]].
// Owner: daemon; private to what reads the configuration. Pure, any thread.
#pragma once

#include <toml++/toml.h>

#include <functional>
#include <string>
#include <string_view>

namespace inferd::daemon {

// Told of a mistake with its place.
using Complaint = std::function<void(const toml::source_region&, std::string)>;

// Calls `read` for each table of the array; complains of whatever is none. `name` is the array's.
template <typename Read>
void read_tables(const toml::node& node, std::string_view name, const Complaint& complain, Read read) {
  const std::string written = "written [[" + std::string(name) + "]]";
  const toml::array* tables = node.as_array();
  if (tables == nullptr) {
    complain(node.source(), "expected an array of tables, " + written);
    return;
  }
  for (const toml::node& element : *tables) {
    if (const toml::table* table = element.as_table()) {
      read(*table);
    } else {
      complain(element.source(), "expected a table, " + written);
    }
  }
}

}  // namespace inferd::daemon
