// ClientListener: who is let in, with what, and that everybody's end is noticed.
#include "daemon/client_listener.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <fstream>
#include <tuple>
#include <vector>

#include "base/units.h"
#include "tests/unit/daemon/loop_fixture.h"
#include "tests/unit/daemon/temp_dir.h"

namespace inferd::daemon {
namespace {

using testing::HasSubstr;

// Mappings of memfds in this process, the daemon's and the clients'.
size_t shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("/memfd:inferd") != std::string::npos ? 1 : 0;
  }
  return count;
}

// How an attempt to connect ended. Its descriptors are the client's: without them the session ends.
struct Answer {
  Result<ipc::Welcome> welcome = Error(ErrorCode::kInternal, "no answer came");
  std::vector<UniqueFd> fds;
  bool closed = false;
};

class ClientListenerTest : public testing::Test {
 protected:
  ClientListenerTest() : tables_(::memfd_create("tables", MFD_CLOEXEC)) {
    limits_.handshake_timeout_ms = 60'000;
  }

  void listen() {
    WelcomeFacts facts;
    ipc::ModelInfo model;
    model.name = "fake";
    model.vocabulary = kFakeVocabulary;
    model.context_tokens = 1024;
    facts.models = {model, {"second", "llama", "F32", "n", 5, 6, 7, -1, -1, true}};
    facts.text_tables_fd = tables_.get();
    facts.text_tables_bytes = 17;
    facts.running_max = 8;
    facts.cache_domains = std::move(CacheDomains::resolve(domains_)).value();
    auto socket = ipc::listen_at(dir_.path("s"), 64);
    ASSERT_TRUE(socket.ok()) << socket.error().message();
    listener_.emplace(io_, std::move(*socket), engine_.mailbox, engine_.clock, std::move(facts),
                      limits_);
    listener_->start();
  }
  // Lets both threads' work happen, in this one.
  void pump() {
    for (int round = 0; round < 5; ++round) {
      io_.restart();
      io_.poll();
      engine_.loop->turn(false);
    }
  }
  // The same, waiting for timers, until `done`.
  template <typename Done>
  void pump_until(const Done& done) {
    for (int round = 0; round < 10'000 && !done(); ++round) {
      io_.restart();
      io_.run_for(std::chrono::milliseconds(5));
      engine_.loop->turn(false);
    }
    EXPECT_TRUE(done());
  }
  UniqueFd connect() {
    auto socket = ipc::connect_to(dir_.path("s"), 1000);
    EXPECT_TRUE(socket.ok()) << socket.error().message();
    return socket ? std::move(*socket) : UniqueFd();
  }
  UniqueFd say_hello(const std::string& client_name = "", const std::string& model_name = "") {
    ipc::Hello hello;
    hello.client_name = client_name;
    hello.model_name = model_name;
    UniqueFd socket = connect();
    send(socket, ipc::encode_hello(hello));
    return socket;
  }
  void send(const UniqueFd& socket, const std::vector<std::byte>& bytes) {
    const auto sent = ipc::send_message(socket.get(), bytes);
    EXPECT_TRUE(sent && *sent == ipc::SocketStatus::kDone);
  }
  Answer receive(const UniqueFd& socket) {
    std::array<std::byte, ipc::kHandshakeBytesMax> buffer;
    auto message = ipc::receive_message(socket.get(), buffer, ipc::kMessageFdsMax, false);
    Answer answer;
    EXPECT_TRUE(message.ok()) << message.error().message();
    if (!message || message->status == ipc::SocketStatus::kWouldBlock) return answer;
    answer.closed = message->status == ipc::SocketStatus::kClosed;
    if (answer.closed) return answer;
    answer.welcome = ipc::decode_answer(std::span<const std::byte>(buffer).first(message->bytes));
    answer.fds = std::move(message->fds);
    return answer;
  }
  void expect_refusal(const UniqueFd& socket, ErrorCode code, const std::string& part) {
    const Answer answer = receive(socket);
    ASSERT_FALSE(answer.welcome.ok());
    EXPECT_EQ(answer.welcome.error().code(), code);
    EXPECT_THAT(answer.welcome.error().message(), HasSubstr(part));
    EXPECT_TRUE(receive(socket).closed);
  }
  size_t sessions() const { return engine_.loop->snapshot().sessions.size(); }

  TempDir dir_;
  LoopFixture engine_;
  boost::asio::io_context io_;
  UniqueFd tables_;
  Config::Limits limits_;
  std::vector<Config::CacheDomain> domains_;
  std::optional<ClientListener> listener_;
};

