// A doorbell: an eventfd that wakes whoever polls it.
// Owner: ipc. Any thread.
//
// Daemon and client have the same open file description, so the client can do with it what it likes: fill it, and
// take O_NONBLOCK from it. The daemon therefore never reads nor writes one. A client's bell it watches edge-triggered,
// each ring of which is an event of its own, and never empties. Its own to the clients it rings by DoorbellBatch,
// which the kernel carries out under a spinlock, whatever the bell's count or flags are.
//
// Not a pipe: to read or write one takes its mutex, O_NONBLOCK or not, and a peer that reads it into memory whose
// page does not come (a file of a file system of its own making, userfaultfd) holds that mutex for as long as it
// likes.
#pragma once

#include "base/result.h"
#include "base/unique_fd.h"

namespace inferd::ipc {

// A new bell, non-blocking and close-on-exec. Errors: kIo.
Result<UniqueFd> create_doorbell();

// Rings. For the client's side, and for whoever trusts the other one.
void ring_doorbell(int bell) noexcept;

// Empties the bell. Returns whether it had rung. Likewise.
bool clear_doorbell(int bell) noexcept;

}  // namespace inferd::ipc
