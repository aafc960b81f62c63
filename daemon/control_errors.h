// Replies of the control socket that say no.
// Owner: daemon. Pure functions, any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "daemon/control_codec.h"

namespace inferd::daemon {

// An error of org.varlink.service, such as InvalidParameter, as a whole message.
std::string service_error(std::string_view name, const Json& parameters);
// An error of org.inferd.Control with the error's sentence, as a whole message.
std::string control_error(const Error& error);

}  // namespace inferd::daemon
