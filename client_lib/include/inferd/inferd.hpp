// inferd client library, C++20 interface: a thin, header-only layer over inferd.h.
//
// Two styles, by choice: functions named try_... return Result<T>; the others throw
// inferd::client::Error. Handles are move-only and close themselves. A Connection must outlive its
// Sequences. Threads and fork(): as inferd.h says.
//
// This header has connections and brings the others: result.hpp, request.hpp, sequence.hpp.
// To wait without blocking a thread: asio.hpp (Boost.Asio) or coroutine.hpp (C++20 alone).
//
//   inferd::client::Connection connection;
//   auto answer = connection.open(inferd::client::Prompt::text("Once upon a time"));
//   for (const auto& event : answer) std::cout << event.text << std::flush;
#ifndef INFERD_INFERD_HPP
#define INFERD_INFERD_HPP

#include <inferd/inferd.h>
#include <inferd/request.hpp>
#include <inferd/result.hpp>
#include <inferd/sequence.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace inferd::client {

namespace detail {

struct CloseConnection {
  void operator()(inferd_connection* connection) const noexcept { inferd_disconnect(connection); }
};
struct FreeMemory {
  void operator()(void* memory) const noexcept { inferd_free(memory); }
};

}  // namespace detail

// Where to connect, and as what.
struct ConnectOptions {
  std::string socket_path;               // empty: as inferd_connect_options.socket_path
  std::string model;                     // empty: the daemon's first
  std::string client_name;               // empty: the program's short name
  std::chrono::milliseconds timeout{0};  // of the handshake; 0: five seconds
  std::chrono::microseconds spin{0};     // before sleeping in a wait
  std::string cache_domain;              // empty: the user's own
};

// A session with the daemon, for one of its models. Any thread.
class Connection {
 public:
  // As try_connect(), but throws Error.
  explicit Connection(const ConnectOptions& options = {})
      : Connection(try_connect(options).value()) {}

  // Connects and shakes hands, as inferd_connect(). Blocks up to the timeout.
  static Result<Connection> try_connect(const ConnectOptions& options = {}) {
    inferd_connect_options c_options;
    inferd_connect_options_init(&c_options);
    const auto or_null = [](const std::string& s) { return s.empty() ? nullptr : s.c_str(); };
    c_options.socket_path = or_null(options.socket_path);
    c_options.model = or_null(options.model);
    c_options.client_name = or_null(options.client_name);
    c_options.cache_domain = or_null(options.cache_domain);
    c_options.timeout_ms = static_cast<uint32_t>(options.timeout.count());
    c_options.spin_us = static_cast<uint32_t>(options.spin.count());
    inferd_connection* handle = nullptr;
    inferd_error* error = nullptr;
    const inferd_status status = inferd_connect(&c_options, &handle, &error);
    if (status != INFERD_OK) return detail::take_error(status, error);
    return Connection(handle);
  }

  // Connects again as this one had been connected, as inferd_reconnect(): tries for up to
  // `patience` while nobody answers. This one stays, so that its sequences can be resumed.
  Result<Connection> try_reconnect(std::chrono::milliseconds patience) const {
    const auto longest = std::numeric_limits<uint32_t>::max();
    const auto patience_ms =
        static_cast<uint32_t>(std::clamp<int64_t>(patience.count(), 0, longest));
    inferd_connection* handle = nullptr;
    inferd_error* error = nullptr;
    const inferd_status status = inferd_reconnect(handle_.get(), patience_ms, &handle, &error);
    if (status != INFERD_OK) return detail::take_error(status, error);
    return Connection(handle);
  }
  // As try_reconnect(), but throws Error.
  Connection reconnect(std::chrono::milliseconds patience) const {
    return std::move(try_reconnect(patience)).value();
  }

  // For functions of the C interface.
  inferd_connection* c_handle() const noexcept { return handle_.get(); }

  // Submits a prompt, as inferd_open().
  Result<Sequence> try_open(const Prompt& prompt, const Sampling& sampling = {}) {
    const inferd_prompt c_prompt = prompt.c_prompt();
    const detail::CSampling c_sampling(sampling);
    inferd_sequence* handle = nullptr;
    inferd_error* error = nullptr;
    const inferd_status status =
        inferd_open(handle_.get(), &c_prompt, c_sampling.get(), &handle, &error);
    if (status != INFERD_OK) return detail::take_error(status, error);
    return Sequence(handle);
  }
  // As try_open(), but throws Error.
  Sequence open(const Prompt& prompt, const Sampling& sampling = {}) {
    return std::move(try_open(prompt, sampling)).value();
  }

  // `count` samples of one prompt, which is computed once: they draw by sampling.branch and the
  // numbers after it, as inferd_open_samples().
  Result<std::vector<Sequence>> try_open_samples(const Prompt& prompt, const Sampling& sampling,
                                                 size_t count) {
    const inferd_prompt c_prompt = prompt.c_prompt();
    const detail::CSampling c_sampling(sampling);
    std::vector<inferd_sequence*> handles(count);
    std::vector<Sequence> samples;
    samples.reserve(count);
    inferd_error* error = nullptr;
    const inferd_status status = inferd_open_samples(handle_.get(), &c_prompt, c_sampling.get(),
                                                     count, handles.data(), &error);
    if (status != INFERD_OK) return detail::take_error(status, error);
    for (inferd_sequence* handle : handles) samples.emplace_back(handle);
    return samples;
  }
  // As try_open_samples(), but throws Error.
  std::vector<Sequence> open_samples(const Prompt& prompt, const Sampling& sampling, size_t count) {
    return std::move(try_open_samples(prompt, sampling, count)).value();
  }

