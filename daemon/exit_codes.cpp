#include "daemon/exit_codes.h"

namespace inferd::daemon {

ExitCode exit_code_for(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kOk: return ExitCode::kOk;
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kUnsupported: return ExitCode::kConfig;
    case ErrorCode::kNotFound: return ExitCode::kNoInput;
    case ErrorCode::kPermissionDenied: return ExitCode::kNoPermission;
    case ErrorCode::kResourceExhausted: return ExitCode::kOutOfMemory;
    case ErrorCode::kUnavailable: return ExitCode::kUnavailable;
    case ErrorCode::kDataCorrupt: return ExitCode::kDataCorrupt;
    case ErrorCode::kIo: return ExitCode::kOsError;
    case ErrorCode::kCancelled:
    case ErrorCode::kTimedOut:
    case ErrorCode::kInternal:
    case ErrorCode::kProtocol:
    case ErrorCode::kVersionMismatch: return ExitCode::kSoftware;
  }
  return ExitCode::kSoftware;
}

}  // namespace inferd::daemon
