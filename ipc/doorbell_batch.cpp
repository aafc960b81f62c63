#include "ipc/doorbell_batch.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "ipc/doorbell.h"

namespace inferd::ipc {
namespace {

constexpr uint32_t kWorthIt = 3;  // bells; fewer are rung sooner by themselves
constexpr char kBell = 1;

}  // namespace

DoorbellBatch::DoorbellBatch() noexcept : writes_{} {
  for (uint32_t i = 0; i < kBellsMax; ++i) {
    writes_[i].aio_lio_opcode = IOCB_CMD_PWRITE;
    writes_[i].aio_buf = reinterpret_cast<uintptr_t>(&kBell);
    writes_[i].aio_nbytes = sizeof(kBell);
    pointers_[i] = &writes_[i];
  }
  if (syscall(SYS_io_setup, kResultsMax, &context_) != 0) context_ = 0;
}

DoorbellBatch::~DoorbellBatch() {
  INFERD_CHECK(count_ == 0);
  if (context_ != 0) syscall(SYS_io_destroy, context_);
}

void DoorbellBatch::add(int write_end) noexcept {
  if (count_ == kBellsMax) ring();
  writes_[count_].aio_fildes = static_cast<uint32_t>(write_end);
  ++count_;
}

void DoorbellBatch::ring() noexcept {
  const uint32_t rung = context_ != 0 && count_ >= kWorthIt ? submit(count_) : 0;
  // The rest, if the call took only some.
  for (uint32_t i = rung; i < count_; ++i) {
    ring_doorbell(static_cast<int>(writes_[i].aio_fildes));
  }
  count_ = 0;
}

// Returns how many it rang, from the first on. One that is full has rung, and what its result says
// does not matter.
uint32_t DoorbellBatch::submit(uint32_t count) noexcept {
  if (results_ + count > kResultsMax) drop_results();
  const long submitted = syscall(SYS_io_submit, context_, count, pointers_.data());
  if (submitted <= 0) return 0;
  results_ += static_cast<uint32_t>(submitted);
  return static_cast<uint32_t>(submitted);
}

void DoorbellBatch::drop_results() noexcept {
  std::array<io_event, kBellsMax> events;
  timespec now = {};
  while (results_ > 0) {
    const long got = syscall(SYS_io_getevents, context_, 0, events.size(), events.data(), &now);
    if (got <= 0) return;
    results_ -= static_cast<uint32_t>(got);
  }
}

}  // namespace inferd::ipc
