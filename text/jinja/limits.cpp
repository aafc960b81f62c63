#include "text/jinja/limits.h"

#include <string>

namespace inferd::jinja {

Result<void> Meter::expect(uint64_t bytes) {
  if (bytes > limits_.memory_bytes_max || live_bytes_ + bytes > limits_.memory_bytes_max) {
    return exhausted(bytes);
  }
  return step(bytes / kBytesPerStep);
}

Error Meter::exhausted(uint64_t more_bytes) const {
  if (steps_ > limits_.steps_max) {
    return Error(ErrorCode::kResourceExhausted,
                 "the template takes more than " + std::to_string(limits_.steps_max) + " steps");
  }
  return Error(ErrorCode::kResourceExhausted,
               "the template's values take " + std::to_string(live_bytes_ + more_bytes) +
                   " bytes, over the limit of " + std::to_string(limits_.memory_bytes_max));
}

}  // namespace inferd::jinja
