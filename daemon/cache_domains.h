// Shared cache domains: which there are, and who may ask for which.
// Owner: the daemon. Made at start, immutable afterwards, any thread. Must not know connections.
//
// A request belongs to one cache domain: its prefixes are found in that one alone, and what it
// computes is kept there. Without being asked otherwise that is the domain of the user, as the
// kernel names the peer. A shared one exists by configuration, and only for those who ask for it by
// name.
#pragma once

#include <sys/types.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "daemon/config.h"

namespace inferd::daemon {

class CacheDomains {
 public:
  CacheDomains() = default;
  // Looks up the users and groups that the configuration names. Errors: kNotFound, with the name.
  static Result<CacheDomains> resolve(const std::vector<Config::CacheDomain>& configured);

  // The domain that belongs to this user alone.
  static CacheDomain of_user(UserId user);
  // A name for the domain that is the same after a restart, whatever the configuration then: "user:1000",
  // "shared:NAME"; and the domain of such a name, if there is one now.
  std::string name_of(CacheDomain domain) const;
  std::optional<CacheDomain> find(std::string_view stable_name) const;
  // The shared domain `name` for a peer with these groups, its primary one among them. Errors:
  // kNotFound (no such domain), kPermissionDenied (not for this user).
  Result<CacheDomain> shared(std::string_view name, UserId user,
                             std::span<const gid_t> groups) const;

 private:
  struct Shared {
    std::string name;
    std::vector<UserId> users;
    std::vector<gid_t> groups;
  };
  std::vector<Shared> shared_;
};

}  // namespace inferd::daemon
