#include "tools/inferctl/control_client.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/unique_fd.h"

namespace inferd::inferctl {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

// A socket in a folder of its own, on which one call is answered with fixed bytes, some at a time.
class OneReplyServer {
 public:
  OneReplyServer(std::string reply, size_t piece_bytes) : folder_("/tmp/inferctl-test-XXXXXX") {
    EXPECT_NE(::mkdtemp(folder_.data()), nullptr);
    listener_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, path().c_str());
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_.get(), 1), 0);
    thread_ = std::thread([this, reply, piece_bytes] {
      const UniqueFd peer(::accept(listener_.get(), nullptr, nullptr));
      char c = 1;
      while (::read(peer.get(), &c, 1) == 1 && c != '\0') call_ += c;
      for (size_t at = 0; at < reply.size(); at += piece_bytes) {
        const size_t count = std::min(piece_bytes, reply.size() - at);
        if (::send(peer.get(), reply.data() + at, count, MSG_NOSIGNAL) < 0) break;
      }
    });
  }
  ~OneReplyServer() {
    if (thread_.joinable()) thread_.join();
    ::unlink(path().c_str());
    ::rmdir(folder_.c_str());
  }
  std::string path() const { return folder_ + "/c"; }
  // What was asked; ends the server.
  std::string call() {
    thread_.join();
    return call_;
  }

 private:
  std::string folder_;
  UniqueFd listener_;
  std::thread thread_;
  std::string call_;
};

std::string with_nul(std::string text) {
  text.push_back('\0');
  return text;
}

TEST(ControlClient, ACallAndItsReplyAreVarlink) {
  OneReplyServer server(with_nul(R"({"parameters":{"version":"9","pages":{"free":3}}})"), 5);
  const auto reply =
      call_control_at(server.path(), "Cancel", {{"sequence", 18446744073709551615u}});
  ASSERT_TRUE(reply) << reply.error().message();
  EXPECT_EQ(reply->at("pages").at("free"), 3);
  EXPECT_EQ(
      server.call(),
      R"({"method":"org.inferd.Control.Cancel","parameters":{"sequence":18446744073709551615}})");
}

TEST(ControlClient, TheDaemonsOwnSentenceIsTheError) {
  OneReplyServer server(
      with_nul(
          R"({"error":"org.inferd.Control.NotFound","parameters":{"message":"no sequence 7"}})"),
      100);
  const auto reply = call_control_at(server.path(), "Cancel", {{"sequence", 7}});
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code(), ErrorCode::kNotFound);
  EXPECT_EQ(reply.error().message(), "no sequence 7");
}

TEST(ControlClient, AnUnknownMethodMeansAnotherVersion) {
  OneReplyServer server(
      with_nul(R"({"error":"org.varlink.service.MethodNotFound","parameters":{}})"), 100);
  const auto reply = call_control_at(server.path(), "Metrics", ordered_json::object());
  ASSERT_FALSE(reply);
  EXPECT_THAT(reply.error().message(), HasSubstr("different versions"));
}

TEST(ControlClient, WhateverElseAnswersIsAnErrorAndNoCrash) {
  const std::string wrong_replies[] = {
      "",
      "{\"parameters\":{}}",  // no NUL before the end
      with_nul(""),
      with_nul("HTTP/1.1 400 Bad Request"),
      with_nul("[1,2]"),
      with_nul("{\"parameters\":3}"),
      with_nul("{\"error\":3}"),
      with_nul("{\"error\":\"x\",\"parameters\":[]}"),
      with_nul("\xFF\xFE"),
  };
  for (const std::string& wrong : wrong_replies) {
    OneReplyServer server(wrong, 100);
    const auto reply = call_control_at(server.path(), "Status", ordered_json::object());
    EXPECT_FALSE(reply) << wrong;
  }
}

TEST(ControlClient, WithoutADaemonTheSentenceSaysHowToStartOne) {
  const auto reply = call_control_at("/tmp/no/such/control.sock", "Status", ordered_json::object());
  ASSERT_FALSE(reply);
  EXPECT_EQ(reply.error().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(reply.error().message(), HasSubstr("systemctl start inferd"));
}

TEST(ControlClient, ATooLongPathIsRefusedWithItsLimit) {
  const auto reply = call_control_at("/" + std::string(200, 'x'), "Status", ordered_json::object());
  ASSERT_FALSE(reply);
  EXPECT_THAT(reply.error().message(), HasSubstr("107"));
}

TEST(ControlClient, TheControlSocketLiesBesideTheClientsSocket) {
  constexpr OptionSpec kOptions[] = {{"socket", "PATH", ""}, {"control-socket", "PATH", ""}};
  const auto path_for = [&](const std::vector<std::string>& words) {
    return control_socket_path(parse_arguments(words, kOptions).value());
  };
  ::unsetenv("INFERD_SOCKET");
  ::unsetenv("INFERD_CONTROL_SOCKET");
  ::setenv("XDG_RUNTIME_DIR", "/nowhere", 1);
  EXPECT_EQ(path_for({}), "/run/inferd/control.sock");
  ::setenv("INFERD_SOCKET", "/a/b/inferd.sock", 1);
  EXPECT_EQ(path_for({}), "/a/b/control.sock");
  ::setenv("INFERD_CONTROL_SOCKET", "/c/d.sock", 1);
  EXPECT_EQ(path_for({}), "/c/d.sock");
  EXPECT_EQ(path_for({"--socket", "/e/inferd.sock"}), "/e/control.sock");
  EXPECT_EQ(path_for({"--socket", "/e/inferd.sock", "--control-socket", "x"}), "x");
  ::unsetenv("INFERD_SOCKET");
  ::unsetenv("INFERD_CONTROL_SOCKET");
}

}  // namespace
}  // namespace inferd::inferctl
