// Reads the [[user]] tables of the configuration. Private to config.cpp and its tests.
// Owner: daemon. Pure, any thread. It must not know which users exist: see user_weights.h.
#pragma once

#include <toml++/toml.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/config.h"
#include "daemon/config_tables.h"

namespace inferd::daemon {

inline constexpr std::array<std::string_view, 2> kUserKeys{"name", "weight"};

// Appends what is right to `users`, and complains of the rest with its place.
void read_users(const toml::node& node, std::vector<Config::User>& users, const Complaint& complain);

// As it would be written in the file, all of them, for a comparison.
std::string written_users(const std::vector<Config::User>& users);

}  // namespace inferd::daemon
