// A doorbell: a one-page pipe that wakes whoever polls its read end.
// Owner: ipc. ring() and clear() may be called by any thread; neither ever blocks.
//
// Not an eventfd, which is one open file description for both sides: a client could clear
// O_NONBLOCK on it and make the daemon block. Each end of a pipe has its own. A full pipe means
// "already rung". Whoever rings holds a read end too, so that ringing after the other side's death
// is no SIGPIPE.
#pragma once

#include "base/result.h"
#include "base/unique_fd.h"

namespace inferd::ipc {

struct Doorbell {
  UniqueFd read_end;   // polls readable once rung
  UniqueFd write_end;  // for ring_doorbell()
};

// A new pipe of one page, both ends non-blocking and close-on-exec. Errors: kIo.
Result<Doorbell> create_doorbell();

// Another, independent open file description of the pipe's read end, for the side that rings.
// Errors: kIo.
Result<UniqueFd> reopen_read_end(int read_end);

// Rings. A bell that is already full counts as rung.
void ring_doorbell(int write_end) noexcept;

// Empties the bell; bounded, whatever the other side does meanwhile. Returns whether it had rung.
bool clear_doorbell(int read_end) noexcept;

}  // namespace inferd::ipc
