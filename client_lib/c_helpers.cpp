#include "client_lib/c_helpers.h"

namespace inferd::client_lib {

inferd_error* out_of_memory() {
  static inferd_error error = {INFERD_RESOURCE_EXHAUSTED, "out of memory"};
  return &error;
}

inferd_status report(const Error& error, inferd_error** out) noexcept {
  const auto status = static_cast<inferd_status>(error.code());
  if (out == nullptr) return status;
  try {
    *out = new inferd_error{status, error.message()};
  } catch (...) {
    *out = out_of_memory();
  }
  return status;
}

}  // namespace inferd::client_lib
