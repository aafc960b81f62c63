#include "daemon/config.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/unique_fd.h"
#include "daemon/config_domains.h"
#include "daemon/config_reader.h"
#include "daemon/config_tables.h"
#include "daemon/config_users.h"

namespace inferd::daemon {

namespace {

constexpr size_t kConfigBytesMax = 1 << 20;
constexpr size_t kProblemsMax = 100;

ConfigValue value_of(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::string: return std::string(**node.as_string());
    case toml::node_type::integer: return **node.as_integer();
    case toml::node_type::floating_point: return **node.as_floating_point();
    case toml::node_type::boolean: return **node.as_boolean();
    case toml::node_type::array: return OtherValue{"an array"};
    case toml::node_type::table: return OtherValue{"a table"};
    default: return OtherValue{"a date or time"};
  }
}

const KeySpec* find_key(std::string_view section, std::string_view key) {
  for (const KeySpec& spec : config_keys()) {
    if (spec.section == section && spec.key == key) return &spec;
  }
  return nullptr;
}

bool is_section(std::string_view name) {
  const auto keys = config_keys();
  return std::any_of(keys.begin(), keys.end(), [&](const KeySpec& k) { return k.section == name; });
}

// Applies one document; keeps every problem with its place.
class DocumentReader {
 public:
  DocumentReader(std::string_view file_name, Config& config, std::vector<ConfigProblem>& problems)
      : file_name_(file_name), config_(config), problems_(problems) {}

  void read(const toml::table& document) {
    for (const auto& [key, node] : document) {
      if (key.str() == "model") {
        read_models(node);
      } else if (key.str() == "cache_domain") {
        read_cache_domains(node, config_.cache_domains, complaint());
      } else if (key.str() == "user") {
        read_users(node, config_.users, complaint());
      } else if (!is_section(key.str())) {
        complain(key.source(), unknown_section_message(key.str()));
      } else if (const toml::table* table = node.as_table()) {
        read_section(key.str(), *table);
      } else {
        complain(node.source(), "expected a table, written [" + std::string(key.str()) +
                                    "] on a line of its own");
      }
    }
  }

  void complain(const toml::source_region& region, std::string message) {
    if (problems_.size() >= kProblemsMax) return;
    problems_.push_back(
        {file_name_, region.begin.line, region.begin.column, std::move(message)});
  }

 private:
  Complaint complaint() {
    return [this](const toml::source_region& region, std::string message) {
      complain(region, std::move(message));
    };
  }

  void read_section(std::string_view section, const toml::table& table) {
    for (const auto& [key, node] : table) {
      const KeySpec* spec = find_key(section, key.str());
      if (spec == nullptr) {
        complain(key.source(), unknown_key_message(section, key.str()));
      } else if (auto complaint = store_value(*spec, value_of(node), config_)) {
        complain(node.source(), std::string(section) + "." + std::string(key.str()) + ": " +
                                    *complaint);
      }
    }
  }

  void read_models(const toml::node& node) {
    read_tables(node, "model", complaint(), [this](const toml::table& table) {
      if (!config_.models.empty()) {
        complain(table.source(), "a second [[model]]; this version serves one model per daemon, "
                                 "start another daemon with its own runtime_dir for this one");
        return;
      }
      config_.models.push_back(read_model(table));
    });
  }

  Config::Model read_model(const toml::table& table) {
    Config::Model model;
    for (const auto& [key, node] : table) {
      const auto keys = model_keys();
      const auto spec =
          std::find_if(keys.begin(), keys.end(),
                       [name = key.str()](const ModelKeySpec& k) { return k.key == name; });
      if (spec == keys.end()) {
        complain(key.source(), unknown_key_message("model", key.str()));
      } else if (const auto* text = node.as_string(); text != nullptr && !(*text)->empty()) {
        model.*(spec->slot) = **text;
      } else {
        complain(node.source(), "model." + std::string(key.str()) +
                                    ": expected a string that is not empty");
      }
    }
    if (model.path.empty() && !table.contains("path")) {
      complain(table.source(), "a [[model]] without a path; add path = \"/where/it/is.gguf\"");
    }
    return model;
  }

  std::string file_name_;
  Config& config_;
  std::vector<ConfigProblem>& problems_;
};

// A value of the command line: TOML if it reads as TOML, else the text itself, so that quotes are
// needed only where the text would be a number or a flag.
ConfigValue override_value(std::string_view text) {
  try {
    const toml::table table = toml::parse("value = " + std::string(text));
    if (table.size() == 1) return value_of(*table.get("value"));
  } catch (const toml::parse_error&) {
    // Not TOML: a bare string.
  }
  return std::string(text);
}

// Values of the command line that are texts even where they look like numbers: --model 7.
std::string as_text(std::string_view text) {
  ConfigValue value = override_value(text);
  if (auto* parsed = std::get_if<std::string>(&value)) return std::move(*parsed);
  return std::string(text);
}

std::optional<std::string> apply_override(std::string_view text, Config& config) {
  const size_t equals = text.find('=');
  const size_t dot = text.substr(0, equals).find('.');
  if (equals == std::string_view::npos || dot == std::string_view::npos) {
    return "expected section.key=value, for example scheduler.step_tokens=256";
  }
  const std::string_view section = text.substr(0, dot);
  const std::string_view key = text.substr(dot + 1, equals - dot - 1);
  const std::string_view value = text.substr(equals + 1);
  if (section == "model") {
    for (const ModelKeySpec& spec : model_keys()) {
      if (spec.key != key) continue;
      if (as_text(value).empty()) return "expected a string that is not empty";
      if (config.models.empty()) config.models.emplace_back();
      config.models.front().*(spec.slot) = as_text(value);
      return std::nullopt;
    }
    return unknown_key_message(section, key);
  }
  if (section == "cache_domain") {
    return "a cache domain has a table of its own; write [[cache_domain]] in the configuration "
           "file";
  }
  if (section == "user") {
    return "a user has a table of its own; write [[user]] in the configuration file";
  }
  if (!is_section(section)) return unknown_section_message(section);
  const KeySpec* spec = find_key(section, key);
  if (spec == nullptr) return unknown_key_message(section, key);
  if (spec->kind == KeyKind::kText) return store_value(*spec, as_text(value), config);
  return store_value(*spec, override_value(value), config);
}

}  // namespace

