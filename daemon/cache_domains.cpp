#include "daemon/cache_domains.h"

#include <algorithm>
#include <optional>

#include "daemon/account_names.h"
#include "daemon/logging.h"

namespace inferd::daemon {

namespace {

// Numbers of domains: the upper half tells what kind it is, so that none is 0 and none collides.
constexpr uint64_t kUserDomains = uint64_t{1} << 32;
constexpr uint64_t kSharedDomains = uint64_t{2} << 32;

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
