#include "ipc/doorbell_batch.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"
#include "ipc/doorbell.h"

namespace inferd::ipc {

Result<std::unique_ptr<DoorbellBatch>> DoorbellBatch::create() {
  UniqueFd null(open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!null) return errno_error("cannot open /dev/null", errno);
  aio_context_t context = 0;
  if (syscall(SYS_io_setup, kResultsMax, &context) != 0) {
    return errno_error(
        "this process may not use asynchronous I/O (io_setup), by which clients are woken; raise "
        "/proc/sys/fs/aio-max-nr, or let the container's filter of system calls pass io_setup, "
        "io_submit, io_getevents and io_destroy",
        errno);
  }
  std::unique_ptr<DoorbellBatch> batch(new DoorbellBatch(std::move(null), context));
  // Once for all: what the kernel does for one bell it does for any.
  INFERD_ASSIGN(const UniqueFd bell, create_doorbell());
  batch->writes_[0].aio_resfd = static_cast<uint32_t>(bell.get());
  if (syscall(SYS_io_submit, context, 1, batch->pointers_.data()) != 1) {
    return errno_error(
        "this process may not use asynchronous I/O (io_submit), by which clients are woken; let the "
        "container's filter of system calls pass it",
        errno);
  }
  ++batch->results_;
  batch->drop_results();
  if (batch->results_ != 0 || !clear_doorbell(bell.get())) {
    return Error(ErrorCode::kUnsupported,
                 "this kernel's asynchronous I/O (io_submit, io_getevents) does not signal an eventfd, which is how "
                 "clients are woken; a Linux kernel of version 5.4 or later does");
  }
  return batch;
}

DoorbellBatch::DoorbellBatch(UniqueFd null, aio_context_t context) noexcept
    : null_(std::move(null)), context_(context), writes_{} {
  for (uint32_t i = 0; i < kBellsMax; ++i) {
    writes_[i].aio_lio_opcode = IOCB_CMD_PWRITE;
    writes_[i].aio_fildes = static_cast<uint32_t>(null_.get());
    writes_[i].aio_flags = IOCB_FLAG_RESFD;
    pointers_[i] = &writes_[i];
  }
}

DoorbellBatch::~DoorbellBatch() {
  INFERD_CHECK(count_ == 0);
  syscall(SYS_io_destroy, context_);
}

void DoorbellBatch::add(int bell) noexcept {
  if (count_ == kBellsMax) ring();
  writes_[count_].aio_resfd = static_cast<uint32_t>(bell);
  ++count_;
}

void DoorbellBatch::ring() noexcept {
  for (uint32_t rung = 0; rung < count_;) {
    if (results_ + count_ > kResultsMax) drop_results();
    const long submitted = syscall(SYS_io_submit, context_, count_ - rung, pointers_.data() + rung);
    if (submitted < 0 && errno == EAGAIN) {
      // The queue has no room, or the kernel no memory for the moment.
      drop_results();
      continue;
    }
    INFERD_CHECK(submitted > 0);  // it did when this was created, and all bells are eventfds
    rung += static_cast<uint32_t>(submitted);
    results_ += static_cast<uint32_t>(submitted);
  }
  count_ = 0;
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
