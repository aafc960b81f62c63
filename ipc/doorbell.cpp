#include "ipc/doorbell.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace inferd::ipc {

Result<UniqueFd> create_doorbell() {
  UniqueFd bell(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!bell) return errno_error("cannot create a doorbell", errno);
  return bell;
}

void ring_doorbell(int bell) noexcept {
  const uint64_t one = 1;
  while (write(bell, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

bool clear_doorbell(int bell) noexcept {
  uint64_t count = 0;
  ssize_t got;
  do {
    got = read(bell, &count, sizeof(count));
  } while (got < 0 && errno == EINTR);
  return got > 0;
}

}  // namespace inferd::ipc
