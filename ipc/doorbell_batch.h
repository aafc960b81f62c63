// Rings many doorbells with one system call.
// Owner: ipc. One thread at a time. Nothing here blocks or allocates after construction. Must not
// know whose bells they are.
//
// The bells are written by io_submit(2), which the kernel carries out before it returns, since a
// write to a pipe is never left for later: once ring() returns, all have rung, as by
// ring_doorbell(). What a step to sleeping clients costs is nearly all the kernel's: waking each of
// them. Where it does so to an idle processor the batch saves nothing; where other processes keep
// the clients' processor busy it saves a tenth (inferd-bench ipc), because the bells follow each
// other faster than that processor can be interrupted again. Where the kernel has no such call for
// us (none compiled in, forbidden, fs.aio-max-nr reached), each bell is rung by itself.
#pragma once

#include <linux/aio_abi.h>

#include <array>
#include <cstdint>

namespace inferd::ipc {

class DoorbellBatch {
 public:
  // Never fails: see above.
  DoorbellBatch() noexcept;
  ~DoorbellBatch();
  DoorbellBatch(const DoorbellBatch&) = delete;
  DoorbellBatch& operator=(const DoorbellBatch&) = delete;

  // Notes a bell; rings those noted so far if there are too many. `write_end` stays open until
  // ring() has returned.
  void add(int write_end) noexcept;
  // Rings all that were noted.
  void ring() noexcept;

 private:
  static constexpr uint32_t kBellsMax = 64;     // of one call
  static constexpr uint32_t kResultsMax = 256;  // that may lie unread in the kernel's queue

  uint32_t submit(uint32_t count) noexcept;
  void drop_results() noexcept;

  aio_context_t context_ = 0;  // 0: there is none
  uint32_t results_ = 0;       // in the kernel's queue, each of a bell that has rung
  uint32_t count_ = 0;
  std::array<iocb, kBellsMax> writes_;
  std::array<iocb*, kBellsMax> pointers_;
};

}  // namespace inferd::ipc
