// Requests as the C interface gives them: checked, tokenized and submitted to a connection.
// Owner: client_lib. Any thread. Each returns a sequence that belongs to its connection. Must not
// know rings. The functions of inferd.h say what the arguments mean.
#pragma once

#include <span>

#include "base/result.h"
#include "client_lib/connection.h"
#include "client_lib/include/inferd/inferd.h"

namespace inferd::client_lib {

// `sampling`: NULL for the defaults.
Result<Sequence*> open_sequence(Connection& connection, const inferd_prompt& prompt,
                                const inferd_sampling* sampling);
// `more`: NULL for nothing.
Result<Sequence*> fork_sequence(const Sequence& parent, const inferd_prompt* more,
                                const inferd_sampling* sampling);
// All of them or none.
Result<void> open_samples(Connection& connection, const inferd_prompt& prompt,
                          const inferd_sampling* sampling, std::span<Sequence*> samples);
Result<Sequence*> score_continuation(Connection& connection, const inferd_prompt& prompt,
                                     const inferd_prompt& continuation,
                                     const inferd_sampling* sampling);
// Returns how many of the prompt's tokens are pinned then.
Result<uint32_t> pin_prompt(Connection& connection, const inferd_prompt& prompt);
Result<Sequence*> resume_sequence(Connection& onto, Sequence& lost);

}  // namespace inferd::client_lib
