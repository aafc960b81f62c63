// What the functions of the C interface share: handles, errors, structures that grow.
// Owner: client_lib. Any thread. Nothing throws out of guarded(): running out of memory becomes
// INFERD_RESOURCE_EXHAUSTED. Must not know rings.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "base/result.h"
#include "client_lib/connection.h"
#include "client_lib/include/inferd/inferd.h"

struct inferd_error {
  inferd_status status;
  std::string message;
};

struct inferd_connection {
  std::unique_ptr<inferd::client_lib::Connection> impl;
};

namespace inferd::client_lib {

inline inferd_sequence* to_handle(Sequence* sequence) {
  return reinterpret_cast<inferd_sequence*>(sequence);
}
inline Sequence& from_handle(inferd_sequence* handle) {
  return *reinterpret_cast<Sequence*>(handle);
}
inline const Sequence& from_handle(const inferd_sequence* handle) {
  return *reinterpret_cast<const Sequence*>(handle);
}

// What is handed out when there is no memory left even for an error.
inferd_error* out_of_memory();
inferd_status report(const Error& error, inferd_error** out) noexcept;

// Runs `body`, which returns Result<void>, and turns what comes out into a status.
template <typename Body>
inferd_status guarded(inferd_error** out, Body&& body) noexcept {
  if (out != nullptr) *out = nullptr;
  try {
    const Result<void> result = body();
    return result.ok() ? INFERD_OK : report(result.error(), out);
  } catch (const std::bad_alloc&) {
    if (out != nullptr) *out = out_of_memory();
    return INFERD_RESOURCE_EXHAUSTED;
  } catch (const std::exception& e) {
    return report(Error(ErrorCode::kInternal, std::string("unexpected: ") + e.what()), out);
  }
}

inline Error invalid(const std::string& sentence) {
  return Error(ErrorCode::kInvalidArgument, sentence);
}

// A NULL handle is refused before anything is done with it.
inline Result<void> check_handle(const inferd_connection* connection) {
  if (connection != nullptr) return {};
  return invalid("the connection is NULL; give one that inferd_connect() opened");
}
inline Result<void> check_handle(const inferd_sequence* sequence) {
  if (sequence != nullptr) return {};
  return invalid("the sequence is NULL; give one that inferd_open() opened");
}
// And so is one of another process: for functions that need the connection's locks.
inline Result<void> check_usable(const inferd_connection* connection) {
  INFERD_TRY(check_handle(connection));
  return connection->impl->check_process();
}
inline Result<void> check_usable(const inferd_sequence* sequence) {
  INFERD_TRY(check_handle(sequence));
  return from_handle(sequence).connection().check_process();
}

// Reads a structure that the caller filled into `known`, which has the defaults: made for this
// interface, for an earlier one (at least `first_bytes` long), or for a later one whose further
// fields are all zero.
template <typename T>
Result<void> read_struct(const T* structure, size_t first_bytes, const char* name, T& known) {
  size_t bytes;
  std::memcpy(&bytes, structure, sizeof(bytes));
  // No structure will ever be this long: an uninitialised one is told apart from a later one.
  constexpr size_t kLongest = 4096;
  if (bytes < first_bytes || bytes > kLongest) {
    return invalid(std::string(name) + ".struct_bytes is not set; call " + name + "_init() first");
  }
  std::memcpy(&known, structure, std::min(bytes, sizeof(T)));
  const auto* at = reinterpret_cast<const unsigned char*>(structure);
  for (size_t i = sizeof(T); i < bytes; ++i) {
    if (at[i] != 0) {
      return Error(ErrorCode::kUnsupported, std::string(name) +
                                                " uses fields that this version of libinferd does "
                                                "not know; update the library");
    }
  }
  return {};
}

// What `init` puts into a structure of any size: nothing but its size.
template <typename T>
void prepare(T* structure, size_t struct_bytes) {
  std::memset(structure, 0, struct_bytes);
  std::memcpy(structure, &struct_bytes, sizeof(struct_bytes));
}

// The same for a structure that the library fills.
inline Result<void> check_output(const void* structure, size_t known_bytes, const char* name) {
  if (structure == nullptr) return invalid(std::string("the ") + name + " to fill is NULL");
  size_t bytes;
  std::memcpy(&bytes, structure, sizeof(bytes));
  if (bytes < known_bytes) return invalid(std::string(name) + ".struct_bytes is not set");
  return {};
}

template <typename T>
T* copy_out(const T* from, size_t count) {
  auto* copy = static_cast<T*>(std::malloc((count == 0 ? 1 : count) * sizeof(T)));
  if (copy == nullptr) throw std::bad_alloc();
  if (count > 0) std::memcpy(copy, from, count * sizeof(T));
  return copy;
}

}  // namespace inferd::client_lib
