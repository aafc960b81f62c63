#include "bench/ipc_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/unique_fd.h"

namespace inferd::bench {
namespace {

void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cpu), &set);
  INFERD_CHECK(sched_setaffinity(0, sizeof(set), &set) == 0);
}

// A child that was not killed by us has failed, and has said why.
void on_child(int, siginfo_t* info, void*) {
  if (info->si_code != CLD_KILLED || info->si_status != SIGKILL) _exit(1);
}

void watch_children() {
  struct sigaction action = {};
  action.sa_sigaction = on_child;
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_NOCLDSTOP;
  INFERD_CHECK(sigaction(SIGCHLD, &action, nullptr) == 0);
}

}  // namespace

Pin::Pin(int cpu) {
  INFERD_CHECK(sched_getaffinity(0, sizeof(before_), &before_) == 0);
  pin_to(cpu);
}

Pin::~Pin() { sched_setaffinity(0, sizeof(before_), &before_); }

Processors choose_processors() {
  cpu_set_t set;
  INFERD_CHECK(sched_getaffinity(0, sizeof(set), &set) == 0);
  std::vector<int> allowed;
  for (int cpu = 0; cpu < CPU_SETSIZE && allowed.size() < 2; ++cpu) {
    if (CPU_ISSET(static_cast<size_t>(cpu), &set)) allowed.push_back(cpu);
  }
  return {allowed.front(), allowed.back()};
}

Result<Child> Child::start(int cpu, const std::function<void()>& body) {
  return start([cpu, &body] {
    pin_to(cpu);
    body();
  });
}

Result<Child> Child::start(const std::function<void()>& body) {
  std::fflush(nullptr);  // or the child would print it again
  watch_children();
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return errno_error("cannot start a process", errno);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    body();
    _exit(0);
  }
  return Child(pid);
}

Child::Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}

Child::~Child() {
  if (pid_ == 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

bool Child::sleeps() const {
  const std::string path = "/proc/" + std::to_string(pid_) + "/stat";
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char text[512];
  const ssize_t count = file ? read(file.get(), text, sizeof(text) - 1) : -1;
  INFERD_CHECK(count > 0);
  text[count] = '\0';
  const char* name_end = std::strrchr(text, ')');  // the name itself may hold anything
  return name_end != nullptr && std::strncmp(name_end, ") S", 3) == 0;
}

void Child::stop() const {
  INFERD_CHECK(kill(pid_, SIGSTOP) == 0);
  int status = 0;
  while (waitpid(pid_, &status, WUNTRACED) < 0 && errno == EINTR) {
  }
}

void Child::go_on() const { INFERD_CHECK(kill(pid_, SIGCONT) == 0); }

Result<std::vector<Child>> start_hogs(uint32_t count, const Processors& processors) {
  std::vector<Child> hogs;
  for (uint32_t i = 0; i < count; ++i) {
    INFERD_ASSIGN(Child hog, Child::start(i % 2 == 0 ? processors.daemon : processors.clients, [] {
                    for (;;) asm volatile("" ::: "memory");
                  }));
    hogs.push_back(std::move(hog));
  }
  return hogs;
}

void wait_until_asleep(std::span<const Child> children) {
  while (!std::all_of(children.begin(), children.end(),
                      [](const Child& child) { return child.sleeps(); })) {
    sched_yield();
  }
}

int64_t thread_cpu_ns() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace inferd::bench
