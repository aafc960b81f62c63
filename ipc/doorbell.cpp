#include "ipc/doorbell.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace inferd::ipc {
namespace {
constexpr int kPipeBytes = 4096;
}

Result<Doorbell> create_doorbell() {
  int ends[2];
  if (pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0)
    return errno_error("cannot create a doorbell", errno);
  Doorbell bell{UniqueFd(ends[0]), UniqueFd(ends[1])};
  // Best effort: a kernel short of pipe pages gives one or two anyway.
  static_cast<void>(fcntl(bell.write_end.get(), F_SETPIPE_SZ, kPipeBytes));
  return bell;
}

Result<UniqueFd> reopen_read_end(int read_end) {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/self/fd/%d", read_end);
  UniqueFd fd(open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!fd) return errno_error("cannot reopen a doorbell (is /proc mounted?)", errno);
  return fd;
}

void ring_doorbell(int write_end) noexcept {
  const char bell = 1;
  while (write(write_end, &bell, 1) < 0 && errno == EINTR) {
  }
}

bool clear_doorbell(int read_end) noexcept {
  // A bell rung meanwhile only means one wake-up more: read no more than the pipe can have held.
  char bells[kPipeBytes];
  ssize_t count;
  do {
    count = read(read_end, bells, sizeof(bells));
  } while (count < 0 && errno == EINTR);
  return count > 0;
}

}  // namespace inferd::ipc