TEST_F(ClientListenerTest, ASharedCacheDomainIsForThoseWhoAreNamed) {
  Config::CacheDomain mine{"mine", {std::to_string(::getuid())}, {}};
  Config::CacheDomain group{"group", {}, {std::to_string(::getgid())}};
  Config::CacheDomain others{"others", {std::to_string(::getuid() + 1)}, {"4294967294"}};
  domains_ = {mine, group, others};
  listen();
  const auto ask = [&](const std::string& name) {
    ipc::Hello hello;
    hello.cache_domain = name;
    UniqueFd socket = connect();
    send(socket, ipc::encode_hello(hello));
    pump();
    return socket;
  };
  const UniqueFd none = ask("");
  const UniqueFd first = ask("mine");
  const UniqueFd second = ask("group");
  const EngineSnapshot snapshot = engine_.loop->snapshot();
  ASSERT_EQ(snapshot.sessions.size(), 3u);
  EXPECT_EQ(snapshot.sessions[0].facts.domain, CacheDomain());
  EXPECT_NE(snapshot.sessions[1].facts.domain, CacheDomain());
  EXPECT_NE(snapshot.sessions[1].facts.domain, CacheDomains::of_user(UserId(::getuid())));
  EXPECT_NE(snapshot.sessions[2].facts.domain, snapshot.sessions[1].facts.domain);
  expect_refusal(ask("others"), ErrorCode::kPermissionDenied, "may not use");
  expect_refusal(ask("unknown"), ErrorCode::kNotFound, "[[cache_domain]]");
}

TEST(CacheDomainNames, AreLookedUpAtStart) {
  const auto resolved = [](std::vector<std::string> users, std::vector<std::string> groups) {
    return CacheDomains::resolve({{"team", std::move(users), std::move(groups)}});
  };
  const auto domains = resolved({"root"}, {"7"});
  ASSERT_TRUE(domains.ok()) << domains.error().message();
  const std::vector<gid_t> seven = {9, 7};
  EXPECT_TRUE(domains->shared("team", UserId(0), {}).ok());
  EXPECT_TRUE(domains->shared("team", UserId(1), seven).ok());
  EXPECT_FALSE(domains->shared("team", UserId(1), std::span(seven).first(1)).ok());
  EXPECT_THAT(resolved({"nobody-of-that-name"}, {}).error().message(), HasSubstr("the user"));
  EXPECT_THAT(resolved({}, {"no-such-group"}).error().message(), HasSubstr("the group"));
}

TEST_F(ClientListenerTest, AHelloIsAnsweredWithAllThatASessionNeeds) {
  listen();
  const UniqueFd socket = say_hello("a\nname");
  pump();
  const Answer answer = receive(socket);
  ASSERT_TRUE(answer.welcome.ok()) << answer.welcome.error().message();
  EXPECT_EQ(answer.welcome->model.name, "fake");
  EXPECT_EQ(answer.welcome->text_tables_bytes, 17u);
  ASSERT_EQ(answer.fds.size(), size_t{ipc::kWelcomeDescriptors});
  const auto mode = [&](size_t i) { return ::fcntl(answer.fds[i].get(), F_GETFL) & O_ACCMODE; };
  EXPECT_EQ(mode(ipc::kFdClientRegion), O_RDWR);
  EXPECT_EQ(mode(ipc::kFdTokenRegion), O_RDONLY);

  const EngineSnapshot snapshot = engine_.loop->snapshot();
  ASSERT_EQ(snapshot.sessions.size(), 1u);
  const SessionFacts& facts = snapshot.sessions[0].facts;
  EXPECT_EQ(facts.id.value, answer.welcome->session_id);
  EXPECT_EQ(facts.user, UserId(::geteuid()));
  EXPECT_EQ(facts.pid, ::getpid());
  EXPECT_EQ(facts.client, "a?name");
}

TEST_F(ClientListenerTest, AClosedConnectionFreesItsSession) {
  listen();
  UniqueFd socket = say_hello();
  pump();
  EXPECT_EQ(listener_->connections(), 1u);
  EXPECT_EQ(sessions(), 1u);
  socket.reset();
  pump();
  EXPECT_EQ(listener_->connections(), 0u);
  EXPECT_EQ(sessions(), 0u);
}

TEST_F(ClientListenerTest, AModelIsFoundByItsNameAndAllAreListed) {
  listen();
  const UniqueFd first = say_hello(), second = say_hello("", "second");
  pump();
  const Answer by_default = receive(first), by_name = receive(second);
  ASSERT_TRUE(by_default.welcome.ok() && by_name.welcome.ok());
  EXPECT_EQ(by_default.welcome->model.name, "fake");
  EXPECT_EQ(by_name.welcome->model.name, "second");
  ASSERT_EQ(by_name.welcome->models.size(), 2u);
  EXPECT_EQ(by_name.welcome->models[0].name, "fake");
  EXPECT_TRUE(by_name.welcome->models[1].has_chat_template);
}

