// Rings doorbells that the other side may have tampered with: many by one system call, and never blocking.
// Owner: ipc. One thread at a time. Nothing here allocates after construction. Must not know whose bells they are.
//
// io_submit(2) carries out a write of nothing to /dev/null before it returns, and signals the eventfd that is named
// along with it as the write's end. That signal is the one way for a process to ring an eventfd that neither waits
// for its count to have room nor looks at its flags. (A write(2) does both, see doorbell.h.)
//
// What a step to sleeping clients costs is nearly all the kernel's: waking each of them. Clients that are awake cost a
// fortieth of it (inferd-bench ipc).
#pragma once

#include <linux/aio_abi.h>

#include <array>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "base/unique_fd.h"

namespace inferd::ipc {

class DoorbellBatch {
 public:
  // Errors: kIo, where the kernel has no such calls for this process.
  static Result<std::unique_ptr<DoorbellBatch>> create();
  ~DoorbellBatch();
  DoorbellBatch(const DoorbellBatch&) = delete;
  DoorbellBatch& operator=(const DoorbellBatch&) = delete;

  // Notes a bell; rings those noted so far if there are too many. `bell` stays open until ring() has returned.
  void add(int bell) noexcept;
  // Rings all that were noted.
  void ring() noexcept;

 private:
  static constexpr uint32_t kBellsMax = 64;     // of one call
  static constexpr uint32_t kResultsMax = 256;  // that may lie unread in the kernel's queue

  DoorbellBatch(UniqueFd null, aio_context_t context) noexcept;
  void drop_results() noexcept;

  UniqueFd null_;
  aio_context_t context_;
  uint32_t results_ = 0;  // in the kernel's queue, each of a bell that has rung
  uint32_t count_ = 0;
  std::array<iocb, kBellsMax> writes_;
  std::array<iocb*, kBellsMax> pointers_;
};

}  // namespace inferd::ipc
