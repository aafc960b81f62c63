// Exit codes of the daemon, after sysexits.h where that has a fitting number. Documented in inferd(8).
// Owner: daemon. Constants, any thread.
#pragma once

#include "base/result.h"

namespace inferd::daemon {

enum class ExitCode : int {
  kOk = 0,                // clean shutdown, or --help, --version, --check-config without a complaint
  kUsage = 64,            // EX_USAGE: the command line makes no sense
  kDataCorrupt = 65,      // EX_DATAERR: the model file is damaged
  kNoInput = 66,          // EX_NOINPUT: the model file or the config file is missing
  kUnavailable = 69,      // EX_UNAVAILABLE: another daemon lives in this runtime directory
  kSoftware = 70,         // EX_SOFTWARE: a bug of ours that was contained
  kOsError = 71,          // EX_OSERR: the operating system refused something that should work
  kOutOfMemory = 75,      // EX_TEMPFAIL: the machine has too little memory for this model just now
  kNoPermission = 77,     // EX_NOPERM
  kConfig = 78,           // EX_CONFIG: the configuration is wrong
};

// The code for an error that ended start-up.
ExitCode exit_code_for(ErrorCode code) noexcept;

}  // namespace inferd::daemon
