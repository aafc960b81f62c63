// Messages with descriptors: what arrives, and that nothing leaks whatever arrives.
#include "ipc/socket.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace inferd::ipc {
namespace {

int open_fds() {
  DIR* dir = opendir("/proc/self/fd");
  int count = 0;
  while (readdir(dir) != nullptr) ++count;
  closedir(dir);
  return count;
}

struct Pair {
  UniqueFd a, b;
  Pair() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    a = UniqueFd(ends[0]);
    b = UniqueFd(ends[1]);
  }
};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(Socket, MessageArrivesWithItsDescriptors) {
  Pair pair;
  const UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int fds[] = {null.get(), null.get()};
  ASSERT_EQ(send_message(pair.a.get(), bytes_of("hello"), fds).value(), SocketStatus::kDone);
  std::byte buffer[64];
  auto message = receive_message(pair.b.get(), buffer, 2, true);
  ASSERT_TRUE(message.ok());
  EXPECT_EQ(message->status, SocketStatus::kDone);
  EXPECT_EQ(message->bytes, 5u);
  EXPECT_EQ(std::memcmp(buffer, "hello", 5), 0);
  ASSERT_EQ(message->fds.size(), 2u);
  for (const UniqueFd& fd : message->fds) {
    EXPECT_NE(fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
  }
}

TEST(Socket, LastWordsAreHeardThoughTheirSpeakerLeftSomethingUnread) {
  Pair pair;
  ASSERT_TRUE(send_message(pair.a.get(), bytes_of("hello")).ok());
  ASSERT_TRUE(send_message(pair.b.get(), bytes_of("no")).ok());
  pair.b.reset();
  std::byte buffer[64];
  const auto message = receive_message(pair.a.get(), buffer, 0, true);
  ASSERT_TRUE(message.ok());
  ASSERT_EQ(message->status, SocketStatus::kDone);
  EXPECT_EQ(std::memcmp(buffer, "no", 2), 0);
  EXPECT_EQ(receive_message(pair.a.get(), buffer, 0, true)->status, SocketStatus::kClosed);
}

TEST(Socket, UnwantedDescriptorsAndLongMessagesAreRefusedAndLeaveNothingOpen) {
  Pair pair;
  const UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int baseline = open_fds();
  const std::vector<int> many(kMessageFdsMax, null.get());
  std::byte buffer[8];
  for (int round = 0; round < 50; ++round) {
    ASSERT_TRUE(send_message(pair.a.get(), bytes_of("x"), many).ok());
    auto unwanted = receive_message(pair.b.get(), buffer, 0, true);
    ASSERT_FALSE(unwanted.ok());
    EXPECT_EQ(unwanted.error().code(), ErrorCode::kProtocol);
    ASSERT_TRUE(send_message(pair.a.get(), bytes_of("longer than the buffer"), many).ok());
    auto cut = receive_message(pair.b.get(), buffer, kMessageFdsMax, true);
    ASSERT_FALSE(cut.ok());
    EXPECT_EQ(cut.error().code(), ErrorCode::kProtocol);
  }
  EXPECT_EQ(open_fds(), baseline);
}

TEST(Socket, MoreDescriptorsThanTheControlBufferHoldsLeaveNothingOpen) {
  Pair pair;
  const UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int baseline = open_fds();
  // By hand: send_message() would not send so many.
  constexpr size_t kMany = kMessageFdsMax + 20;
  alignas(cmsghdr) char control[CMSG_SPACE(kMany * sizeof(int))] = {};
  char byte = 'x';
  iovec part = {&byte, 1};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(kMany * sizeof(int));
  for (size_t i = 0; i < kMany; ++i) {
    const int fd = null.get();
    std::memcpy(CMSG_DATA(header) + i * sizeof(int), &fd, sizeof(int));
  }
  ASSERT_EQ(sendmsg(pair.a.get(), &message, MSG_NOSIGNAL), 1);
  std::byte buffer[8];
  auto received = receive_message(pair.b.get(), buffer, kMessageFdsMax, true);
  ASSERT_FALSE(received.ok());
  EXPECT_EQ(received.error().code(), ErrorCode::kProtocol);
  EXPECT_EQ(open_fds(), baseline);
}

TEST(Socket, NothingThereWouldBlockAndEndOfFileIsClosed) {
  Pair pair;
  std::byte buffer[8];
  EXPECT_EQ(receive_message(pair.b.get(), buffer, 0, false)->status, SocketStatus::kWouldBlock);
  pair.a.reset();
  EXPECT_EQ(receive_message(pair.b.get(), buffer, 0, true)->status, SocketStatus::kClosed);
  EXPECT_EQ(send_message(pair.b.get(), bytes_of("x")).value(), SocketStatus::kClosed);
}

TEST(Socket, FullSocketWouldBlock) {
  Pair pair;
  ASSERT_EQ(fcntl(pair.a.get(), F_SETFL, O_NONBLOCK), 0);
  const std::string block(1024, 'x');
  int sent = 0;
  while (send_message(pair.a.get(), bytes_of(block)).value() == SocketStatus::kDone) {
    ASSERT_LT(++sent, 100'000);
  }
  EXPECT_GT(sent, 0);
}

TEST(Socket, PeerIsWhoTheKernelSaysItIs) {
  Pair pair;
  auto peer = peer_identity(pair.a.get());
  ASSERT_TRUE(peer.ok());
  EXPECT_EQ(peer->pid, getpid());
  EXPECT_EQ(peer->uid, geteuid());
  EXPECT_EQ(peer->gid, getegid());
}

class SocketPath : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/inferd-socket-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    path_ = dir_ + "/s.sock";
  }
  void TearDown() override {
    unlink(path_.c_str());
    rmdir(dir_.c_str());
  }
  std::string dir_, path_;
};

