// inferd client library, C++20 interface: what functions named try_... return, and what the others
// throw. Part of inferd.hpp.
#ifndef INFERD_RESULT_HPP
#define INFERD_RESULT_HPP

#include <inferd/inferd.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace inferd::client {

// What went wrong: a status to decide by, and a sentence for people.
class Error : public std::runtime_error {
 public:
  // Of a status other than INFERD_OK.
  Error(inferd_status status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  // What kind of thing went wrong.
  inferd_status status() const noexcept { return status_; }

 private:
  inferd_status status_;
};

// A value or an Error. value() throws the Error if there is one.
template <typename T>
class [[nodiscard]] Result {
 public:
  // Of what was asked for.
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT implicit
  // Of why there is none.
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT implicit

  // Whether there is a value.
  explicit operator bool() const noexcept { return state_.index() == 0; }
  // The value; throws the Error if there is one.
  T& value() & {
    check();
    return std::get<0>(state_);
  }
  // The value; throws the Error if there is one.
  T&& value() && {
    check();
    return std::get<0>(std::move(state_));
  }
  // The value; throws the Error if there is one.
  T& operator*() & { return value(); }
  // The value; throws the Error if there is one.
  T* operator->() { return &value(); }
  // Only if there is no value.
  const Error& error() const { return std::get<1>(state_); }

 private:
  void check() const {
    if (state_.index() == 1) throw std::get<1>(state_);
  }
  std::variant<T, Error> state_;
};

// Success, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  // Of what went wrong.
  Result(Error error) : error_(std::move(error)) {}  // NOLINT implicit

  // Whether it worked.
  explicit operator bool() const noexcept { return !error_; }
  // Throws the Error if there is one.
  void value() const {
    if (error_) throw *error_;
  }
  // Only if it did not work.
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

namespace detail {

// Takes over an error object of the C interface.
inline Error take_error(inferd_status status, inferd_error* error) {
  const std::string message =
      error != nullptr ? inferd_error_message(error) : inferd_status_name(status);
  inferd_error_free(error);
  return Error(status, message);
}

}  // namespace detail

}  // namespace inferd::client
#endif
