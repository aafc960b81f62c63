#include "daemon/engine_mailbox.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace inferd::daemon {

Result<EngineMailbox> EngineMailbox::create() {
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return errno_error("cannot create the engine's mailbox (eventfd)", errno);
  return EngineMailbox(std::move(wake));
}

EngineMailbox::EngineMailbox(EngineMailbox&& other) noexcept
    : wake_(std::move(other.wake_)), posted_(std::move(other.posted_)) {}

void EngineMailbox::post(EngineTask task) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(task));
  }
  const uint64_t one = 1;
  while (::write(wake_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

size_t EngineMailbox::run_tasks(StepLoop& loop) {
  {
    const std::lock_guard lock(mutex_);
    if (posted_.empty()) return 0;
    // The counter is cleared under the lock: a task posted later rings again.
    uint64_t count = 0;
    while (::read(wake_.get(), &count, sizeof(count)) < 0 && errno == EINTR) {
    }
    running_.swap(posted_);
  }
  const size_t count = running_.size();
  for (EngineTask& task : running_) task(loop);
  running_.clear();
  return count;
}

}  // namespace inferd::daemon
