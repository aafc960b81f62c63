#include "base/result.h"

#include <system_error>

namespace inferd {

std::string_view error_code_name(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kOk: return "ok";
    case ErrorCode::kInvalidArgument: return "invalid argument";
    case ErrorCode::kNotFound: return "not found";
    case ErrorCode::kPermissionDenied: return "permission denied";
    case ErrorCode::kResourceExhausted: return "resource exhausted";
    case ErrorCode::kUnavailable: return "unavailable";
    case ErrorCode::kDataCorrupt: return "data corrupt";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kCancelled: return "cancelled";
    case ErrorCode::kTimedOut: return "timed out";
    case ErrorCode::kIo: return "input/output error";
    case ErrorCode::kInternal: return "internal error";
    case ErrorCode::kProtocol: return "protocol error";
    case ErrorCode::kVersionMismatch: return "version mismatch";
  }
  return "unknown error";
}

Error errno_error(std::string_view what, int errno_value) {
  // std::generic_category is thread-safe where strerror is not.
  return Error(ErrorCode::kIo,
               std::string(what) + ": " + std::generic_category().message(errno_value));
}

}  // namespace inferd