  // How likely `continuation` is after `prompt`, as inferd_score(): the events bring its tokens,
  // each with its log probability.
  Result<Sequence> try_score(const Prompt& prompt, const Prompt& continuation,
                             const Sampling& sampling = {}) {
    const inferd_prompt c_prompt = prompt.c_prompt();
    const inferd_prompt c_continuation = continuation.c_prompt();
    const detail::CSampling c_sampling(sampling);
    inferd_sequence* handle = nullptr;
    inferd_error* error = nullptr;
    const inferd_status status =
        inferd_score(handle_.get(), &c_prompt, &c_continuation, c_sampling.get(), &handle, &error);
    if (status != INFERD_OK) return detail::take_error(status, error);
    return Sequence(handle);
  }
  // As try_score(), but throws Error.
  Sequence score(const Prompt& prompt, const Prompt& continuation, const Sampling& sampling = {}) {
    return std::move(try_score(prompt, continuation, sampling)).value();
  }

  // The rest of a sequence of another connection that was lost with it, as inferd_resume().
  Result<Sequence> try_resume(Sequence& lost) {
    inferd_sequence* handle = nullptr;
    inferd_error* error = nullptr;
    const inferd_status status = inferd_resume(handle_.get(), lost.c_handle(), &handle, &error);
    if (status != INFERD_OK) return detail::take_error(status, error);
    return Sequence(handle);
  }
  // As try_resume(), but throws Error.
  Sequence resume(Sequence& lost) { return std::move(try_resume(lost)).value(); }

  // Pins what is cached of a prompt, as inferd_pin(); of how many tokens. Blocks for the answer.
  Result<uint32_t> try_pin(const Prompt& prompt) {
    const inferd_prompt c_prompt = prompt.c_prompt();
    uint32_t tokens = 0;
    inferd_error* error = nullptr;
    const inferd_status status = inferd_pin(handle_.get(), &c_prompt, &tokens, &error);
    if (status != INFERD_OK) return detail::take_error(status, error);
    return tokens;
  }
  // As try_pin(), but throws Error.
  uint32_t pin(const Prompt& prompt) { return try_pin(prompt).value(); }
  // Ends all pins of the user, as inferd_unpin(); of how many tokens. Blocks for the answer.
  Result<uint32_t> try_unpin() {
    uint32_t tokens = 0;
    inferd_error* error = nullptr;
    const inferd_status status = inferd_unpin(handle_.get(), &tokens, &error);
    if (status != INFERD_OK) return detail::take_error(status, error);
    return tokens;
  }
  // As try_unpin(), but throws Error.
  uint32_t unpin() { return try_unpin().value(); }

  // Its strings live as long as the connection.
  inferd_model_info model() const {
    inferd_model_info info;
    info.struct_bytes = sizeof(info);
    inferd_error* error = nullptr;
    const inferd_status status = inferd_get_model_info(handle_.get(), &info, &error);
    if (status != INFERD_OK) throw detail::take_error(status, error);
    return info;
  }

  // All models that the daemon offers, as inferd_get_model_at(); what ConnectOptions::model can
  // name. Their strings live as long as the connection.
  std::vector<inferd_model_info> models() const {
    std::vector<inferd_model_info> found;
    for (;;) {
      inferd_model_info info;
      info.struct_bytes = sizeof(info);
      inferd_error* error = nullptr;
      const inferd_status status =
          inferd_get_model_at(handle_.get(), found.size(), &info, &error);
      if (status == INFERD_NOT_FOUND && error == nullptr) return found;
      if (status != INFERD_OK) throw detail::take_error(status, error);
      found.push_back(info);
    }
  }

  // As inferd_tokenize(). Throws Error.
  std::vector<int32_t> tokenize(std::string_view text, uint32_t flags = 0) const {
    int32_t* ids = nullptr;
    size_t count = 0;
    inferd_error* error = nullptr;
    const inferd_status status =
        inferd_tokenize(handle_.get(), text.data(), text.size(), flags, &ids, &count, &error);
    return take_ids(status, ids, count, error);
  }
  // As inferd_render_chat(). Throws Error.
  std::vector<int32_t> render_chat(std::string_view json) const {
    int32_t* ids = nullptr;
    size_t count = 0;
    inferd_error* error = nullptr;
    const inferd_status status =
        inferd_render_chat(handle_.get(), json.data(), json.size(), &ids, &count, &error);
    return take_ids(status, ids, count, error);
  }
  // As inferd_detokenize(). Throws Error.
  std::string detokenize(std::span<const int32_t> ids, bool special = false) const {
    char* text = nullptr;
    size_t bytes = 0;
    inferd_error* error = nullptr;
    const inferd_status status = inferd_detokenize(handle_.get(), ids.data(), ids.size(),
                                                   special ? 1 : 0, &text, &bytes, &error);
    if (status != INFERD_OK) throw detail::take_error(status, error);
    const std::unique_ptr<char, detail::FreeMemory> owner(text);
    return std::string(text, bytes);
  }

  // For event loops, as inferd_connection_fd() and inferd_connection_clear().
  int fd() const noexcept { return inferd_connection_fd(handle_.get()); }
  // See fd().
  void clear() noexcept { inferd_connection_clear(handle_.get()); }

 private:
  explicit Connection(inferd_connection* handle) : handle_(handle) {}

  static std::vector<int32_t> take_ids(inferd_status status, int32_t* ids, size_t count,
                                       inferd_error* error) {
    if (status != INFERD_OK) throw detail::take_error(status, error);
    const std::unique_ptr<int32_t, detail::FreeMemory> owner(ids);
    return std::vector<int32_t>(ids, ids + count);
  }

  std::unique_ptr<inferd_connection, detail::CloseConnection> handle_;
};

}  // namespace inferd::client
#endif
