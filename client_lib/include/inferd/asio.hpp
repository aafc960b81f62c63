// inferd client library for programs on Boost.Asio (1.74 or newer): waiting for a sequence's events
// as asynchronous operations, with any completion token. Include it only if you use Boost.
//
// Where the compiler has coroutines:
//   inferd::client::AsyncReader reader(context, connection);
//   auto answer = connection.open(prompt);
//   while (auto event = co_await reader.async_next(answer, boost::asio::use_awaitable)) ...
//
// To cancel an answer: Sequence::cancel(), or Sequence::cancel_on() with a std::stop_token; the
// operation under way then gets the last event. Connecting and submitting are quick calls of their
// own (inferd_connect(), inferd_open() say when they block).
#ifndef INFERD_ASIO_HPP
#define INFERD_ASIO_HPP

#include <fcntl.h>

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/execution.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/system/error_code.hpp>
#include <cerrno>
#include <exception>
#include <inferd/inferd.hpp>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace inferd::client {
namespace detail {

inline Error wait_cancelled() {
  return Error(INFERD_CANCELLED, "the wait for an event was cancelled; its sequence goes on");
}

// What an operation reads of its sequence, as the arguments of its completion. read() returns
// nothing as long as it has to wait.
class ReadResult {
 public:
  using Arguments = std::tuple<Result<Sequence::Next>>;
  explicit ReadResult(Sequence& sequence) : sequence_(&sequence) {}
  std::optional<Arguments> read() {
    Result<Sequence::Next> found = sequence_->try_next(std::chrono::milliseconds(0));
    if (found && found->state == Sequence::State::kTimedOut) return std::nullopt;
    return Arguments(std::move(found));
  }
  static Arguments failed(const Error& error) { return Arguments(error); }

 private:
  Sequence* sequence_;
};

class ReadNext {
 public:
  using Arguments = std::tuple<std::exception_ptr, std::optional<Event>>;
  explicit ReadNext(Sequence& sequence) : reader_(sequence) {}
  std::optional<Arguments> read() {
    auto found = reader_.read();
    if (!found) return std::nullopt;
    Result<Sequence::Next>& result = std::get<0>(*found);
    if (!result) return failed(result.error());
    if (result->state == Sequence::State::kOver) return Arguments(nullptr, std::nullopt);
    return Arguments(nullptr, result->event);
  }
  static Arguments failed(const Error& error) {
    return Arguments(std::make_exception_ptr(error), std::nullopt);
  }

 private:
  ReadResult reader_;
};

class ReadAll {
 public:
  using Arguments = std::tuple<std::exception_ptr, std::string>;
  explicit ReadAll(Sequence& sequence) : reader_(sequence) {}
  std::optional<Arguments> read() {
    while (auto found = reader_.read()) {
      auto& [error, event] = *found;
      if (error || !event) return Arguments(error, std::move(text_));
      text_ += event->text;
    }
    return std::nullopt;
  }
  static Arguments failed(const Error& error) {
    return Arguments(std::make_exception_ptr(error), std::string());
  }

 private:
  ReadNext reader_;
  std::string text_;
};

// Keeps an executor's context from running out of work, for as long as it lives.
template <typename Executor>
auto track_work(const Executor& executor) {
  if constexpr (boost::asio::execution::is_executor<Executor>::value) {
    return boost::asio::prefer(executor, boost::asio::execution::outstanding_work.tracked);
  } else {
    return boost::asio::make_work_guard(executor);
  }
}

// An operation under way.
class Reading {
 public:
  virtual ~Reading() = default;
  // True once it is complete, and its handler on the way.
  virtual bool poll() = 0;
  virtual void fail(const Error& error) = 0;
};

template <typename Read, typename Handler, typename Executor>
class ReadingBy final : public Reading {
 public:
  ReadingBy(Sequence& sequence, Handler handler, const Executor& executor)
      : read_(sequence),
        handler_(std::move(handler)),
        executor_(boost::asio::get_associated_executor(handler_, executor)),
        work_(track_work(executor_)) {}

  bool poll() override {
    auto arguments = read_.read();
    if (arguments) complete(std::move(*arguments));
    return arguments.has_value();
  }
  void fail(const Error& error) override { complete(Read::failed(error)); }

 private:
  // Never from within the call that began the operation, as Asio wants it.
  void complete(typename Read::Arguments arguments) {
    boost::asio::post(executor_,
                      [handler = std::move(handler_), given = std::move(arguments)]() mutable {
                        std::apply(std::move(handler), std::move(given));
                      });
    work_.reset();
  }

  using HandlerExecutor = boost::asio::associated_executor_t<Handler, Executor>;
  Read read_;
  Handler handler_;
  HandlerExecutor executor_;
  std::optional<decltype(track_work(std::declval<HandlerExecutor>()))> work_;
};

// The waits of one connection. Everything but `closed` in its strand.
//
// Why no wake-up is lost (the library's rules are at inferd_connection_fd()):
// 1. An operation asks its sequence without waiting. That it got nothing has armed the descriptor.
// 2. It joins those that wait, and a wait for the descriptor is begun if none is under way. Asio
//    looks at the descriptor's state when it begins, so what has come since 1 is seen.
// 3. On readable, the descriptor is cleared first, and then every operation goes back to 1.
//
// The operations belong to the wait for the descriptor: when the program ends its io_context with
// some under way, they go with it, and the coroutines that they would have resumed too.
class AsioWaits : public std::enable_shared_from_this<AsioWaits> {
 public:
  using Strand = boost::asio::strand<boost::asio::any_io_executor>;

