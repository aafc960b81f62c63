#include "ipc/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/interprocess/exceptions.hpp>
#include <cerrno>
#include <cstdio>
#include <string>

namespace inferd::ipc {
namespace {

constexpr int kFixedSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr int kImmutableSeals = kFixedSizeSeals | F_SEAL_WRITE;

// What mapped_region asks of a thing that it maps: a descriptor.
struct MappableFd {
  int fd;
  boost::interprocess::mapping_handle_t get_mapping_handle() const {
    return boost::interprocess::ipcdetail::mapping_handle_from_file_handle(fd);
  }
};

Result<boost::interprocess::mapped_region> map_fd(int fd, uint64_t bytes, Access access) {
  namespace bi = boost::interprocess;
  try {
    return bi::mapped_region(
        MappableFd{fd}, access == Access::kReadWrite ? bi::read_write : bi::read_only, 0, bytes);
  } catch (const bi::interprocess_exception& e) {
    return Error(ErrorCode::kIo,
                 "cannot map " + std::to_string(bytes) + " bytes of shared memory: " + e.what());
  }
}

Result<UniqueFd> create_memfd(const char* name, uint64_t bytes) {
  UniqueFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return errno_error("cannot create shared memory (memfd_create)", errno);
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return errno_error("cannot size shared memory to " + std::to_string(bytes) + " bytes", errno);
  }
  return fd;
}

}  // namespace

Result<SharedRegion> SharedRegion::create(const char* name, uint64_t bytes) {
  INFERD_CHECK(bytes > 0);
  INFERD_ASSIGN(UniqueFd fd, create_memfd(name, bytes));
  if (fcntl(fd.get(), F_ADD_SEALS, kFixedSizeSeals) != 0) {
    return errno_error("cannot seal shared memory", errno);
  }
  SharedRegion region;
  INFERD_ASSIGN(region.region_, map_fd(fd.get(), bytes, Access::kReadWrite));
  region.fd_ = std::move(fd);
  return region;
}

Result<SharedRegion> SharedRegion::map(UniqueFd fd, uint64_t bytes, Access access) {
  struct stat status = {};
  if (fstat(fd.get(), &status) != 0) return errno_error("cannot inspect shared memory", errno);
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (!S_ISREG(status.st_mode) || seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return Error(ErrorCode::kProtocol, "the peer sent shared memory whose size is not fixed");
  }
  if (bytes == 0 || static_cast<uint64_t>(status.st_size) != bytes) {
    return Error(ErrorCode::kProtocol, "the peer sent " + std::to_string(status.st_size) +
                                           " bytes of shared memory and announced " +
                                           std::to_string(bytes));
  }
  SharedRegion region;
  INFERD_ASSIGN(region.region_, map_fd(fd.get(), bytes, access));
  region.fd_ = std::move(fd);
  return region;
}

Result<UniqueFd> reopen_read_only(int fd) {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  UniqueFd reader(open(path, O_RDONLY | O_CLOEXEC));
  if (!reader)
    return errno_error("cannot reopen shared memory read-only (is /proc mounted?)", errno);
  INFERD_TRY(deny_reopening(fd));
  return reader;
}

Result<void> deny_reopening(int fd) {
  if (fchmod(fd, 0) != 0) return errno_error("cannot close shared memory to other users", errno);
  return {};
}

Result<UniqueFd> publish_immutable(const char* name, std::span<const std::byte> bytes) {
  if (bytes.empty()) return Error(ErrorCode::kInvalidArgument, "there are no bytes to publish");
  INFERD_ASSIGN(UniqueFd fd, create_memfd(name, bytes.size()));
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t count = pwrite(fd.get(), bytes.data() + written, bytes.size() - written,
                                 static_cast<off_t>(written));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return errno_error("cannot fill shared memory", count < 0 ? errno : ENOSPC);
    written += static_cast<size_t>(count);
  }
  if (fcntl(fd.get(), F_ADD_SEALS, kImmutableSeals) != 0) {
    return errno_error("cannot seal shared memory against writing", errno);
  }
  return reopen_read_only(fd.get());
}

bool is_immutable(int fd) {
  const int seals = fcntl(fd, F_GET_SEALS);
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  return seals >= 0 && (seals & kNeeded) == kNeeded;
}

}  // namespace inferd::ipc
