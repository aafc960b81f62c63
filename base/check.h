// Assertions in two cost tiers.
// Owner: base. Any thread. Must not know what the program does.
//
// INFERD_CHECK:  always on, O(1). A failure is a bug of ours: it prints and aborts. Bytes that come
//                from a client, a file or a config line never reach it; they are validated first.
// INFERD_DCHECK: inner loops; on in the presets that define INFERD_VERIFY.
#pragma once

namespace inferd {
// Prints "FILE:LINE: check failed: EXPRESSION" to standard error and aborts.
[[noreturn]] void check_failed(const char* expression, const char* file, int line) noexcept;
}  // namespace inferd

#define INFERD_CHECK(condition) \
  (static_cast<bool>(condition) ? void(0) : ::inferd::check_failed(#condition, __FILE__, __LINE__))

#ifdef INFERD_VERIFY
#define INFERD_DCHECK(condition) INFERD_CHECK(condition)
#else
#define INFERD_DCHECK(condition) (static_cast<void>(sizeof(condition)))
#endif
