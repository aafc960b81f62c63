// A client process whose threads write nonsense into everything that a client may write, while the
// daemon serves it. Owner: tests/unit/mutator. The object lives in the daemon's process and ends
// the other one when it goes.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "tests/unit/ipc/raw_client.h"

namespace inferd::mutator {

// The ids that only the honest clients' prompts hold: from here on, up to 47.
inline constexpr TokenId kSecretFirst = 40;

// In memory that all processes share.
struct Board {
  std::atomic<uint64_t> writes = 0;   // words overwritten
  std::atomic<uint64_t> records = 0;  // submissions, cancellations and reports that were in order
};

class Mutator {
 public:
  // `raw` was made for a session of its own; the process that is forked here uses it, and the
  // caller only keeps it open. Words of the prompt arena become no secret id.
  Mutator(ipc::RawClient& raw, Board& board, uint64_t seed);
  Mutator(Mutator&& other) noexcept;
  Mutator& operator=(Mutator&&) = delete;
  ~Mutator();

 private:
  pid_t pid_;
};

}  // namespace inferd::mutator
