// Reads the [[cache_domain]] tables of the configuration. Private to config.cpp and its tests.
// Owner: daemon. Pure, any thread. It must not know which users exist: see cache_domains.h.
#pragma once

#include <toml++/toml.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/config.h"
#include "daemon/config_tables.h"

namespace inferd::daemon {

inline constexpr std::array<std::string_view, 3> kCacheDomainKeys{"name", "users", "groups"};

// Appends what is right to `domains`, and complains of the rest with its place.
void read_cache_domains(const toml::node& node, std::vector<Config::CacheDomain>& domains,
                        const Complaint& complain);

// As it would be written in the file, all of them, for a comparison.
std::string written_domains(const std::vector<Config::CacheDomain>& domains);

}  // namespace inferd::daemon