  AsioWaits(const boost::asio::any_io_executor& executor, Connection& connection)
      : executor_(executor), strand_(executor), connection_(&connection), descriptor_(executor) {
    // A copy: whoever closes the connection does not close this one.
    const int fd = ::fcntl(connection.fd(), F_DUPFD_CLOEXEC, 0);
    if (fd < 0) {
      throw Error(INFERD_IO, "cannot copy the connection's descriptor: " +
                                 std::generic_category().message(errno));
    }
    descriptor_.assign(fd);
  }

  const boost::asio::any_io_executor& executor() const { return executor_; }
  const Strand& strand() const { return strand_; }
  std::atomic<bool> closed{false};

  void begin(std::unique_ptr<Reading> reading) {
    if (closed) {
      reading->fail(wait_cancelled());
    } else if (!reading->poll()) {
      wait(std::move(reading));
    }
  }
  // Those under way fail.
  void cancel() { descriptor_.cancel(); }

 private:
  using Readings = std::vector<std::unique_ptr<Reading>>;

  void wait(std::unique_ptr<Reading> reading) {
    const bool begins = waiting_ == nullptr;
    std::unique_ptr<Readings> begun;
    if (begins) {
      begun = std::make_unique<Readings>();
      waiting_ = begun.get();
    }
    waiting_->push_back(std::move(reading));
    if (!begins) return;
    descriptor_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                           boost::asio::bind_executor(
                               strand_, [self = shared_from_this(), readings = std::move(begun)](
                                            const boost::system::error_code& error) {
                                 self->wake(*readings, error);
                               }));
  }

  void wake(Readings& readings, const boost::system::error_code& error) {
    waiting_ = nullptr;
    const bool failed = closed || error;
    if (!failed) connection_->clear();
    for (std::unique_ptr<Reading>& reading : readings) {
      if (failed) {
        reading->fail(wait_cancelled());
      } else {
        begin(std::move(reading));
      }
    }
  }

  boost::asio::any_io_executor executor_;
  Strand strand_;
  Connection* connection_;
  boost::asio::posix::stream_descriptor descriptor_;
  Readings* waiting_ = nullptr;  // of the wait under way
};

}  // namespace detail

// Reads the events of one connection's sequences in an Asio program; one is enough for all of them.
//
// Threads: any number may run the executor, and any may begin an operation; each sequence has at
// most one at a time. Connection and sequences must live until their operations are complete.
// Handlers run by their own executor, by default the reader's: with several threads, side by side.
class AsyncReader {
 public:
  // Throws Error if the process has no descriptor left.
  AsyncReader(boost::asio::any_io_executor executor, Connection& connection)
      : waits_(std::make_shared<detail::AsioWaits>(executor, connection)) {}
  // The same by an io_context or thread_pool.
  template <typename Context>
  requires std::is_convertible_v<Context&, boost::asio::execution_context&> AsyncReader(
      Context& context, Connection& connection)
      : AsyncReader(boost::asio::any_io_executor(context.get_executor()), connection) {}
  AsyncReader(const AsyncReader&) = delete;
  AsyncReader& operator=(const AsyncReader&) = delete;
  // Operations that are under way complete as after cancel().
  ~AsyncReader() {
    waits_->closed = true;
    cancel();
  }

  // By which handlers run that have none of their own.
  using executor_type = boost::asio::any_io_executor;
  // Where its operations begin.
  executor_type get_executor() const { return waits_->executor(); }

  // The next event, or nothing after the last one: void(std::exception_ptr, std::optional<Event>).
  // The exception is an Error; use_awaitable and use_future throw it. The event borrows from the
  // sequence until its next operation begins.
  template <typename CompletionToken>
  auto async_next(Sequence& sequence, CompletionToken&& token) {
    return begin<detail::ReadNext, void(std::exception_ptr, std::optional<Event>)>(
        sequence, std::forward<CompletionToken>(token));
  }
  // The same without exceptions: void(Result<Sequence::Next>); its state is kEvent or kOver.
  template <typename CompletionToken>
  auto async_try_next(Sequence& sequence, CompletionToken&& token) {
    return begin<detail::ReadResult, void(Result<Sequence::Next>)>(
        sequence, std::forward<CompletionToken>(token));
  }
  // The rest of the answer: void(std::exception_ptr, std::string).
  template <typename CompletionToken>
  auto async_read_all(Sequence& sequence, CompletionToken&& token) {
    return begin<detail::ReadAll, void(std::exception_ptr, std::string)>(
        sequence, std::forward<CompletionToken>(token));
  }

  // Operations that are under way complete with an Error of INFERD_CANCELLED. The sequences go on.
  void cancel() {
    boost::asio::dispatch(waits_->strand(), [waits = waits_] { waits->cancel(); });
  }

 private:
  template <typename Read, typename Signature, typename CompletionToken>
  auto begin(Sequence& sequence, CompletionToken&& token) {
    return boost::asio::async_initiate<CompletionToken, Signature>(
        [](auto handler, std::shared_ptr<detail::AsioWaits> waits, Sequence* read) {
          using Operation = detail::ReadingBy<Read, decltype(handler), executor_type>;
          auto operation =
              std::make_unique<Operation>(*read, std::move(handler), waits->executor());
          boost::asio::dispatch(waits->strand(), [waits, begun = std::move(operation)]() mutable {
            waits->begin(std::move(begun));
          });
        },
        token, waits_, &sequence);
  }

  std::shared_ptr<detail::AsioWaits> waits_;
};

}  // namespace inferd::client
#endif
