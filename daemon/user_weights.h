// What the configuration says of single users: the weight of each among the users who share the service.
// Owner: the daemon. Made at start, immutable afterwards, any thread.
#pragma once

#include <map>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "daemon/config.h"
#include "scheduler/request.h"

namespace inferd::daemon {

class UserWeights {
 public:
  UserWeights() = default;
  // Looks up the users that the configuration names. Errors: kNotFound, with the name.
  static Result<UserWeights> resolve(const std::vector<Config::User>& configured);

  uint32_t of(UserId user) const {
    const auto found = weights_.find(user);
    return found == weights_.end() ? scheduler::kWeightDefault : found->second;
  }

 private:
  std::map<UserId, uint32_t> weights_;
};

}  // namespace inferd::daemon
