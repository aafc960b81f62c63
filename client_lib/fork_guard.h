// Knows whether this process made it, or is a child that got a copy of it by fork(). Without a
// system call: the kernel gives a child zeros for its page. Owner: Connection. Any thread. Must not
// know connections.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace inferd::client_lib {

class ForkGuard {
 public:
  ForkGuard() = default;
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;
  ~ForkGuard();

  // Errors: kIo (no memory, or a kernel older than 4.14).
  Result<void> set();
  // False in a child. Before set(): false.
  bool in_own_process() const { return word_ != nullptr && *word_ != 0; }
  // kInvalidArgument in a child.
  Result<void> check() const;

 private:
  volatile uint32_t* word_ = nullptr;  // alone in its page
};

}  // namespace inferd::client_lib
