// Errors that a caller forwards or reports: Error (a code and a sentence) and Result<T>.
// Owner: base. Any thread; a value type. Must not know what the program does.
//
// The sentence says what is wrong and what to do about it. It is written for the person who typed
// the command, not for the person who wrote the code.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace inferd {

// What kind of thing went wrong. The numbers are part of the wire ABI and of the C ABI: never
// renumber, only add at the end.
enum class ErrorCode : int {
  kOk = 0,
  kInvalidArgument = 1,      // the caller asked for something that makes no sense
  kNotFound = 2,             // no such file, model, sequence, client
  kPermissionDenied = 3,     // the kernel or a quota of the administrator said no
  kResourceExhausted = 4,    // can never fit, or a limit is reached; the sentence names the figure
  kUnavailable = 5,          // daemon not running, shutting down, or connection lost: try again
  kDataCorrupt = 6,          // a file or a message does not have the form it must have
  kUnsupported = 7,          // well-formed, but outside of what this build can do
  kCancelled = 8,            // the caller, or an administrator, ended it
  kTimedOut = 9,             // a deadline passed
  kIo = 10,                  // the operating system reported an error; the sentence has strerror's text
  kInternal = 11,            // a bug of ours that was contained
  kProtocol = 12,            // the peer broke the protocol
  kVersionMismatch = 13,     // the peer speaks another version; the sentence says which
};

// "invalid argument", "not found", ... A static string.
std::string_view error_code_name(ErrorCode code) noexcept;

// A code and a sentence. Cheap to move. with_context("reading X") prefixes the sentence.
class [[nodiscard]] Error {
 public:
  Error(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {
    INFERD_CHECK(code != ErrorCode::kOk);
  }

  ErrorCode code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }

  // The same error, its sentence prefixed by "context: ".
  Error with_context(std::string_view context) const {
    return Error(code_, std::string(context) + ": " + message_);
  }

 private:
  ErrorCode code_;
  std::string message_;
};

// ErrorCode::kIo with "what: strerror(errno_value)".
Error errno_error(std::string_view what, int errno_value);

// Either a T or an Error. Reading the wrong one is a bug (INFERD_CHECK).
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}          // NOLINT implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}      // NOLINT implicit

  bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  T& value() & {
    INFERD_CHECK(ok());
    return std::get<0>(state_);
  }
  const T& value() const& {
    INFERD_CHECK(ok());
    return std::get<0>(state_);
  }
  T&& value() && {
    INFERD_CHECK(ok());
    return std::get<0>(std::move(state_));
  }
  const Error& error() const& {
    INFERD_CHECK(!ok());
    return std::get<1>(state_);
  }
  Error&& error() && {
    INFERD_CHECK(!ok());
    return std::get<1>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Error> state_;
};

// Success, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT implicit

  bool ok() const noexcept { return !error_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }
  const Error& error() const& {
    INFERD_CHECK(!ok());
    return *error_;
  }
  Error&& error() && {
    INFERD_CHECK(!ok());
    return std::move(*error_);
  }

 private:
  std::optional<Error> error_;
};

}  // namespace inferd

#define INFERD_CONCAT_INNER(a, b) a##b
#define INFERD_CONCAT(a, b) INFERD_CONCAT_INNER(a, b)

// Returns the Error of a Result<void> expression from the enclosing function.
#define INFERD_TRY(expression)                               \
  do {                                                       \
    if (auto inferd_result = (expression); !inferd_result) { \
      return std::move(inferd_result).error();               \
    }                                                        \
  } while (0)

// Declares `declaration` from the value of a Result<T> expression, or returns its Error.
#define INFERD_ASSIGN(declaration, expression)                                 \
  auto INFERD_CONCAT(inferd_result_, __LINE__) = (expression);                 \
  if (!INFERD_CONCAT(inferd_result_, __LINE__)) {                              \
    return std::move(INFERD_CONCAT(inferd_result_, __LINE__)).error();         \
  }                                                                            \
  declaration = std::move(INFERD_CONCAT(inferd_result_, __LINE__)).value()
