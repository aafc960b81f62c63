#include "daemon/cache_domains.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "daemon/account_names.h"
#include "daemon/logging.h"

namespace inferd::daemon {

namespace {

// Numbers of domains: the upper half tells what kind it is, so that none is 0 and none collides.
constexpr uint64_t kUserDomains = uint64_t{1} << 32;
constexpr uint64_t kSharedDomains = uint64_t{2} << 32;

constexpr std::string_view kUserPrefix = "user:";
constexpr std::string_view kSharedPrefix = "shared:";

Error unknown(const std::string& domain, std::string_view kind, const std::string& name) {
  return Error(ErrorCode::kNotFound, "the cache domain '" + domain + "' names the " +
                                         std::string(kind) + " '" + name +
                                         "', which this system does not have; correct it in the "
                                         "configuration");
}

}  // namespace

Result<CacheDomains> CacheDomains::resolve(const std::vector<Config::CacheDomain>& configured) {
  CacheDomains domains;
  for (const Config::CacheDomain& domain : configured) {
    Shared shared;
    shared.name = domain.name;
    for (const std::string& name : domain.users) {
      const std::optional<uint32_t> number = user_number(name);
      if (!number) return unknown(domain.name, "user", name);
      shared.users.push_back(UserId(*number));
    }
    for (const std::string& name : domain.groups) {
      const std::optional<uint32_t> number = group_number(name);
      if (!number) return unknown(domain.name, "group", name);
      shared.groups.push_back(gid_t{*number});
    }
    domains.shared_.push_back(std::move(shared));
  }
  return domains;
}

CacheDomain CacheDomains::of_user(UserId user) { return CacheDomain(kUserDomains | user.value); }

std::string CacheDomains::name_of(CacheDomain domain) const {
  const auto number = static_cast<uint32_t>(domain.value);
  if ((domain.value & kSharedDomains) == 0) return std::string(kUserPrefix) + std::to_string(number);
  return std::string(kSharedPrefix) + shared_.at(number).name;
}

std::optional<CacheDomain> CacheDomains::find(std::string_view stable_name) const {
  if (stable_name.starts_with(kUserPrefix)) {
    stable_name.remove_prefix(kUserPrefix.size());
    uint32_t number = 0;
    const char* const end = stable_name.data() + stable_name.size();
    const auto parsed = std::from_chars(stable_name.data(), end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
    return of_user(UserId(number));
  }
  if (!stable_name.starts_with(kSharedPrefix)) return std::nullopt;
  stable_name.remove_prefix(kSharedPrefix.size());
  for (size_t i = 0; i < shared_.size(); ++i) {
    if (shared_[i].name == stable_name) return CacheDomain(kSharedDomains | i);
  }
  return std::nullopt;
}

Result<CacheDomain> CacheDomains::shared(std::string_view name, UserId user,
                                         std::span<const gid_t> groups) const {
  const auto found = std::find_if(shared_.begin(), shared_.end(),
                                  [&](const Shared& domain) { return domain.name == name; });
  if (found == shared_.end()) {
    return Error(ErrorCode::kNotFound,
                 "this daemon has no cache domain '" + printable(std::string(name)) +
                     "'; an administrator can add it as a [[cache_domain]] to its configuration");
  }
  const bool named =
      std::find(found->users.begin(), found->users.end(), user) != found->users.end();
  const bool member = std::find_first_of(groups.begin(), groups.end(), found->groups.begin(),
                                         found->groups.end()) != groups.end();
  if (!named && !member) {
    return Error(ErrorCode::kPermissionDenied,
                 "user " + std::to_string(user.value) + " may not use the cache domain '" +
                     found->name +
                     "'; an administrator can add it to the domain's users or groups");
  }
  return CacheDomain(kSharedDomains | static_cast<uint64_t>(found - shared_.begin()));
}

}  // namespace inferd::daemon
