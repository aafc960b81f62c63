// What a process may do around the library: fork, have its daemon die under it without a SIGPIPE,
// and use any thread for anything.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "client_lib/include/inferd/inferd.h"
#include "fake_server.h"
#include "ipc/socket.h"
#include "library_fixture.h"

namespace inferd::test {
namespace {

// The exit code of a child process that runs `body`; -1 if it did not end by itself in a minute.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a lock of the parent's that nobody will release
    _exit(body());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

inferd_status status_of(const std::function<inferd_status(inferd_error**)>& call) {
  inferd_error* error = nullptr;
  const inferd_status status = call(&error);
  const bool clear =
      status == INFERD_OK ||
      std::string(inferd_error_message(error)).find("another process") != std::string::npos;
  inferd_error_free(error);
  return clear ? status : INFERD_INTERNAL;
}

// 0 if every function tells the child what it did wrong, else the number of the one that did not.
int use_what_is_the_parents(inferd_connection* connection, inferd_sequence* sequence) {
  inferd_prompt prompt;
  inferd_prompt_init(&prompt);
  prompt.text = "x";
  prompt.text_bytes = 1;
  inferd_sequence* other = nullptr;
  inferd_connection* again = nullptr;
  inferd_event event;
  inferd_event_init(&event);
  inferd_usage usage = {};
  usage.struct_bytes = sizeof(usage);
  const std::function<inferd_status(inferd_error**)> calls[] = {
      [&](inferd_error** e) { return inferd_open(connection, &prompt, nullptr, &other, e); },
      [&](inferd_error** e) { return inferd_sequence_fork(sequence, nullptr, nullptr, &other, e); },
      [&](inferd_error** e) {
        return inferd_open_samples(connection, &prompt, nullptr, 1, &other, e);
      },
      [&](inferd_error** e) {
        return inferd_score(connection, &prompt, &prompt, nullptr, &other, e);
      },
      [&](inferd_error** e) { return inferd_resume(connection, sequence, &other, e); },
      [&](inferd_error** e) { return inferd_renice(sequence, INFERD_PRIORITY_IDLE, 0, e); },
      [&](inferd_error** e) { return inferd_pin(connection, &prompt, nullptr, e); },
      [&](inferd_error** e) { return inferd_unpin(connection, nullptr, e); },
      [&](inferd_error** e) { return inferd_next(sequence, 0, &event, e); },
      [&](inferd_error** e) { return inferd_get_usage(sequence, &usage, e); },
      [&](inferd_error** e) { return inferd_reconnect(connection, 0, &again, e); },
  };
  int number = 1;
  for (const auto& call : calls) {
    if (status_of(call) != INFERD_INVALID_ARGUMENT) return number;
    ++number;
  }
  if (inferd_connection_fd(connection) != -1) return number;
  inferd_connection_clear(connection);
  inferd_cancel(sequence);
  // What only reads works.
  char* text = nullptr;
  const int32_t id = kHello;
  if (inferd_detokenize(connection, &id, 1, 0, &text, nullptr, nullptr) != INFERD_OK) return 99;
  inferd_free(text);
  inferd_close(sequence);
  inferd_disconnect(connection);
  return 0;
}

TEST(Process, AChildIsToldAndItsParentsSessionGoesOn) {
  FakeServer server(Script{.ids = {kHello, kWorld}, .hold = true});
  Client client(server);
  auto sequence = client.ask({1});
  inferd_event event;
  inferd_event_init(&event);
  ASSERT_EQ(inferd_next(sequence.get(), 10'000, &event, nullptr), INFERD_OK);
  // Other threads use the connection all the while, so that its lock is often held at the fork.
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) {
      inferd_usage usage = {};
      usage.struct_bytes = sizeof(usage);
      inferd_get_usage(sequence.get(), &usage, nullptr);
      client.ask({2});
    }
  });
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(in_child([&] { return use_what_is_the_parents(client.get(), sequence.get()); }), 0);
  }
  stop = true;
  busy.join();
  EXPECT_EQ(server.sessions(), 1u);
  inferd_cancel(sequence.get());
  EXPECT_EQ(read_all(sequence.get()).finish, INFERD_FINISH_CANCELLED);
}

