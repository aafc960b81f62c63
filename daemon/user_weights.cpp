#include "daemon/user_weights.h"

#include <pwd.h>

#include <charconv>
#include <string>

#include "daemon/logging.h"

namespace inferd::daemon {

Result<UserWeights> UserWeights::resolve(const std::vector<Config::User>& configured) {
  UserWeights weights;
  for (const Config::User& user : configured) {
    uint32_t number = 0;
    const char* end = user.name.data() + user.name.size();
    const auto [stop, status] = std::from_chars(user.name.data(), end, number);
    if (status != std::errc() || stop != end) {
      const passwd* entry = ::getpwnam(user.name.c_str());
      if (entry == nullptr) {
        return Error(ErrorCode::kNotFound, "a [[user]] of the configuration has the name '" +
                                               printable(user.name) +
                                               "', which this system does not have; correct it");
      }
      number = entry->pw_uid;
    }
    weights.weights_[UserId(number)] = user.weight;
  }
  return weights;
}

}  // namespace inferd::daemon
