#include "daemon/config_domains.h"

#include <algorithm>

#include "daemon/account_names.h"
#include "daemon/config_reader.h"
#include "daemon/logging.h"

namespace inferd::daemon {

namespace {

constexpr size_t kDomainsMax = 256;
constexpr size_t kMembersMax = 1024;  // users, and groups, of one domain
constexpr size_t kNameMax = 64;

bool is_name(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !text.empty() && text.size() <= kNameMax && std::all_of(text.begin(), text.end(), allowed);
}

// An array of names and numbers.
void read_members(std::string_view key, const toml::node& node, std::vector<std::string>& members,
                  const Complaint& complain) {
  const std::string what = "cache_domain." + std::string(key) + ": expected an array of at most " +
                           std::to_string(kMembersMax) +
                           " names or numbers, such as [\"alice\", 1001]";
  const toml::array* array = node.as_array();
  if (array == nullptr || array->size() > kMembersMax) {
    complain(node.source(), what);
    return;
  }
  for (const toml::node& element : *array) {
    const auto* text = element.as_string();
    const auto* number = element.as_integer();
    if (text != nullptr && !(*text)->empty() && (*text)->find('\0') == std::string::npos) {
      members.push_back(**text);
    } else if (number != nullptr && **number >= 0 && **number <= kAccountIdMax) {
      members.push_back(std::to_string(**number));
    } else {
      complain(element.source(), what);
    }
  }
}

Config::CacheDomain read_domain(const toml::table& table, const Complaint& complain) {
  Config::CacheDomain domain;
  for (const auto& [key, node] : table) {
    if (key.str() == "name") {
      const auto* text = node.as_string();
      if (text != nullptr && is_name(**text)) {
        domain.name = **text;
      } else {
        complain(node.source(), "cache_domain.name: expected a string of 1 to " +
                                    std::to_string(kNameMax) +
                                    " letters, digits, dots, underscores and hyphens");
      }
    } else if (key.str() == "users") {
      read_members(key.str(), node, domain.users, complain);
    } else if (key.str() == "groups") {
      read_members(key.str(), node, domain.groups, complain);
    } else {
      complain(key.source(), unknown_key_message("cache_domain", key.str()));
    }
  }
  if (!table.contains("name")) {
    complain(table.source(), "a [[cache_domain]] without a name; add name = \"team\"");
  }
  if (!table.contains("users") && !table.contains("groups")) {
    complain(table.source(),
             "a [[cache_domain]] that nobody may use; add users = [\"alice\", 1001] "
             "or groups = [\"devs\"]");
  }
  return domain;
}

std::string written(const std::vector<std::string>& members) {
  std::string text = "[";
  for (const std::string& member : members) {
    text += (text.size() > 1 ? ", \"" : "\"") + printable(member) + "\"";
  }
  return text + "]";
}

}  // namespace

void read_cache_domains(const toml::node& node, std::vector<Config::CacheDomain>& domains,
                        const Complaint& complain) {
  read_tables(node, "cache_domain", complain, [&](const toml::table& table) {
    if (domains.size() >= kDomainsMax) {
      complain(table.source(), "more than " + std::to_string(kDomainsMax) + " cache domains");
      return;
    }
    Config::CacheDomain domain = read_domain(table, complain);
    const bool again = std::any_of(domains.begin(), domains.end(),
                                   [&](const auto& other) { return other.name == domain.name; });
    if (again && !domain.name.empty()) {
      complain(table.source(), "a second [[cache_domain]] with the name \"" + domain.name +
                                   "\"; give it another one, or put all members into the first");
      return;
    }
    domains.push_back(std::move(domain));
  });
}

std::string written_domains(const std::vector<Config::CacheDomain>& domains) {
  std::string text = "[";
  for (const Config::CacheDomain& domain : domains) {
    text += (text.size() > 1 ? ", " : "") + std::string("{name = \"") + domain.name +
            "\", users = " + written(domain.users) + ", groups = " + written(domain.groups) + "}";
  }
  return text + "]";
}

}  // namespace inferd::daemon