TEST_F(ClientListenerTest, WhatIsNoHelloIsRefusedWithASentence) {
  listen();
  const UniqueFd garbage = connect();
  send(garbage, std::vector<std::byte>(40, std::byte{7}));
  const UniqueFd long_message = connect();
  send(long_message, std::vector<std::byte>(ipc::kHandshakeBytesMax + 1));
  const UniqueFd other_model = say_hello("", "bigger\x1b[31m");
  pump();
  expect_refusal(garbage, ErrorCode::kProtocol, "");
  expect_refusal(long_message, ErrorCode::kProtocol, "");
  expect_refusal(other_model, ErrorCode::kNotFound,
                 "no model 'bigger?[31m'; it serves 'fake', 'second'");
  EXPECT_EQ(listener_->connections(), 0u);
  EXPECT_EQ(sessions(), 0u);
}

TEST_F(ClientListenerTest, BeyondTheLimitsClientsAreToldTheFigure) {
  limits_.connections = 3;
  limits_.connections_per_user = 2;
  listen();
  UniqueFd first = say_hello();
  const UniqueFd second = say_hello();
  // Its hello waits unread when it is refused, and the reason arrives all the same.
  const UniqueFd third = say_hello();
  pump();
  EXPECT_TRUE(receive(first).welcome.ok());
  EXPECT_TRUE(receive(second).welcome.ok());
  expect_refusal(third, ErrorCode::kResourceExhausted, "has 2 connections");
  limits_.connections = 2;
  limits_.connections_per_user = 10;
  listener_->set_limits(limits_);
  const UniqueFd fourth = say_hello();
  pump();
  expect_refusal(fourth, ErrorCode::kResourceExhausted, "has 2 clients");
  first.reset();
  pump();
  const UniqueFd fifth = say_hello();
  pump();
  EXPECT_TRUE(receive(fifth).welcome.ok());
}

TEST_F(ClientListenerTest, TheSharedMemoryOfOneUserIsLimitedAndTheRefusalNamesTheLimit) {
  const ipc::Geometry geometry = session_geometry(limits_.sequences_per_session, 8, 1024);
  ASSERT_EQ(geometry.ring_bytes() + geometry.arena_bytes,
            geometry.client_region_bytes() + geometry.token_region_bytes());
  const Bytes rings(geometry.ring_bytes());
  const Bytes arena(geometry.arena_bytes);
  limits_.user_ring_bytes = Bytes(2 * rings.value);
  limits_.user_arena_bytes = Bytes(0);
  listen();
  UniqueFd first = say_hello();
  const UniqueFd second = say_hello();
  const UniqueFd third = say_hello();
  pump();
  Answer first_answer = receive(first);
  EXPECT_TRUE(first_answer.welcome.ok());
  const Answer second_answer = receive(second);
  EXPECT_TRUE(second_answer.welcome.ok());
  expect_refusal(third, ErrorCode::kResourceExhausted,
                 format_bytes(Bytes(2 * rings.value)) + " of rings, another takes " +
                     format_bytes(rings) + ", and [limits] user_ring_bytes allows " +
                     format_bytes(limits_.user_ring_bytes));
  EXPECT_EQ(listener_->connections(), 2u);

  limits_.user_ring_bytes = Bytes(0);
  limits_.user_arena_bytes = Bytes(3 * arena.value - 1);
  listener_->set_limits(limits_);
  const UniqueFd fourth = say_hello();
  pump();
  expect_refusal(fourth, ErrorCode::kResourceExhausted, "[limits] user_arena_bytes allows");
  // What somebody leaves is free for the next, and a failed attempt takes nothing.
  for (int i = 0; i < 5; ++i) {
    first.reset();
    pump();
    EXPECT_EQ(sessions(), 1u);
    first = say_hello();
    pump();
    first_answer = receive(first);
    EXPECT_TRUE(first_answer.welcome.ok());
    EXPECT_EQ(sessions(), 2u);
  }
}

TEST_F(ClientListenerTest, ASilentClientIsDroppedAndATalkativeOneToo) {
  limits_.handshake_timeout_ms = 10;
  listen();
  const UniqueFd silent = connect();
  const UniqueFd talkative = say_hello();
  pump();
  const Answer welcomed = receive(talkative);
  EXPECT_TRUE(welcomed.welcome.ok());
  pump_until([&] { return listener_->connections() == 1; });
  EXPECT_TRUE(receive(silent).closed);
  EXPECT_EQ(sessions(), 1u) << "one that said hello stays";
  send(talkative, std::vector<std::byte>(1));
  pump();
  EXPECT_TRUE(receive(talkative).closed);
  EXPECT_EQ(sessions(), 0u);
}