TEST(Process, AChildConnectsForItself) {
  FakeServer server(Script{.ids = {kHello, kWorld}});
  Client client(server);
  EXPECT_EQ(in_child([&] {
              Client own(server);
              return read_all(own.ask({1}).get()).text == "Hello world" ? 0 : 1;
            }),
            0);
  EXPECT_EQ(read_all(client.ask({1}).get()).text, "Hello world");
}

std::atomic<int> pipes_broken{0};

// Counts them instead of dying of them.
class CountSigpipe {
 public:
  CountSigpipe() {
    pipes_broken = 0;
    struct sigaction action = {};
    action.sa_handler = [](int) { ++pipes_broken; };
    sigaction(SIGPIPE, &action, &before_);
  }
  ~CountSigpipe() { sigaction(SIGPIPE, &before_, nullptr); }

 private:
  struct sigaction before_ = {};
};

TEST(Process, NothingRaisesSigpipeWhenTheDaemonIsGone) {
  const CountSigpipe counting;
  for (int round = 0; round < 20; ++round) {
    auto server = std::make_unique<FakeServer>(Script{.ids = {kHello}, .hold = true});
    Client client(*server);
    std::vector<SequencePtr> sequences;
    for (int i = 0; i < 4; ++i) sequences.push_back(client.ask({1}));
    std::thread killer([&] { server->kill(); });
    for (int i = 0; i < 50; ++i) {
      std::string text;
      client.try_ask({1}, &text);
      inferd_cancel(sequences[static_cast<size_t>(i) % 4].get());
      inferd_renice(sequences[static_cast<size_t>(i) % 4].get(), INFERD_PRIORITY_IDLE, 1, nullptr);
    }
    killer.join();
    for (const SequencePtr& sequence : sequences) read_all(sequence.get());
    inferd_connection* again = nullptr;
    EXPECT_EQ(inferd_reconnect(client.get(), 0, &again, nullptr), INFERD_UNAVAILABLE);
  }
  EXPECT_EQ(pipes_broken, 0);
}

TEST(Process, NothingRaisesSigpipeWhenTheDaemonHangsUpInTheHandshake) {
  const CountSigpipe counting;
  const std::string path = "/tmp/inferd-hang-up-" + std::to_string(getpid()) + ".sock";
  const UniqueFd listener = std::move(ipc::listen_at(path, 16)).value();
  std::atomic<bool> stop{false};
  std::thread rude([&] {
    while (true) {
      const UniqueFd accepted(accept(listener.get(), nullptr, nullptr));
      if (stop) return;
    }
  });
  for (int i = 0; i < 200; ++i) {
    std::string text;
    EXPECT_EQ(Client::try_connect(path, 5000, &text), INFERD_UNAVAILABLE) << text;
  }
  stop = true;
  std::string text;
  Client::try_connect(path, 1000, &text);
  rude.join();
  unlink(path.c_str());
  EXPECT_EQ(pipes_broken, 0);
}

TEST(Threads, OneSubmitsAnotherReadsAThirdCancels) {
  FakeServer server([](const ipc::Submission& s) {
    return Script{.ids = std::vector<TokenId>(20, s.prompt[0]), .hold = s.prompt[1] == 1};
  });
  Client client(server);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int32_t letter = 'a'; letter < 'i'; ++letter) {
    threads.emplace_back([&, letter] {
      for (int32_t i = 0; i < 10; ++i) {
        const bool cancelled = i % 2 == 1;
        SequencePtr sequence;
        std::thread([&] { sequence = client.ask({letter, i % 2}); }).join();
        std::thread canceller([&] {
          if (cancelled) inferd_cancel(sequence.get());
        });
        const Answer answer = read_all(sequence.get());
        canceller.join();
        const std::string whole(20, static_cast<char>(letter));
        const inferd_finish finish = cancelled ? INFERD_FINISH_CANCELLED : INFERD_FINISH_STOP;
        const bool text_right = cancelled ? whole.starts_with(answer.text) : answer.text == whole;
        right += text_right && answer.finish == finish ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 80);
}

}  // namespace
}  // namespace inferd::test