std::string format_problems(const std::vector<ConfigProblem>& problems) {
  std::string text;
  for (const ConfigProblem& problem : problems) {
    if (!text.empty()) text += '\n';
    text += problem.origin;
    if (problem.line > 0) {
      text += ":" + std::to_string(problem.line) + ":" + std::to_string(problem.column);
    }
    text += ": " + problem.message;
  }
  return text;
}

Config parse_config(std::string_view text, std::string_view file_name,
                    const std::vector<Override>& overrides, std::vector<ConfigProblem>& problems) {
  Config config;
  DocumentReader reader(file_name, config, problems);
  try {
    reader.read(toml::parse(text, std::string(file_name)));
  } catch (const toml::parse_error& error) {
    reader.complain(error.source(), "not valid TOML: " + std::string(error.description()));
  }
  std::stable_sort(problems.begin(), problems.end(), [](const auto& a, const auto& b) {
    return std::pair(a.line, a.column) < std::pair(b.line, b.column);  // tables go by name
  });
  for (const Override& override_text : overrides) {
    if (auto complaint = apply_override(override_text.text, config)) {
      problems.push_back({override_text.origin, 0, 0, *complaint});
    }
  }
  if (config.scheduler.max_sequences > config.scheduler.step_tokens) {
    problems.push_back({std::string(file_name), 0, 0,
                        "scheduler.max_sequences is " +
                            std::to_string(config.scheduler.max_sequences) +
                            " but scheduler.step_tokens only " +
                            std::to_string(config.scheduler.step_tokens) +
                            "; every sequence must be able to compute one token in each step, so "
                            "step_tokens must be at least max_sequences"});
  }
  if (problems.empty() && (config.models.empty() || config.models.front().path.empty())) {
    problems.push_back({std::string(file_name), 0, 0,
                        "no model to serve; add a [[model]] table with path = \"FILE.gguf\", or "
                        "start with --model FILE.gguf"});
  }
  return config;
}

Result<std::string> read_config_file(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!fd) {
    if (errno == ENOENT) return Error(ErrorCode::kNotFound, path + ": there is no such file");
    if (errno == EACCES || errno == EPERM) {
      return Error(ErrorCode::kPermissionDenied, path + ": this user may not read it");
    }
    return errno_error(path, errno);
  }
  std::string text;
  char buffer[16384];
  for (;;) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(path, errno);
    if (got == 0) return text;
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > kConfigBytesMax) {
      return Error(ErrorCode::kInvalidArgument, path + ": larger than 1 MiB, surely not a config");
    }
  }
}

std::vector<ConfigDifference> config_differences(const Config& from, const Config& to) {
  std::vector<ConfigDifference> differences;
  for (const KeySpec& spec : config_keys()) {
    std::string before = written_value(spec, from);
    std::string after = written_value(spec, to);
    if (before == after) continue;
    differences.push_back({std::string(spec.section) + "." + std::string(spec.key),
                           std::move(before), std::move(after), spec.reloadable});
  }
  const auto model_text = [](const Config& config, const ModelKeySpec& spec) {
    return "\"" + (config.models.empty() ? std::string() : config.models.front().*(spec.slot)) +
           "\"";
  };
  for (const ModelKeySpec& spec : model_keys()) {
    if (model_text(from, spec) == model_text(to, spec)) continue;
    differences.push_back({"model." + std::string(spec.key), model_text(from, spec),
                           model_text(to, spec), false});
  }
  std::string before = written_domains(from.cache_domains);
  std::string after = written_domains(to.cache_domains);
  if (before != after) {
    differences.push_back({"cache_domain", std::move(before), std::move(after), false});
  }
  before = written_users(from.users);
  after = written_users(to.users);
  if (before != after) {
    differences.push_back({"user", std::move(before), std::move(after), false});
  }
  return differences;
}

Config with_reloadable(const Config& current, const Config& next) {
  Config result = current;
  Config source = next;
  for (const KeySpec& spec : config_keys()) {
    if (!spec.reloadable) continue;
    if (const auto* slot = std::get_if<TextSlot>(&spec.slot)) (*slot)(result) = (*slot)(source);
    if (const auto* slot = std::get_if<CountSlot>(&spec.slot)) (*slot)(result) = (*slot)(source);
    if (const auto* slot = std::get_if<SizeSlot>(&spec.slot)) (*slot)(result) = (*slot)(source);
    if (const auto* slot = std::get_if<FlagSlot>(&spec.slot)) (*slot)(result) = (*slot)(source);
  }
  return result;
}

}  // namespace inferd::daemon
