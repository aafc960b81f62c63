#include "client_lib/fork_guard.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace inferd::client_lib {
namespace {

size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

ForkGuard::~ForkGuard() {
  if (word_ != nullptr) munmap(const_cast<uint32_t*>(word_), page_bytes());
}

Result<void> ForkGuard::set() {
  void* page =
      mmap(nullptr, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return errno_error("cannot get a page for the connection", errno);
  if (madvise(page, page_bytes(), MADV_WIPEONFORK) != 0) {
    const int error = errno;
    munmap(page, page_bytes());
    return errno_error("cannot have a page wiped on fork (Linux 4.14 or newer is needed)", error);
  }
  word_ = static_cast<uint32_t*>(page);
  *word_ = 1;
  return {};
}

Result<void> ForkGuard::check() const {
  if (in_own_process()) return {};
  return Error(ErrorCode::kInvalidArgument,
               "the connection was opened by another process; after a fork, connect again");
}

}  // namespace inferd::client_lib
