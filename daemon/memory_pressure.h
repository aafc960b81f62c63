// Tells when the machine, or this process's control group, runs short of memory.
// Owner: Daemon. Control thread only. Must not know what is done about it.
//
// The kernel's pressure stall information (Documentation/accounting/psi.rst): a trigger is written to the
// group's memory.pressure, or where there is none to /proc/pressure/memory, and its descriptor then polls
// exceptional when tasks have stalled for memory for that long. A group's memory.high makes its tasks stall,
// so reaching it is noticed too.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <functional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace inferd::daemon {

// Some task stalled for 100 ms within 2 s: the shortest window that needs no privilege.
inline constexpr const char* kPressureTrigger = "some 100000 2000000";

struct PressureTrigger {
  UniqueFd fd;
  std::string path;
};

// Sets the trigger, below `root` ("" for the real files). Errors: kUnavailable, with what every file said.
Result<PressureTrigger> open_pressure_trigger(const std::string& root);

class MemoryPressure {
 public:
  // Calls `on_pressure` on the thread that runs `io`, at most once per window, until destroyed.
  MemoryPressure(boost::asio::io_context& io, UniqueFd trigger, std::function<void()> on_pressure);

 private:
  void wait();

  boost::asio::posix::stream_descriptor trigger_;
  const std::function<void()> on_pressure_;
};

}  // namespace inferd::daemon
