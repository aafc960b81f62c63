#include "daemon/control_errors.h"

#include "daemon/control_codec.h"
#include "daemon/control_interface.h"

namespace inferd::daemon {

namespace {

std::string error_name(ErrorCode code) {
  const auto name = [&]() -> std::string_view {
    switch (code) {
      case ErrorCode::kNotFound: return "NotFound";
      case ErrorCode::kPermissionDenied: return "PermissionDenied";
      case ErrorCode::kInvalidArgument: return "InvalidArgument";
      case ErrorCode::kUnavailable: return "Unavailable";
      default: return "Failed";
    }
  };
  return std::string(kControlInterface) + "." + std::string(name());
}

}  // namespace

std::string service_error(std::string_view name, const Json& parameters) {
  return encode_control_error(std::string(kServiceInterface) + "." + std::string(name), parameters);
}

std::string control_error(const Error& error) {
  return encode_control_error(error_name(error.code()), {{"message", error.message()}});
}

}  // namespace inferd::daemon
