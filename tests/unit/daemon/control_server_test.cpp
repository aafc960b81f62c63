// ControlServer: bytes in, bytes out, and who is let in.
#include "daemon/control_server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "daemon/runtime_dir.h"
#include "tests/unit/daemon/control_fixture.h"
#include "tests/unit/daemon/temp_dir.h"

namespace inferd::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint32_t kConnectionsMax = 2;

std::string message(const std::string& method, const std::string& more = "") {
  return "{\"method\":\"" + method + "\"" + more + "}" + '\0';
}

class ControlServerTest : public testing::Test {
 protected:
  ControlServerTest() : fixture_(UserId(::geteuid())) {
    auto dir = RuntimeDir::open({temp_.path("run"), "user", ""});
    EXPECT_TRUE(dir.ok());
    dir_.emplace(std::move(*dir));
    auto socket = dir_->listen_control();
    EXPECT_TRUE(socket.ok());
    server_.emplace(fixture_.io, std::move(*socket), fixture_.service, kConnectionsMax);
    server_->start();
  }

  UniqueFd connect() {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, dir_->socket_path(kControlSocketName).c_str());
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return socket;
  }
  void send(const UniqueFd& socket, const std::string& bytes) {
    EXPECT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Everything that has come; `closed` tells whether the end has.
  std::string receive(const UniqueFd& socket, bool* closed = nullptr) {
    std::string all;
    char buffer[4096];
    ssize_t got;
    while ((got = ::recv(socket.get(), buffer, sizeof buffer, 0)) > 0) {
      all.append(buffer, static_cast<size_t>(got));
    }
    if (closed != nullptr) *closed = got == 0 || errno == ECONNRESET;
    return all;
  }
  // The answers' models, one for each reply of List, or the errors' names.
  std::vector<std::string> replies(const UniqueFd& socket) {
    std::vector<std::string> found;
    std::string all = receive(socket);
    for (size_t at = 0; at < all.size();) {
      const size_t end = all.find('\0', at);
      if (end == std::string::npos) break;
      const Json reply = Json::parse(all.substr(at, end - at));
      found.push_back(reply.contains("error") ? reply.at("error").get<std::string>()
                                              : reply.at("parameters").dump());
      at = end + 1;
    }
    return found;
  }
  bool is_closed(const UniqueFd& socket) {
    bool closed = false;
    receive(socket, &closed);
    return closed;
  }

  TempDir temp_;
  ControlFixture fixture_;
  std::optional<RuntimeDir> dir_;
  std::optional<ControlServer> server_;
};

TEST_F(ControlServerTest, CallsOfOneConnectionAreAnsweredInTheirOrder) {
  const UniqueFd socket = connect();
  // Those that need the engine thread come later, and nothing overtakes them.
  send(socket, message("org.inferd.Control.Verify") + message("org.inferd.Control.Explode") +
                   message("org.inferd.Control.Verify") + message("org.other.X"));
  for (int i = 0; i < 4; ++i) fixture_.pump();
  const std::string verified = R"({"ok":true,"violations":[]})";
  EXPECT_THAT(replies(socket), ElementsAre(verified, "org.varlink.service.MethodNotFound", verified,
                                           "org.varlink.service.InterfaceNotFound"));
}

TEST_F(ControlServerTest, ACallMayComeByteByByteAndAOnewayCallHasNoAnswer) {
  const UniqueFd socket = connect();
  const std::string bytes = message("org.inferd.Control.Drain", ",\"oneway\":true") +
                            message("org.inferd.Control.Explode");
  for (const char byte : bytes) {
    send(socket, std::string(1, byte));
    fixture_.pump();
  }
  EXPECT_EQ(fixture_.host.drains, 1);
  EXPECT_THAT(replies(socket), ElementsAre("org.varlink.service.MethodNotFound"));
}

TEST_F(ControlServerTest, AnEndlessMessageEndsItsConnectionOnly) {
  const UniqueFd endless = connect();
  const UniqueFd neighbour = connect();
  const std::string piece(16384, 'x');
  for (int i = 0; i < 6 && !is_closed(endless); ++i) {
    static_cast<void>(::send(endless.get(), piece.data(), piece.size(), MSG_NOSIGNAL));
    fixture_.pump();
  }
  EXPECT_TRUE(is_closed(endless));
  send(neighbour, message("org.inferd.Control.Explode"));
  fixture_.pump();
  EXPECT_THAT(replies(neighbour), ElementsAre("org.varlink.service.MethodNotFound"));
}

TEST_F(ControlServerTest, WhoDoesNotReadCanQueueNoWork) {
  const UniqueFd greedy = connect();
  const std::string call = message("org.varlink.service.GetInterfaceDescription",
                                   R"(,"parameters":{"interface":"org.inferd.Control"})");
  // It never reads; soon the server reads no more of it either, and its own socket is full.
  size_t sent = 0;
  for (int quiet = 0; quiet < 5;) {
    const ssize_t put = ::send(greedy.get(), call.data(), call.size(), MSG_NOSIGNAL);
    quiet = put < 0 ? quiet + 1 : 0;
    sent += put > 0 ? static_cast<size_t>(put) : 0;
    ASSERT_LT(sent, 64u << 20) << "the server reads on";
    if (put < 0) {
      ASSERT_EQ(errno, EAGAIN);
      fixture_.pump();
    }
  }
  const UniqueFd neighbour = connect();
  send(neighbour, message("org.inferd.Control.Explode"));
  fixture_.pump();
  EXPECT_THAT(replies(neighbour), ElementsAre("org.varlink.service.MethodNotFound"));
  // Once it reads, all that it asked is answered.
  size_t answers = 0;
  for (int i = 0; i < 100'000 && answers < sent / call.size(); ++i) {
    fixture_.io.restart();
    fixture_.io.poll();
    const std::string got = receive(greedy);
    answers += static_cast<size_t>(std::count(got.begin(), got.end(), '\0'));
  }
  EXPECT_EQ(answers, sent / call.size());
}

TEST_F(ControlServerTest, AnAdministratorGetsInBeyondTheLimitUpToAReserve) {
  std::vector<UniqueFd> sockets;
  for (uint32_t i = 0; i < kConnectionsMax + 16; ++i) sockets.push_back(connect());
  fixture_.pump();
  fixture_.pump();
  for (const UniqueFd& socket : sockets) EXPECT_FALSE(is_closed(socket));
  const UniqueFd late = connect();
  fixture_.pump();
  EXPECT_TRUE(is_closed(late));
  sockets.pop_back();
  fixture_.pump();
  const UniqueFd again = connect();
  fixture_.pump();
  EXPECT_FALSE(is_closed(again));
}

TEST_F(ControlServerTest, CallersThatLeaveEarlyLeaveNothingOpen) {
  const auto churn = [this] {
    {
      const UniqueFd early = connect();
      send(early, message("org.inferd.Control.Status"));
      const UniqueFd half = connect();
      send(half, "{\"method\"");
      fixture_.io.restart();
      fixture_.io.poll();
    }
    fixture_.pump();
  };
  churn();
  const size_t before = open_descriptors();
  for (int round = 0; round < 20; ++round) churn();
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(ControlServerTest, CloseEndsEveryConnection) {
  const UniqueFd socket = connect();
  fixture_.pump();
  server_->close();
  fixture_.pump();
  EXPECT_TRUE(is_closed(socket));
}

}  // namespace
}  // namespace inferd::daemon
