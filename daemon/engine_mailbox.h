// How the control thread reaches the engine thread: a queue of things to do between two steps.
// Owner: daemon, which outlives both threads. post() may be called by any thread and never waits for
// the engine; the rest belongs to the engine thread. Must not know what the tasks do.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace inferd::daemon {

class StepLoop;

// Runs on the engine thread, between two steps. It must be short, since every sequence waits for it.
using EngineTask = std::function<void(StepLoop&)>;

class EngineMailbox {
 public:
  // Errors: kIo (no descriptor left).
  static Result<EngineMailbox> create();
  EngineMailbox(EngineMailbox&& other) noexcept;
  EngineMailbox& operator=(EngineMailbox&&) = delete;

  // Queues a task and wakes the engine. Tasks run in the order in which they were posted.
  void post(EngineTask task);

  // Polls readable while tasks wait.
  int wake_fd() const { return wake_.get(); }
  // Runs what was posted so far; returns how many tasks ran.
  size_t run_tasks(StepLoop& loop);

 private:
  explicit EngineMailbox(UniqueFd wake) : wake_(std::move(wake)) {}

  UniqueFd wake_;  // an eventfd: both of its users are threads of ours
  std::mutex mutex_;
  std::vector<EngineTask> posted_;   // under mutex_
  std::vector<EngineTask> running_;  // engine thread
};

}  // namespace inferd::daemon
