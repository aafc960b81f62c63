// Pressure: which file is watched, and that an exceptional descriptor is heard.
#include "daemon/memory_pressure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/daemon/temp_dir.h"

namespace inferd::daemon {
namespace {

using testing::HasSubstr;

void write_file(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(MemoryPressure, TheOwnGroupIsWatchedBeforeTheMachine) {
  TempDir dir;
  const std::string root = dir.path();
  write_file(root + "/proc/self/cgroup", "0::/system.slice/inferd.service\n");
  write_file(root + "/proc/pressure/memory", "");
  Result<PressureTrigger> trigger = open_pressure_trigger(root);
  ASSERT_TRUE(trigger.ok());
  EXPECT_EQ(trigger->path, root + "/proc/pressure/memory") << "the group has no such file";
  const std::string own = root + "/sys/fs/cgroup/system.slice/inferd.service/memory.pressure";
  write_file(own, "");
  trigger = open_pressure_trigger(root);
  ASSERT_TRUE(trigger.ok());
  EXPECT_EQ(trigger->path, own);
  EXPECT_EQ(read_file(own), std::string(kPressureTrigger) + '\0');
}

TEST(MemoryPressure, TheRootGroupIsTheMachine) {
  TempDir dir;
  const std::string root = dir.path();
  write_file(root + "/proc/self/cgroup", "0::/\n");
  write_file(root + "/proc/pressure/memory", "");
  write_file(root + "/sys/fs/cgroup/memory.pressure", "");
  const Result<PressureTrigger> trigger = open_pressure_trigger(root);
  ASSERT_TRUE(trigger.ok());
  EXPECT_EQ(trigger->path, root + "/proc/pressure/memory");
}

TEST(MemoryPressure, WithoutAnySuchFileTheErrorNamesThemAll) {
  TempDir dir;
  const Result<PressureTrigger> trigger = open_pressure_trigger(dir.path());
  ASSERT_FALSE(trigger.ok());
  EXPECT_EQ(trigger.error().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(trigger.error().message(), HasSubstr("/proc/pressure/memory (No such file"));
}

// What polls exceptional as the kernel's file does: a socket with urgent data.
TEST(MemoryPressure, EachEventIsHeardUntilTheWatchEnds) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(listener, generic, length), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ASSERT_EQ(::getsockname(listener, generic, &length), 0);
  UniqueFd sender(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::connect(sender.get(), generic, length), 0);
  UniqueFd receiver(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  ::close(listener);

  boost::asio::io_context io;
  int heard = 0;
  {
    MemoryPressure pressure(io, std::move(receiver), [&heard] { ++heard; });
    io.poll();
    EXPECT_EQ(heard, 0);
    for (int i = 1; i <= 3; ++i) {
      ASSERT_EQ(::send(sender.get(), "!", 1, MSG_OOB), 1);
      io.run_for(std::chrono::milliseconds(1000));
      if (heard >= i) continue;
      break;
    }
    EXPECT_GE(heard, 3);
  }
  io.restart();
  io.run_for(std::chrono::milliseconds(100));  // the cancelled wait ends without a word
}

}  // namespace
}  // namespace inferd::daemon
