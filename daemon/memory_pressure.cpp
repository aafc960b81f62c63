#include "daemon/memory_pressure.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>
#include <vector>

namespace inferd::daemon {

namespace {

// The nearest first: the process's own group in version 2 of control groups, then the whole machine.
std::vector<std::string> pressure_files(const std::string& root) {
  std::vector<std::string> files;
  std::ifstream lines(root + "/proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    // The root group is the machine. Its file wakes everybody who watches it whenever one of them comes or
    // goes; the one in /proc does not.
    if (line.rfind("0::/", 0) != 0 || line == "0::/") continue;
    for (const char* mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
      files.push_back(root + mount + line.substr(3) + "/memory.pressure");
    }
  }
  files.push_back(root + "/proc/pressure/memory");
  return files;
}

}  // namespace

Result<PressureTrigger> open_pressure_trigger(const std::string& root) {
  std::string complaints;
  for (const std::string& path : pressure_files(root)) {
    UniqueFd fd(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    const char* doing = "open";
    if (fd) {
      // The kernel wants the terminating NUL.
      const auto bytes = static_cast<ssize_t>(std::strlen(kPressureTrigger) + 1);
      if (::write(fd.get(), kPressureTrigger, static_cast<size_t>(bytes)) == bytes) {
        return PressureTrigger{std::move(fd), path};
      }
      doing = "set a trigger in";
    }
    complaints += (complaints.empty() ? "cannot " : ", nor ") + std::string(doing) + " " + path + " (" +
                  std::strerror(errno) + ")";
  }
  return Error(ErrorCode::kUnavailable, complaints);
}

MemoryPressure::MemoryPressure(boost::asio::io_context& io, UniqueFd trigger,
                               std::function<void()> on_pressure)
    : trigger_(io, trigger.release()), on_pressure_(std::move(on_pressure)) {
  wait();
}

void MemoryPressure::wait() {
  trigger_.async_wait(boost::asio::posix::descriptor_base::wait_error,
                      [this](const boost::system::error_code& error) {
                        if (error) return;
                        on_pressure_();
                        wait();
                      });
}

}  // namespace inferd::daemon
