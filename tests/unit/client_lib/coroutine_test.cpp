// The coroutine form of the C++ wrapper, where the compiler has coroutines.
#include <gtest/gtest.h>

#ifdef __cpp_impl_coroutine
#include <inferd/coroutine.hpp>
#include <thread>

#include "waiting_fixture.h"

namespace inferd::test {
namespace {

class Coroutines : public testing::Test {
 protected:
  client::Sequence ask(char letter, int32_t count) {
    return test::ask(connection_, letter, count);
  }

  FakeServer server_{repeat};
  client::Connection connection_{options_for(server_)};
  client::Poller poller_{connection_};
};

client::Task read_into(client::Poller& poller, client::Sequence& sequence, std::string& text) {
  while (const auto event = co_await poller.next(sequence)) text += event->text;
}

TEST_F(Coroutines, ReadManySequencesInOneThread) {
  for (int round = 0; round < 10; ++round) {
    std::vector<client::Sequence> sequences;
    std::vector<std::string> texts(8);
    std::vector<client::Task> tasks;
    for (int i = 0; i < 8; ++i) sequences.push_back(ask(static_cast<char>('p' + i), 10 + i));
    for (size_t i = 0; i < 8; ++i) tasks.push_back(read_into(poller_, sequences[i], texts[i]));
    poller_.run();
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_TRUE(tasks[i].done());
      tasks[i].get();
      EXPECT_EQ(texts[i], std::string(10 + i, static_cast<char>('p' + i)));
    }
  }
}

TEST_F(Coroutines, ErrorsAreThrownOrReturnedByChoice) {
  auto failing = ask('e', 1);
  std::string text;
  client::Task task = read_into(poller_, failing, text);
  poller_.run();
  EXPECT_EQ(text, "e");
  EXPECT_THROW(task.get(), client::Error);

  auto other = ask('e', 0);
  inferd_status status = INFERD_OK;
  client::Task second = [](client::Poller& poller, client::Sequence& sequence,
                           inferd_status& found) -> client::Task {
    const auto next = co_await poller.try_next(sequence);
    if (!next) found = next.error().status();
  }(poller_, other, status);
  poller_.run();
  EXPECT_EQ(status, INFERD_RESOURCE_EXHAUSTED);
}

client::Task both(client::Poller& poller, client::Sequence& one, client::Sequence& other,
                  std::string& text) {
  client::Task first = read_into(poller, one, text);
  co_await first;
  co_await read_into(poller, other, text);
}

TEST_F(Coroutines, OneAwaitsAnother) {
  auto one = ask('a', 3), other = ask('b', 3), failing = ask('e', 2);
  std::string text, more;
  client::Task task = both(poller_, one, other, text);
  client::Task fails = both(poller_, failing, one, more);
  poller_.run();
  task.get();
  EXPECT_EQ(text, "aaabbb");
  EXPECT_EQ(more, "ee");
  EXPECT_THROW(fails.get(), client::Error);
}

TEST_F(Coroutines, ADestroyedOneWaitsNoLonger) {
  auto sequence = ask('h', 1);
  std::string text;
  {
    client::Task task = read_into(poller_, sequence, text);
    EXPECT_TRUE(poller_.waiting());
  }
  EXPECT_FALSE(poller_.waiting());
  poller_.run();
  poller_.dispatch();
}

TEST_F(Coroutines, AStopTokenEndsTheWait) {
  auto sequence = ask('h', 2);
  std::stop_source stop;
  const auto guard = sequence.cancel_on(stop.get_token());
  std::string text;
  client::Task task = read_into(poller_, sequence, text);
  std::thread stopper([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    stop.request_stop();
  });
  poller_.run();
  stopper.join();
  EXPECT_EQ(text, "hh");
  EXPECT_EQ(sequence.finish(), INFERD_FINISH_CANCELLED);
}

TEST_F(Coroutines, DeathEndsEveryWait) {
  auto one = ask('h', 1), other = ask('h', 1);
  std::string text;
  client::Task first = read_into(poller_, one, text), second = read_into(poller_, other, text);
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    server_.kill();
  });
  poller_.run();
  killer.join();
  EXPECT_THROW(first.get(), client::Error);
  EXPECT_THROW(second.get(), client::Error);
}

}  // namespace
}  // namespace inferd::test
#endif
