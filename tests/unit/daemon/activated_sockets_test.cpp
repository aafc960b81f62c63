// take_activated_sockets(): what the service manager passed, by name, and what it must not pass.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/runtime_dir.h"
#include "tests/unit/daemon/temp_dir.h"

namespace inferd::daemon {
namespace {

using testing::HasSubstr;

// In a child process: what was passed lies from descriptor 3 on, and the environment is its own.
// Returns the child's word: "" for success.
std::string activated(const std::vector<std::pair<std::string, int>>& passed,
                      const std::function<std::string(Result<ActivatedSockets>)>& check) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const int out = ::fcntl(ends[1], F_DUPFD, 100);
    std::vector<int> high;
    for (const auto& entry : passed) high.push_back(::fcntl(entry.second, F_DUPFD, 100));
    std::string names;
    for (size_t i = 0; i < high.size(); ++i) {
      ::dup2(high[i], 3 + static_cast<int>(i));
      names += (i > 0 ? ":" : "") + passed[i].first;
    }
    ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
    ::setenv("LISTEN_FDS", std::to_string(high.size()).c_str(), 1);
    ::setenv("LISTEN_FDNAMES", names.c_str(), 1);
    std::string word = check(take_activated_sockets());
    if (::getenv("LISTEN_FDS") != nullptr) word += " LISTEN_FDS is still set";
    const bool written = ::write(out, word.data(), word.size()) >= 0;
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  std::string word;
  char byte;
  while (::read(ends[0], &byte, 1) == 1) word += byte;
  ::close(ends[0]);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  return word;
}

class ActivatedSocketsTest : public testing::Test {
 protected:
  ActivatedSocketsTest() {
    auto other = RuntimeDir::open({dir_.path("run"), "user", ""});
    EXPECT_TRUE(other.ok());
    clients_ = std::move(other->listen_clients()).value();
    stream_ = std::move(other->listen_control()).value();
  }
  static std::string error_of(const Result<ActivatedSockets>& sockets) {
    return sockets ? "no error" : sockets.error().message();
  }
  TempDir dir_;
  UniqueFd clients_;
  UniqueFd stream_;
};

TEST_F(ActivatedSocketsTest, AreTakenByName) {
  const auto check = [](Result<ActivatedSockets> sockets) -> std::string {
    if (!sockets) return sockets.error().message();
    if (sockets->clients.get() != 4 || sockets->control.get() != 3) return "by place, not by name";
    if ((::fcntl(4, F_GETFL) & O_NONBLOCK) == 0) return "it would block";
    return "";
  };
  EXPECT_EQ(activated({{"control", stream_.get()}, {"clients", clients_.get()}}, check), "");
  const auto one = [](Result<ActivatedSockets> sockets) -> std::string {
    return sockets && sockets->clients && !sockets->control ? "" : "wrong";
  };
  EXPECT_EQ(activated({{"clients", clients_.get()}}, one), "");
}

TEST_F(ActivatedSocketsTest, OfAnotherNameOrKindAreRefused) {
  EXPECT_THAT(activated({{"clients", clients_.get()}, {"web", stream_.get()}}, error_of),
              HasSubstr("a socket named 'web'"));
  EXPECT_THAT(activated({{"clients", stream_.get()}}, error_of), HasSubstr("SOCK_SEQPACKET"));
  EXPECT_THAT(activated({{"control", clients_.get()}}, error_of), HasSubstr("SOCK_STREAM"));
}

}  // namespace
}  // namespace inferd::daemon
