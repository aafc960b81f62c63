#include "tools/inferctl/figures_view.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <string_view>
#include <vector>

#include "tools/inferctl/print.h"

namespace inferd::inferctl {

namespace {

using nlohmann::ordered_json;

std::string fixed(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

// Three figures or so: 0.04, 1.5, 23, 1400.
std::string brief(double value) { return fixed(value, value < 1 ? 2 : value < 10 ? 1 : 0); }

const ordered_json& part(const ordered_json& object, const char* name) {
  static const ordered_json kNothing = ordered_json::object();
  const auto found = object.is_object() ? object.find(name) : object.end();
  return found == object.end() ? kNothing : *found;
}

// "12/340": median and 99th percentile in milliseconds.
std::string percentiles(const ordered_json& times) {
  if (number_field(times, "count") == 0) return "-";
  return brief(number_field(times, "p50_ms")) + "/" + brief(number_field(times, "p99_ms"));
}

double computed_of(const ordered_json& row) {
  return number_field(part(part(row, "figures"), "tokens"), "computed");
}

// One user, or one session.
struct Row {
  const ordered_json* entry;
  double computed = 0;
  double per_s = 0;
};

// Who was served most of late, else in all, in front; `key` names them.
std::vector<Row> sorted_rows(const ordered_json& entries, const ordered_json& before,
                             const char* key, double seconds) {
  std::map<double, double> earlier;
  for (const ordered_json& entry : before) earlier[number_field(entry, key)] = computed_of(entry);
  std::vector<Row> rows;
  for (const ordered_json& entry : entries) {
    Row row{&entry, computed_of(entry)};
    const auto found = earlier.find(number_field(entry, key));
    const double since = row.computed - (found == earlier.end() ? 0 : found->second);
    if (seconds > 0) row.per_s = since / seconds;
    rows.push_back(row);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.per_s != b.per_s ? a.per_s > b.per_s : a.computed > b.computed;
  });
  return rows;
}

std::string table_of(const std::vector<Row>& rows, const std::vector<std::string>& names,
                     bool rates) {
  std::vector<Table::Column> columns;
  for (const std::string& name : names) {
    std::string head = name;
    std::transform(head.begin(), head.end(), head.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
    columns.push_back({head, name != "client"});
  }
  for (const char* head :
       {"TOKENS/S", "SEQ", "PAGES", "MOST", "PROMPT", "CACHED", "COMPUTED", "AGAIN", "GENERATED",
        "REQUESTS", "HITS", "REFUSED", "PREEMPTED", "WAIT MS", "TTFT MS", "ITL MS"}) {
    columns.push_back({head, true});
  }
  Table table(std::move(columns));
  for (const Row& row : rows) {
    const ordered_json& figures = part(*row.entry, "figures");
    const ordered_json& tokens = part(figures, "tokens");
    const ordered_json& requests = part(figures, "requests");
    std::vector<std::string> cells;
    for (const std::string& name : names) cells.push_back(for_terminal(field(*row.entry, name)));
    cells.insert(
        cells.end(),
        {rates ? brief(row.per_s) : "-", field(figures, "sequences"), field(figures, "pages"),
         field(figures, "pages_max"), field(tokens, "prompt"), field(tokens, "cached"),
         field(tokens, "computed"), field(tokens, "recomputed"), field(tokens, "generated"),
         field(requests, "accepted"), field(figures, "hits"), field(requests, "refused"),
         field(figures, "preemptions"), percentiles(part(figures, "wait")),
         percentiles(part(figures, "ttft")), percentiles(part(figures, "itl"))});
    table.add_row(std::move(cells));
  }
  return table.text();
}

std::string pressure_text(const ordered_json& pressure) {
  std::string text;
  for (const ordered_json& line : pressure) {
    std::string resource = field(line, "resource");
    resource.resize(8, ' ');
    text += resource + field(line, "kind");
    for (const char* average : {"avg10", "avg60", "avg300"}) {
      text += " " + std::string(average) + "=" + fixed(number_field(line, average), 2);
    }
    text += " total=" + field(line, "total_us") + "\n";
  }
  return text;
}

double average10(const ordered_json& reply, std::string_view resource, std::string_view kind) {
  for (const ordered_json& line : part(reply, "pressure")) {
    if (field(line, "resource") == resource && field(line, "kind") == kind) {
      return number_field(line, "avg10");
    }
  }
  return 0;
}

// vmstat's columns.
struct VmstatColumn {
  const char* head;
  int width;
};
constexpr std::array<VmstatColumn, 15> kVmstat{{{"run", 5},
                                                {"wait", 5},
                                                {"stop", 5},
                                                {"free", 8},
                                                {"live", 8},
                                                {"cached", 8},
                                                {"steps", 7},
                                                {"prompt", 8},
                                                {"hit", 8},
                                                {"comp", 8},
                                                {"again", 8},
                                                {"gen", 7},
                                                {"preem", 6},
                                                {"pg%", 6},
                                                {"cpu%", 6}}};

template <typename Cell>
std::string vmstat_row(const Cell& cell) {
  std::string line;
  for (size_t i = 0; i < kVmstat.size(); ++i) {
    const std::string text = cell(i);
    const auto width = static_cast<size_t>(kVmstat[i].width);
    line += std::string(text.size() < width ? width - text.size() : 1, ' ') + text;
  }
  return line + "\n";
}

}  // namespace

std::string top_text(const ordered_json& reply, const ordered_json& before, double seconds) {
  const bool rates = before.is_object();
  const double passed = rates ? seconds : 0;
  const auto rows = [&](const char* list, const char* key) {
    return sorted_rows(part(reply, list), part(before, list), key, passed);
  };
  std::vector<Row> users = rows("users", "uid");
  const ordered_json others = {{"uid", "others"}, {"figures", part(reply, "others")}};
  const bool any_other = number_field(part(part(reply, "others"), "requests"), "accepted") > 0;
  if (any_other) users.push_back({&others, computed_of(others)});
  return pressure_text(part(reply, "pressure")) + "\n" +
         table_of(users, {"uid", "sessions"}, rates) + "\n" +
         table_of(rows("sessions", "id"), {"id", "uid", "pid", "client"}, rates);
}

std::string vmstat_head() {
  return vmstat_row([](size_t i) { return std::string(kVmstat[i].head); });
}

std::string vmstat_line(const ordered_json& reply, const ordered_json& before, double seconds) {
  const ordered_json& pages = part(reply, "pages");
  const auto per_s = [&](const ordered_json& now, const ordered_json& then, const char* name) {
    const double since = number_field(now, name) - number_field(then, name);
    return fixed(seconds > 0 ? since / seconds : 0, 0);
  };
  const auto tokens = [&](const char* name) {
    return per_s(part(reply, "tokens"), part(before, "tokens"), name);
  };
  const std::array<std::string, kVmstat.size()> cells{
      field(reply, "running"),
      field(reply, "waiting"),
      field(reply, "paused"),
      field(pages, "free"),
      field(pages, "live"),
      field(pages, "cached"),
      per_s(reply, before, "steps"),
      tokens("prompt"),
      tokens("cached"),
      tokens("computed"),
      tokens("recomputed"),
      tokens("generated"),
      per_s(reply, before, "preemptions"),
      fixed(average10(reply, "pages", "some"), 1),
      fixed(average10(reply, "compute", "some"), 1)};
  return vmstat_row([&](size_t i) { return cells[i]; });
}

}  // namespace inferd::inferctl
