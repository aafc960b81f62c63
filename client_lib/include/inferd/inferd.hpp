// inferd client library, C++20 interface: a thin, header-only layer over inferd.h.
//
// Two styles, by choice: functions named try_... return Result<T>; the others throw
// inferd::client::Error. Handles are move-only and close themselves. A Connection must outlive its
// Sequences. Threads and fork(): as inferd.h says.
//
// To wait without blocking a thread: asio.hpp (Boost.Asio) or coroutine.hpp (C++20 alone).
//
//   inferd::client::Connection connection;
//   auto answer = connection.open(inferd::client::Prompt::text("Once upon a time"));
//   for (const auto& event : answer) std::cout << event.text << std::flush;
#ifndef INFERD_INFERD_HPP
#define INFERD_INFERD_HPP

#include <inferd/inferd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

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

struct CloseConnection {
  void operator()(inferd_connection* connection) const noexcept { inferd_disconnect(connection); }
};
struct CloseSequence {
  void operator()(inferd_sequence* sequence) const noexcept { inferd_close(sequence); }
};
struct FreeMemory {
  void operator()(void* memory) const noexcept { inferd_free(memory); }
};

}  // namespace detail

// A prompt: text, chat messages as JSON, or token ids. Owns what it was given.
class Prompt {
 public:
  // flags: INFERD_TOKENIZE_*
  static Prompt text(std::string text, uint32_t flags = INFERD_TOKENIZE_BOS) {
    Prompt prompt;
    prompt.kind_ = Kind::kText;
    prompt.text_ = std::move(text);
    prompt.flags_ = flags;
    return prompt;
  }
  // As inferd_prompt.chat_json.
  static Prompt chat(std::string json) {
    Prompt prompt;
    prompt.kind_ = Kind::kChat;
    prompt.text_ = std::move(json);
    return prompt;
  }
  // Tokens, taken as they are.
  static Prompt ids(std::vector<int32_t> ids) {
    Prompt prompt;
    prompt.kind_ = Kind::kIds;
    prompt.ids_ = std::move(ids);
    return prompt;
  }

  // Borrows from this object.
  inferd_prompt c_prompt() const {
    static const int32_t no_ids = 0;  // an empty array of ids is still given
    inferd_prompt out;
    inferd_prompt_init(&out);
    switch (kind_) {
      case Kind::kText:
        out.text = text_.c_str();
        out.text_bytes = text_.size();
        out.text_flags = flags_;
        break;
      case Kind::kChat:
        out.chat_json = text_.c_str();
        out.chat_json_bytes = text_.size();
        break;
      case Kind::kIds:
        out.ids = ids_.empty() ? &no_ids : ids_.data();
        out.ids_count = ids_.size();
        break;
    }
    return out;
  }

 private:
  enum class Kind { kText, kChat, kIds };
  Prompt() = default;
  Kind kind_ = Kind::kText;
  std::string text_;
  std::vector<int32_t> ids_;
  uint32_t flags_ = 0;
};

// How to sample; the defaults are those of inferd_sampling_init().
struct Sampling {
  float temperature = 0;                      // 0: greedy
  uint32_t top_k = 0;                         // 0: off
  float top_p = 1;                            // 1: off
  float min_p = 0;                            // 0: off
  float repetition_penalty = 1;               // 1: off
  float presence_penalty = 0;                 // 0: off
  float frequency_penalty = 0;                // 0: off
  uint32_t penalty_last_n = 64;               // window of the penalties, in tokens
  uint64_t seed = 0;                          // equal seeds give equal tokens
  uint32_t branch = 0;                        // samples of one prompt: numbered, they draw apart
  std::vector<inferd_logit_bias> logit_bias;  // at most 256
  std::vector<std::string> stop;              // texts that end the answer; at most 16
  uint32_t max_tokens = INFERD_UNLIMITED_TOKENS;  // unlimited: up to the context's end
  bool logprobs = false;                          // report the log probability of each token
  uint32_t top_logprobs = 0;                      // and of so many alternatives, at most 20
  bool ignore_eos = false;                        // go on past the model's end
  inferd_priority priority = INFERD_PRIORITY_INTERACTIVE;  // how urgent it is
  int32_t nice = 0;                                        // within the priority, -20 (first) to 19
  std::chrono::milliseconds deadline{0};                   // to have started by; 0: none
  bool no_store = false;                                   // nothing from and into the prefix cache
};

