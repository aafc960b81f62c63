// inferd client library, C++20 interface: a prompt and its answer as it comes. Part of inferd.hpp.
#ifndef INFERD_SEQUENCE_HPP
#define INFERD_SEQUENCE_HPP

#include <inferd/inferd.h>
#include <inferd/request.hpp>
#include <inferd/result.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

namespace inferd::client {

namespace detail {

struct CloseSequence {
  void operator()(inferd_sequence* sequence) const noexcept { inferd_close(sequence); }
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

}  // namespace inferd::client
#endif
