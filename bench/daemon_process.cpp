#include "bench/daemon_process.h"

#include <time.h>

#include "base/unique_fd.h"
#include "ipc/socket.h"

namespace inferd::bench {
namespace {

constexpr int kPatienceMs = 60'000;

}  // namespace

Result<pid_t> daemon_pid(const std::string& socket) {
  INFERD_ASSIGN(const UniqueFd fd, ipc::connect_to(socket, kPatienceMs));
  INFERD_ASSIGN(const ipc::PeerIdentity peer, ipc::peer_identity(fd.get()));
  return peer.pid;
}

Result<int64_t> process_cpu_ns(pid_t pid) {
  clockid_t clock;
  timespec now = {};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &now) != 0) {
    return Error(ErrorCode::kIo, "cannot read the processor time of the daemon, process " +
                                     std::to_string(pid) + "; is it in another PID namespace?");
  }
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace inferd::bench
