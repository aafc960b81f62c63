#include "daemon/user_weights.h"

#include <optional>

#include "daemon/account_names.h"
#include "daemon/logging.h"

namespace inferd::daemon {

Result<UserWeights> UserWeights::resolve(const std::vector<Config::User>& configured) {
  UserWeights weights;
  for (const Config::User& user : configured) {
    const std::optional<uint32_t> number = user_number(user.name);
    if (!number) {
      return Error(ErrorCode::kNotFound, "a [[user]] of the configuration has the name '" +
                                             printable(user.name) +
                                             "', which this system does not have; correct it");
    }
    weights.weights_[UserId(*number)] = user.weight;
  }
  return weights;
}

}  // namespace inferd::daemon