TEST_F(SocketPath, ConnectErrorsSayWhatIsWrong) {
  auto missing = connect_to(path_, 100);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code(), ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message().find(path_), std::string::npos);
  { ASSERT_TRUE(listen_at(path_, 4).ok()); }  // its socket file stays behind
  auto dead = connect_to(path_, 100);
  ASSERT_FALSE(dead.ok());
  EXPECT_EQ(dead.error().code(), ErrorCode::kUnavailable);
  auto too_long = connect_to(std::string(200, 'a'), 100);
  ASSERT_FALSE(too_long.ok());
  EXPECT_EQ(too_long.error().code(), ErrorCode::kInvalidArgument);
}

TEST_F(SocketPath, DeadSocketFileIsReplacedAndALiveOneIsNot) {
  { ASSERT_TRUE(listen_at(path_, 4).ok()); }
  auto listener = listen_at(path_, 4);
  ASSERT_TRUE(listener.ok()) << listener.error().message();
  auto second = listen_at(path_, 4);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), ErrorCode::kUnavailable);
  EXPECT_TRUE(connect_to(path_, 100).ok());
}

TEST_F(SocketPath, AFileThatIsNoSocketIsLeftAlone) {
  const UniqueFd file(open(path_.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  auto listener = listen_at(path_, 4);
  ASSERT_FALSE(listener.ok());
  EXPECT_EQ(listener.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(access(path_.c_str(), F_OK), 0);
}

TEST_F(SocketPath, FullBacklogTimesOut) {
  auto listener = listen_at(path_, 0);
  ASSERT_TRUE(listener.ok());
  std::vector<UniqueFd> waiting;
  for (int i = 0; i < 100; ++i) {
    auto connection = connect_to(path_, 20);
    if (!connection.ok()) {
      EXPECT_EQ(connection.error().code(), ErrorCode::kTimedOut);
      return;
    }
    waiting.push_back(std::move(connection).value());
  }
  FAIL() << "a backlog of 0 took 100 connections";
}

}  // namespace
}  // namespace inferd::ipc
