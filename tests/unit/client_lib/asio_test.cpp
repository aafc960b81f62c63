// The Asio form of the C++ wrapper.
#include <gtest/gtest.h>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_future.hpp>
#include <inferd/asio.hpp>
#include <thread>

#include "waiting_fixture.h"
#ifdef BOOST_ASIO_HAS_CO_AWAIT
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>
#endif

namespace inferd::test {
namespace {

namespace asio = boost::asio;

inferd_status status_of(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const client::Error& e) {
    return e.status();
  }
  return INFERD_OK;
}

// Reads by callbacks, one operation after the other.
struct Reader {
  client::AsyncReader& reader;
  client::Sequence sequence;
  std::string text = {};
  bool over = false;
  inferd_status failed = INFERD_OK;

  void begin() {
    reader.async_next(sequence, [this](std::exception_ptr error, std::optional<client::Event> e) {
      failed = status_of(error);
      over = error || !e;
      if (over) return;
      text += e->text;
      begin();
    });
  }
};

TEST(Asio, CallbacksReadManySequencesInOneContext) {
  FakeServer server(repeat);
  client::Connection connection(options_for(server));
  for (int round = 0; round < 10; ++round) {
    asio::io_context context;
    client::AsyncReader reader(context, connection);
    std::vector<std::unique_ptr<Reader>> readers;
    for (int i = 0; i < 8; ++i) {
      readers.emplace_back(
          new Reader{reader, ask(connection, static_cast<char>('a' + i % 4), 10 + i)});
      readers.back()->begin();
    }
    context.run_for(std::chrono::seconds(10));
    ASSERT_TRUE(context.stopped()) << "a wake-up was lost";
    for (int i = 0; i < 8; ++i) {
      EXPECT_TRUE(readers[static_cast<size_t>(i)]->over);
      EXPECT_EQ(readers[static_cast<size_t>(i)]->text,
                std::string(static_cast<size_t>(10 + i), static_cast<char>('a' + i % 4)));
    }
  }
}

TEST(Asio, AHandlerNeverRunsInsideTheCallThatBeganIt) {
  FakeServer server(repeat);
  client::Connection connection(options_for(server));
  asio::io_context context;
  client::AsyncReader reader(context, connection);
  auto sequence = ask(connection, 'a', 1);
  bool inside = false, ran = false;
  asio::post(context, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));  // its events are there
    inside = true;
    reader.async_next(sequence, [&](std::exception_ptr, std::optional<client::Event>) {
      EXPECT_FALSE(inside);
      ran = true;
    });
    inside = false;
  });
  context.run_for(std::chrono::seconds(10));
  EXPECT_TRUE(ran);
}

TEST(Asio, FuturesWorkOverAPoolOfThreads) {
  FakeServer server(repeat);
  client::Connection connection(options_for(server));
  asio::thread_pool pool(4);
  client::AsyncReader reader(pool, connection);
  for (int round = 0; round < 5; ++round) {
    std::vector<client::Sequence> sequences;
    for (int i = 0; i < 6; ++i)
      sequences.push_back(ask(connection, static_cast<char>('b' + i % 3), 12));
    std::vector<std::future<std::string>> answers;
    for (auto& sequence : sequences) {
      answers.push_back(reader.async_read_all(sequence, asio::use_future));
    }
    for (size_t i = 0; i < answers.size(); ++i) {
      ASSERT_EQ(answers[i].wait_for(std::chrono::seconds(10)), std::future_status::ready);
      EXPECT_EQ(answers[i].get(), std::string(12, static_cast<char>('b' + i % 3)));
    }
  }
  auto failing = ask(connection, 'e', 1);
  EXPECT_THROW(reader.async_read_all(failing, asio::use_future).get(), client::Error);
  pool.join();
}

TEST(Asio, ErrorsComeAsResultsByChoice) {
  FakeServer server(repeat);
  client::Connection connection(options_for(server));
  asio::io_context context;
  client::AsyncReader reader(context, connection);
  auto sequence = ask(connection, 'e', 0);
  bool ran = false;
  reader.async_try_next(sequence, [&](client::Result<client::Sequence::Next> found) {
    ran = true;
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().status(), INFERD_RESOURCE_EXHAUSTED);
    EXPECT_STREQ(found.error().what(), "too long");
  });
  context.run_for(std::chrono::seconds(10));
  EXPECT_TRUE(ran);
}

TEST(Asio, AStopTokenCancelsTheAnswer) {
  FakeServer server(repeat);
  client::Connection connection(options_for(server));
  asio::io_context context;
  client::AsyncReader reader(context, connection);
  Reader answer{reader, ask(connection, 'h', 3)};
  std::stop_source stop;
  const auto guard = answer.sequence.cancel_on(stop.get_token());
  answer.begin();
  asio::steady_timer timer(context, std::chrono::milliseconds(10));
  timer.async_wait([&](auto) { stop.request_stop(); });
  context.run_for(std::chrono::seconds(10));
  EXPECT_TRUE(answer.over);
  EXPECT_EQ(answer.text, "hhh");
  EXPECT_EQ(answer.sequence.finish(), INFERD_FINISH_CANCELLED);
}

