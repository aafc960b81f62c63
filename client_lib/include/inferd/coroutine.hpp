// inferd client library for programs that want C++20 coroutines and no event-loop library: many
// answers side by side in one thread. (With Boost.Asio: asio.hpp.)
//
//   inferd::client::Task print(inferd::client::Poller& poller, inferd::client::Sequence& answer) {
//     while (const auto event = co_await poller.next(answer)) std::cout << event->text;
//   }
//   ...
//   inferd::client::Task first = print(poller, one), second = print(poller, other);
//   poller.run();
//   first.get();  // throws what the coroutine threw
//
// In an event loop of your own: watch poller.fd() for reading, and call poller.dispatch().
#ifndef INFERD_COROUTINE_HPP
#define INFERD_COROUTINE_HPP

#include <poll.h>

#include <cerrno>
#include <coroutine>
#include <exception>
#include <inferd/inferd.hpp>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

namespace inferd::client {

// Resumes coroutines when events have come for their sequences, all of one connection.
// Threads: one. Must outlive the coroutines that wait; connection and sequences must too.
class Poller {
 public:
  // Watches the connection from now on.
  explicit Poller(Connection& connection) : connection_(&connection) { connection.fd(); }
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

 private:
  class Wait {
   public:
    Wait(Poller& poller, Sequence& sequence) : poller_(&poller), sequence_(&sequence) {}
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;
    // A coroutine that is destroyed waits no longer.
    ~Wait() {
      std::erase(poller_->waiting_, this);
      std::erase(poller_->ready_, this);
    }

    bool await_ready() {
      found_.emplace(sequence_->try_next(std::chrono::milliseconds(0)));
      return !*found_ || (*found_)->state != Sequence::State::kTimedOut;
    }
    void await_suspend(std::coroutine_handle<> coroutine) {
      coroutine_ = coroutine;
      poller_->waiting_.push_back(this);
    }

   protected:
    friend class Poller;
    Poller* poller_;
    Sequence* sequence_;
    std::coroutine_handle<> coroutine_;
    std::optional<Result<Sequence::Next>> found_;
  };
  struct WaitNext : Wait {
    using Wait::Wait;
    std::optional<Event> await_resume() {
      const Sequence::Next& next = this->found_->value();
      return next.state == Sequence::State::kEvent ? std::optional(next.event) : std::nullopt;
    }
  };
  struct WaitResult : Wait {
    using Wait::Wait;
    Result<Sequence::Next> await_resume() { return std::move(*this->found_); }
  };

 public:
  // co_await gives the next event, or nothing after the last one, and throws Error. The event
  // borrows from the sequence until its next one is asked for. One coroutine at a time may wait for
  // a sequence.
  WaitNext next(Sequence& sequence) { return {*this, sequence}; }
  // The same without exceptions: Result<Sequence::Next>, with state kEvent or kOver.
  WaitResult try_next(Sequence& sequence) { return {*this, sequence}; }

  // Polls readable when dispatch() may have something to do. The connection's; do not close it.
  int fd() const noexcept { return connection_->fd(); }
  // Whether a coroutine waits.
  bool waiting() const noexcept { return !waiting_.empty(); }

  // Resumes every coroutine for whose sequence something has come. Does not block, unless they do.
  void dispatch() {
    connection_->clear();
    for (size_t i = 0; i < waiting_.size();) {
      if (waiting_[i]->await_ready()) {
        ready_.push_back(waiting_[i]);
        waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
    while (!ready_.empty()) {
      const std::coroutine_handle<> coroutine = ready_.front()->coroutine_;
      ready_.erase(ready_.begin());
      coroutine.resume();
    }
  }

  // Blocks, dispatching, until no coroutine waits.
  void run() {
    while (waiting()) {
      pollfd poller = {fd(), POLLIN, 0};
      if (::poll(&poller, 1, -1) < 0 && errno != EINTR) {
        throw Error(INFERD_IO, "cannot wait for the connection's descriptor: " +
                                   std::generic_category().message(errno));
      }
      dispatch();
    }
  }

 private:
  Connection* connection_;
  std::vector<Wait*> waiting_;
  std::vector<Wait*> ready_;  // their events have come; about to be resumed
};

// A coroutine without a value that starts at once. Destroying the Task destroys the coroutine,
// wherever it is. Another coroutine may co_await it; one at a time.
class [[nodiscard]] Task {
 public:
  struct promise_type {
    Task get_return_object() {
      return Task(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_never initial_suspend() noexcept { return {}; }
    auto final_suspend() noexcept {
      struct GoOn {
        bool await_ready() noexcept { return false; }
        std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> ended) noexcept {
          const std::coroutine_handle<> next = ended.promise().continuation;
          return next ? next : std::noop_coroutine();
        }
        void await_resume() noexcept {}
      };
      return GoOn{};
    }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { exception = std::current_exception(); }

    std::exception_ptr exception;
    std::coroutine_handle<> continuation;
  };

  // The other one is empty afterwards.
  Task(Task&& other) noexcept : coroutine_(std::exchange(other.coroutine_, {})) {}
  // The two are exchanged.
  Task& operator=(Task&& other) noexcept {
    std::swap(coroutine_, other.coroutine_);
    return *this;
  }
  ~Task() {
    if (coroutine_) coroutine_.destroy();
  }

  // Whether it has come to its end.
  bool done() const noexcept { return !coroutine_ || coroutine_.done(); }
  // Throws what the coroutine threw, if it is done; else does nothing.
  void get() const {
    if (coroutine_ && coroutine_.done() && coroutine_.promise().exception) {
      std::rethrow_exception(coroutine_.promise().exception);
    }
  }

  // Waits for its end, and throws what it threw.
  auto operator co_await() const noexcept {
    struct Join {
      const Task* task;
      bool await_ready() const noexcept { return task->done(); }
      void await_suspend(std::coroutine_handle<> waiting) const noexcept {
        task->coroutine_.promise().continuation = waiting;
      }
      void await_resume() const { task->get(); }
    };
    return Join{this};
  }

 private:
  explicit Task(std::coroutine_handle<promise_type> coroutine) : coroutine_(coroutine) {}

  std::coroutine_handle<promise_type> coroutine_;
};

}  // namespace inferd::client
#endif
