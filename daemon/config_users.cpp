#include "daemon/config_users.h"

#include <algorithm>

#include "daemon/account_names.h"
#include "daemon/config_reader.h"
#include "daemon/logging.h"

namespace inferd::daemon {

namespace {

constexpr size_t kUsersMax = 4096;
constexpr int64_t kWeightMin = 1;
constexpr int64_t kWeightMax = 10'000;

Config::User read_user(const toml::table& table, const Complaint& complain) {
  Config::User user;
  for (const auto& [key, node] : table) {
    const auto* text = node.as_string();
    const auto* number = node.as_integer();
    if (key.str() == "name") {
      if (text != nullptr && !(*text)->empty() && (*text)->find('\0') == std::string::npos) {
        user.name = **text;
      } else if (number != nullptr && **number >= 0 && **number <= kAccountIdMax) {
        user.name = std::to_string(**number);
      } else {
        complain(node.source(), "user.name: expected a user's name or number, such as \"alice\"");
      }
    } else if (key.str() == "weight") {
      if (number != nullptr && **number >= kWeightMin && **number <= kWeightMax) {
        user.weight = static_cast<uint32_t>(**number);
      } else {
        complain(node.source(), "user.weight: expected an integer from " +
                                    std::to_string(kWeightMin) + " to " +
                                    std::to_string(kWeightMax));
      }
    } else {
      complain(key.source(), unknown_key_message("user", key.str()));
    }
  }
  if (!table.contains("name")) {
    complain(table.source(), "a [[user]] without a name; add name = \"alice\"");
  }
  return user;
}

}  // namespace

void read_users(const toml::node& node, std::vector<Config::User>& users, const Complaint& complain) {
  read_tables(node, "user", complain, [&](const toml::table& table) {
    if (users.size() >= kUsersMax) {
      complain(table.source(), "more than " + std::to_string(kUsersMax) + " users");
      return;
    }
    Config::User user = read_user(table, complain);
    const bool again = std::any_of(users.begin(), users.end(),
                                   [&](const auto& other) { return other.name == user.name; });
    if (again && !user.name.empty()) {
      complain(table.source(),
               "a second [[user]] with the name \"" + printable(user.name) + "\"; keep one of them");
      return;
    }
    users.push_back(std::move(user));
  });
}

std::string written_users(const std::vector<Config::User>& users) {
  std::string text = "[";
  for (const Config::User& user : users) {
    text += (text.size() > 1 ? ", " : "") + std::string("{name = \"") + printable(user.name) +
            "\", weight = " + std::to_string(user.weight) + "}";
  }
  return text + "]";
}

}  // namespace inferd::daemon