namespace detail {

// A Sampling as the C interface takes it; borrows from it.
class CSampling {
 public:
  explicit CSampling(const Sampling& s) {
    stops_.reserve(s.stop.size());
    for (const std::string& stop : s.stop) stops_.push_back(stop.c_str());
    inferd_sampling_init(&sampling_);
    sampling_.temperature = s.temperature;
    sampling_.top_k = s.top_k;
    sampling_.top_p = s.top_p;
    sampling_.min_p = s.min_p;
    sampling_.repetition_penalty = s.repetition_penalty;
    sampling_.presence_penalty = s.presence_penalty;
    sampling_.frequency_penalty = s.frequency_penalty;
    sampling_.penalty_last_n = s.penalty_last_n;
    sampling_.seed = s.seed;
    sampling_.branch = s.branch;
    sampling_.logit_bias = s.logit_bias.data();
    sampling_.logit_bias_count = s.logit_bias.size();
    sampling_.stop = stops_.data();
    sampling_.stop_count = stops_.size();
    sampling_.max_tokens = s.max_tokens;
    sampling_.logprobs = s.logprobs ? 1 : 0;
    sampling_.top_logprobs = s.top_logprobs;
    sampling_.ignore_eos = s.ignore_eos ? 1 : 0;
    sampling_.priority = s.priority;
    sampling_.nice = s.nice;
    const auto longest = std::numeric_limits<uint32_t>::max();
    sampling_.deadline_ms =
        static_cast<uint32_t>(std::clamp<int64_t>(s.deadline.count(), 0, longest));
    sampling_.no_store = s.no_store ? 1 : 0;
  }
  CSampling(const CSampling&) = delete;
  CSampling& operator=(const CSampling&) = delete;

  const inferd_sampling* get() const { return &sampling_; }

 private:
  std::vector<const char*> stops_;
  inferd_sampling sampling_;
};

}  // namespace detail

// One event. Borrows from its sequence, until the next event is asked for.
struct Event {
  std::string_view text;                         // of whole characters; may be empty
  std::span<const int32_t> ids;                  // tokens of this event
  std::span<const inferd_logprob> logprobs;      // one per id, or empty
  std::span<const inferd_logprob> top_logprobs;  // top_logprobs_count per id, or empty
  size_t top_logprobs_count = 0;                 // alternatives of each id
  inferd_finish finish = INFERD_FINISH_NONE;     // another one in the last event

  // Alternatives of token `index` of this event, likeliest first.
  std::span<const inferd_logprob> alternatives(size_t index) const {
    return top_logprobs.empty()
               ? top_logprobs
               : top_logprobs.subspan(index * top_logprobs_count, top_logprobs_count);
  }
};

// What a sequence took, as inferd_usage.
struct Usage {
  uint32_t prompt_tokens = 0;      // of the prompt
  uint32_t cached_tokens = 0;      // of those, found in the cache
  uint32_t completion_tokens = 0;  // delivered
  double ttft_ms = 0;              // to the first token's arrival
  double itl_ms = 0;               // mean time between tokens
  // From the daemon, at the end.
  double queue_ms = 0;
  uint32_t computed_tokens = 0;  // those computed again included
  uint32_t preemptions = 0;      // times that it gave its memory back
};

// A running or ended sequence. One thread at a time may wait for its events; any may cancel it.
class Sequence {
 public:
  // Owns the handle.
  explicit Sequence(inferd_sequence* handle) : handle_(handle) {}

  // For functions of the C interface.
  inferd_sequence* c_handle() const noexcept { return handle_.get(); }

  // What next() found: an event, or why there is none.
  enum class State { kEvent, kTimedOut, kOver };
  // An event, if there is one.
  struct Next {
    State state = State::kOver;  // whether there is an event
    Event event;                 // if there is
  };

  // Waits up to `timeout` (negative: for ever; zero: does not block).
  Result<Next> try_next(std::chrono::milliseconds timeout = std::chrono::milliseconds(-1)) {
    inferd_event event;
    inferd_event_init(&event);
    inferd_error* error = nullptr;
    const auto bounded = std::min<int64_t>(timeout.count(), std::numeric_limits<int>::max());
    const int timeout_ms = static_cast<int>(std::max<int64_t>(bounded, -1));
    const inferd_status status = inferd_next(handle_.get(), timeout_ms, &event, &error);
    finish_ = event.finish != INFERD_FINISH_NONE ? event.finish : finish_;
    if (status == INFERD_OK) return Next{State::kEvent, view_of(event)};
    if (status == INFERD_TIMED_OUT && error == nullptr) return Next{State::kTimedOut, {}};
    if (status == INFERD_NOT_FOUND && error == nullptr) return Next{State::kOver, {}};
    return detail::take_error(status, error);
  }
  // The next event, or nothing after the last one. Throws Error.
  std::optional<Event> next() {
    Next found = try_next().value();
    if (found.state != State::kEvent) return std::nullopt;
    return found.event;
  }

  // Reads to the end. Throws Error.
  std::string read_all() {
    std::string text;
    while (const auto event = next()) text += event->text;
    return text;
  }

