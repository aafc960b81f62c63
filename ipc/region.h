// Shared memory of fixed size: memfds that are created, sealed, reopened read-only and mapped.
// Owner: ipc. A SharedRegion is move-only and belongs to one thread at a time; the bytes that it
// maps are shared with another process. Must not know what lies in them.
#pragma once

#include <boost/interprocess/mapped_region.hpp>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "base/unique_fd.h"

namespace inferd::ipc {

enum class Access { kReadOnly, kReadWrite };

class SharedRegion {
 public:
  SharedRegion() = default;
  SharedRegion(SharedRegion&&) noexcept = default;
  SharedRegion& operator=(SharedRegion&&) noexcept = default;

  // A new memfd of `bytes` zero bytes, sealed with F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL and
  // mapped for reading and writing. `name` shows up in /proc/PID/maps. Errors: kIo.
  static Result<SharedRegion> create(const char* name, uint64_t bytes);

  // Maps a descriptor that another process sent. It must be a regular file of exactly `bytes` bytes
  // that can no longer shrink. Errors: kProtocol if not, kIo.
  static Result<SharedRegion> map(UniqueFd fd, uint64_t bytes, Access access);

  std::byte* data() const noexcept { return static_cast<std::byte*>(region_.get_address()); }
  uint64_t size() const noexcept { return region_.get_size(); }
  int fd() const noexcept { return fd_.get(); }
  explicit operator bool() const noexcept { return region_.get_address() != nullptr; }

  // Closes the descriptor; the mapping stays.
  void close_fd() { fd_.reset(); }

 private:
  UniqueFd fd_;
  boost::interprocess::mapped_region region_;
};

// A second descriptor of the same memory that can only read, to be given to a client. The memory's
// mode becomes 0, so that no process of another user can reopen it for writing through /proc.
// Errors: kIo (without /proc mounted this cannot work, and the sentence says so).
Result<UniqueFd> reopen_read_only(int fd);

// Sets the memory's mode to 0: no process of another user can reopen it through /proc. Errors: kIo.
Result<void> deny_reopening(int fd);

// A read-only descriptor of a new memfd that holds `bytes` and can never change again (F_SEAL_WRITE
// and all the others). It can be handed to any number of clients. Errors: kIo, kInvalidArgument if
// empty.
Result<UniqueFd> publish_immutable(const char* name, std::span<const std::byte> bytes);

// Whether `fd` is a memfd that can never change: what a client asks before it trusts text tables.
bool is_immutable(int fd);

}  // namespace inferd::ipc
