// What a submission's numbers may be, as inferd.h documents them: checked by the client library
// before it submits, and by the daemon because a client need not use the library. Owner: ipc. Pure
// functions, any thread. Must not know models.
#pragma once

#include "base/result.h"
#include "ipc/wire.h"

namespace inferd::ipc {

// kInvalidArgument with a sentence that names the parameter and its range; kUnsupported for flags
// and fields that this build does not know, or that are none of the session's `features`.
Result<void> check_submission(const SubmitRecord& fields, uint64_t features);
// kInvalidArgument: a pin without a prompt, or the end of all pins with one.
Result<void> check_pin(const PinRecord& fields);
// kInvalidArgument: no class, or a nice out of its range.
Result<void> check_urgency(uint8_t priority, int32_t nice);

}  // namespace inferd::ipc