TEST_F(ClientListenerTest, OnceShuttingDownItKeepsItsClientsAndTakesNoMore) {
  listen();
  const UniqueFd early = say_hello();
  pump();
  const Answer welcomed = receive(early);
  EXPECT_TRUE(welcomed.welcome.ok());
  listener_->refuse_new();
  const UniqueFd late = say_hello();
  pump();
  expect_refusal(late, ErrorCode::kUnavailable, "shutting down");
  EXPECT_EQ(sessions(), 1u);
  listener_->close();
  pump();
  EXPECT_TRUE(receive(early).closed);
  EXPECT_EQ(sessions(), 0u);
}

TEST_F(ClientListenerTest, ASessionThatTheEngineEndedIsClosed) {
  listen();
  const UniqueFd socket = say_hello();
  const UniqueFd neighbour = say_hello();
  pump();
  const Answer answer = receive(socket);
  ASSERT_TRUE(answer.welcome.ok());
  const Answer other = receive(neighbour);
  EXPECT_TRUE(other.welcome.ok());
  listener_->session_ended(SessionId(answer.welcome->session_id),
                           Error(ErrorCode::kTimedOut, "it did not read"));
  listener_->session_ended(SessionId(99), Error(ErrorCode::kTimedOut, "nobody"));
  pump();
  EXPECT_TRUE(receive(socket).closed);
  EXPECT_FALSE(receive(neighbour).closed);
  EXPECT_EQ(listener_->connections(), 1u);
}

TEST_F(ClientListenerTest, NoDescriptorStaysBehindWhateverBecomesOfAClient) {
  limits_.connections_per_user = 4;
  listen();
  const auto churn = [this] {
    std::vector<UniqueFd> sockets;
    for (int i = 0; i < 3; ++i) sockets.push_back(say_hello());
    sockets.push_back(connect());
    sockets.push_back(say_hello());
    sockets.push_back(say_hello("", "another"));
    send(sockets[3], std::vector<std::byte>(3));
    sockets.erase(sockets.begin());
    pump();
    sockets.clear();
    pump();
  };
  churn();
  const size_t before = open_descriptors();
  for (int round = 0; round < 20; ++round) churn();
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(listener_->connections(), 0u);
  EXPECT_EQ(sessions(), 0u);
}

// One round of both threads, and no more, is what the daemon needs to see a death and clear up.
TEST_F(ClientListenerTest, ADeadClientsPagesDescriptorsAndMemoryAreBackWithinOneStep) {
  listen();
  const UniqueFd neighbour = say_hello();
  pump();
  const Answer other = receive(neighbour);
  ASSERT_TRUE(other.welcome.ok());
  const auto footprint = [this] {
    return std::tuple(open_descriptors(), shared_mappings(), sessions(),
                      engine_.memory.pool().counts().free, engine_.scheduler.stats().running);
  };
  const auto before = footprint();
  // Dead while its prompt waits, while it is read (64 tokens a step), and while it is answered.
  for (const int steps : {0, 1, 3, 9}) {
    UniqueFd socket = say_hello();
    pump();
    Answer answer = receive(socket);
    ASSERT_TRUE(answer.welcome.ok());
    {
      ipc::RawClient client(answer.welcome->geometry, answer.fds);
      ipc::SubmitRecord record = ipc::good_submission(1, 300);
      record.max_tokens = 500;
      const std::vector<TokenId> prompt = prompt_of(300, static_cast<TokenId>(steps));
      std::memcpy(client.arena, prompt.data(), prompt.size() * sizeof(TokenId));
      client.put(&record, sizeof(record));
      if (client.waker.should_ring()) ipc::ring_doorbell(client.submission_bell.get());
      for (int i = 0; i < steps; ++i) engine_.loop->turn(false);
      EXPECT_NE(footprint(), before);
    }
    answer.fds.clear();
    socket.reset();
    const uint64_t turns = engine_.loop->counters().turns;
    io_.restart();
    io_.poll();
    engine_.loop->turn(false);
    ASSERT_EQ(engine_.loop->counters().turns, turns + 1);
    // What it computed may be found again by its user; that is nobody's page.
    engine_.loop->flush_cache(std::nullopt);
    EXPECT_EQ(footprint(), before) << "dead after " << steps << " steps";
  }
}

TEST_F(ClientListenerTest, OutOfDescriptorsItTriesAgainUntilThereAreSome) {
  listen();
  const UniqueFd socket = say_hello();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  // The next descriptor would be the one after the highest in use.
  const UniqueFd probe(::dup(socket.get()));
  const rlimit none{static_cast<rlim_t>(probe.get()), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  pump();
  EXPECT_EQ(listener_->connections(), 0u);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  pump_until([&] { return sessions() == 1; });
  EXPECT_TRUE(receive(socket).welcome.ok());
}

}  // namespace
}  // namespace inferd::daemon
