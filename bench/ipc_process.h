// Processes and processors of measurements. Owner: bench. Main thread only. Must not know what is
// measured.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"

namespace inferd::bench {

inline void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// Pins the calling thread for the life of this object, and lets it go where it could before.
class Pin {
 public:
  explicit Pin(int cpu);
  ~Pin();
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;

 private:
  cpu_set_t before_;
};

// Two processors that this process may run on: the daemon's and the clients'. The same one twice if
// there is no second.
struct Processors {
  int daemon = 0;
  int clients = 0;
};
Processors choose_processors();

// A forked process that is killed with this object, or with its parent. One that dies before, which
// is a fault, ends the parent too: nothing would come from it any more.
class Child {
 public:
  // `body` runs in the child, pinned to `cpu`, and the process ends when it returns. Errors: kIo.
  static Result<Child> start(int cpu, const std::function<void()>& body);
  // The same, pinned nowhere.
  static Result<Child> start(const std::function<void()>& body);
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  ~Child();

  // Whether it sleeps, by the kernel's word.
  bool sleeps() const;
  // SIGSTOP; returns once it is stopped. SIGCONT.
  void stop() const;
  void go_on() const;

 private:
  explicit Child(pid_t pid) : pid_(pid) {}
  pid_t pid_;
};

// So many processes that do nothing but keep the two processors busy, in turn.
Result<std::vector<Child>> start_hogs(uint32_t count, const Processors& processors);

// Returns once all of them sleep.
void wait_until_asleep(std::span<const Child> children);

// CLOCK_THREAD_CPUTIME_ID of the calling thread.
int64_t thread_cpu_ns();

}  // namespace inferd::bench