TEST(Asio, CancellingTheWaitLeavesTheSequence) {
  FakeServer server(repeat);
  client::Connection connection(options_for(server));
  asio::io_context context;
  client::AsyncReader reader(context, connection);
  Reader answer{reader, ask(connection, 'h', 3)};
  answer.begin();
  asio::steady_timer timer(context, std::chrono::milliseconds(10));
  timer.async_wait([&](auto) { reader.cancel(); });
  context.run_for(std::chrono::seconds(10));
  EXPECT_EQ(answer.failed, INFERD_CANCELLED);
  EXPECT_EQ(server.cancels(), 0u);
  answer.sequence.cancel();
  context.restart();
  answer.begin();
  context.run_for(std::chrono::seconds(10));
  EXPECT_EQ(answer.sequence.finish(), INFERD_FINISH_CANCELLED);
}

TEST(Asio, DeathEndsEveryWaitAndTheContextRunsDry) {
  FakeServer server(repeat);
  client::Connection connection(options_for(server));
  asio::io_context context;
  client::AsyncReader reader(context, connection);
  Reader one{reader, ask(connection, 'h', 1)}, other{reader, ask(connection, 'h', 2)};
  one.begin();
  other.begin();
  asio::steady_timer timer(context, std::chrono::milliseconds(10));
  timer.async_wait([&](auto) { server.kill(); });
  context.run_for(std::chrono::seconds(10));
  EXPECT_TRUE(context.stopped());
  EXPECT_EQ(one.failed, INFERD_UNAVAILABLE);
  EXPECT_EQ(other.failed, INFERD_UNAVAILABLE);
}

TEST(Asio, HandlersRunByTheirOwnExecutorAndAReadersEndCompletesThem) {
  FakeServer server(repeat);
  client::Connection connection(options_for(server));
  asio::io_context waits, handlers;
  auto sequence = ask(connection, 'h', 0);
  inferd_status status = INFERD_OK;
  auto reader = std::make_unique<client::AsyncReader>(waits, connection);
  reader->async_next(sequence, asio::bind_executor(handlers, [&](std::exception_ptr error, auto) {
                       status = status_of(error);
                     }));
  waits.run_for(std::chrono::milliseconds(5));
  reader.reset();
  waits.run_for(std::chrono::seconds(10));
  EXPECT_TRUE(waits.stopped());
  EXPECT_EQ(status, INFERD_OK) << "it ran in the wrong place";
  handlers.run_for(std::chrono::seconds(10));
  EXPECT_EQ(status, INFERD_CANCELLED);
}

#ifdef BOOST_ASIO_HAS_CO_AWAIT
asio::awaitable<void> read_into(client::AsyncReader& reader, client::Sequence& sequence,
                                std::string& text) {
  while (const auto event = co_await reader.async_next(sequence, asio::use_awaitable)) {
    text += event->text;
  }
}

TEST(Asio, CoroutinesReadSideBySide) {
  FakeServer server(repeat);
  client::Connection connection(options_for(server));
  asio::io_context context;
  client::AsyncReader reader(context, connection);
  std::vector<client::Sequence> sequences;
  std::vector<std::string> texts(6);
  for (int i = 0; i < 6; ++i)
    sequences.push_back(ask(connection, static_cast<char>('a' + i % 3), 20));
  for (size_t i = 0; i < 6; ++i) {
    asio::co_spawn(context, read_into(reader, sequences[i], texts[i]), asio::detached);
  }
  context.run_for(std::chrono::seconds(10));
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(texts[i], std::string(20, static_cast<char>('a' + i % 3)));
  }
}

TEST(Asio, ACoroutineGetsErrorsAsExceptions) {
  FakeServer server(repeat);
  client::Connection connection(options_for(server));
  asio::io_context context;
  client::AsyncReader reader(context, connection);
  auto sequence = ask(connection, 'e', 1);
  std::string text;
  inferd_status status = INFERD_OK;
  asio::co_spawn(context, read_into(reader, sequence, text),
                 [&](std::exception_ptr error) { status = status_of(error); });
  context.run_for(std::chrono::seconds(10));
  EXPECT_EQ(text, "e");
  EXPECT_EQ(status, INFERD_RESOURCE_EXHAUSTED);
}

// Owns everything that it uses, and is destroyed in the middle of a wait.
asio::awaitable<void> own_everything(client::Connection& connection, std::shared_ptr<int> alive) {
  auto executor = co_await asio::this_coro::executor;
  client::AsyncReader reader(executor, connection);
  auto sequence = ask(connection, 'h', 2);
  while (co_await reader.async_next(sequence, asio::use_awaitable)) *alive += 1;
}

TEST(Asio, AContextThatEndsDestroysTheCoroutinesThatWait) {
  FakeServer server(repeat);
  client::Connection connection(options_for(server));
  auto alive = std::make_shared<int>(0);
  {
    asio::io_context context;
    asio::co_spawn(context, own_everything(connection, alive), asio::detached);
    context.run_for(std::chrono::milliseconds(30));
    EXPECT_EQ(alive.use_count(), 2);
  }
  EXPECT_EQ(alive.use_count(), 1);
  EXPECT_GT(*alive, 0);
}
#endif

}  // namespace
}  // namespace inferd::test