  // A second sequence that goes on from here, as inferd_sequence_fork(). This one goes on unharmed.
  Result<Sequence> try_fork(const Sampling& sampling = {},
                            const std::optional<Prompt>& more = std::nullopt) const {
    const detail::CSampling c_sampling(sampling);
    const inferd_prompt c_more = more ? more->c_prompt() : inferd_prompt{};
    inferd_sequence* handle = nullptr;
    inferd_error* error = nullptr;
    const inferd_status status = inferd_sequence_fork(handle_.get(), more ? &c_more : nullptr,
                                                      c_sampling.get(), &handle, &error);
    if (status != INFERD_OK) return detail::take_error(status, error);
    return Sequence(handle);
  }
  // As try_fork(), but throws Error.
  Sequence fork(const Sampling& sampling = {},
                const std::optional<Prompt>& more = std::nullopt) const {
    return std::move(try_fork(sampling, more)).value();
  }

  // Asks the daemon to stop it. Any thread.
  void cancel() noexcept { inferd_cancel(handle_.get()); }

  // Changes how urgent it is, as inferd_renice(). Blocks for the daemon's answer. Any thread.
  Result<void> try_renice(inferd_priority priority, int32_t nice) {
    inferd_error* error = nullptr;
    const inferd_status status = inferd_renice(handle_.get(), priority, nice, &error);
    if (status != INFERD_OK) return detail::take_error(status, error);
    return {};
  }
  // As try_renice(), but throws Error.
  void renice(inferd_priority priority, int32_t nice) { try_renice(priority, nice).value(); }

  // How it ended; INFERD_FINISH_NONE before its last event was read.
  inferd_finish finish() const noexcept { return finish_; }

  // Its figures so far; final after the last event. Throws Error. Any thread.
  Usage usage() const {
    inferd_usage usage;
    usage.struct_bytes = sizeof(usage);
    inferd_error* error = nullptr;
    const inferd_status status = inferd_get_usage(handle_.get(), &usage, &error);
    if (status != INFERD_OK) throw detail::take_error(status, error);
    return {usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens, usage.ttft_ms,
            usage.itl_ms,        usage.queue_ms,      usage.computed_tokens,   usage.preemptions};
  }

  // An input iterator over the events that are left: `for (const Event& event : sequence)`. Throws
  // Error.
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Event;
    using difference_type = std::ptrdiff_t;
    using pointer = const Event*;
    using reference = const Event&;

    Iterator() = default;
    explicit Iterator(Sequence* sequence) : sequence_(sequence) { ++*this; }
    const Event& operator*() const { return *event_; }
    const Event* operator->() const { return &*event_; }
    Iterator& operator++() {
      event_ = sequence_->next();
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) { return !it.event_; }

   private:
    Sequence* sequence_ = nullptr;
    std::optional<Event> event_;
  };
  // The events that are left.
  Iterator begin() { return Iterator(this); }
  // After the last one.
  std::default_sentinel_t end() const noexcept { return {}; }

  // Cancels the sequence once `stop` is requested, by any thread; its last event then says
  // INFERD_FINISH_CANCELLED. For as long as the guard lives, which must not outlive the sequence:
  //   const auto guard = sequence.cancel_on(stop);
  class Cancel {
   public:
    // Of that sequence.
    explicit Cancel(inferd_sequence* handle) : handle_(handle) {}
    // Cancels it.
    void operator()() const noexcept { inferd_cancel(handle_); }

   private:
    inferd_sequence* handle_;
  };
  // What cancel_on() returns.
  using CancelGuard = std::stop_callback<Cancel>;
  // See Cancel.
  [[nodiscard]] CancelGuard cancel_on(std::stop_token stop) {
    return CancelGuard(std::move(stop), Cancel(handle_.get()));
  }

  // The same range as begin() to end(), cancelled once `stop` is requested. Keep it alive while
  // iterating.
  class Cancellable {
   public:
    // See until().
    Cancellable(Sequence& sequence, std::stop_token stop)
        : sequence_(&sequence), on_stop_(std::move(stop), Cancel(sequence.c_handle())) {}
    Cancellable(const Cancellable&) = delete;
    Cancellable& operator=(const Cancellable&) = delete;
    // The events that are left.
    Iterator begin() { return sequence_->begin(); }
    // After the last one.
    std::default_sentinel_t end() const noexcept { return {}; }

   private:
    Sequence* sequence_;
    CancelGuard on_stop_;
  };
  // See Cancellable.
  Cancellable until(std::stop_token stop) { return Cancellable(*this, std::move(stop)); }

 private:
  static Event view_of(const inferd_event& event) {
    Event view;
    view.text = {event.text, event.text_bytes};
    view.ids = {event.ids, event.ids_count};
    if (event.logprobs != nullptr) view.logprobs = {event.logprobs, event.ids_count};
    view.top_logprobs_count = event.top_logprobs_count;
    if (event.top_logprobs != nullptr) {
      view.top_logprobs = {event.top_logprobs, event.ids_count * event.top_logprobs_count};
    }
    view.finish = event.finish;
    return view;
  }

  std::unique_ptr<inferd_sequence, detail::CloseSequence> handle_;
  inferd_finish finish_ = INFERD_FINISH_NONE;
};

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
