#include "daemon/runtime_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

namespace inferd::daemon {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr uid_t kOrdinaryUser = 65534;

class RuntimeDirTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "inferd-runtime-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name = "run") const { return folder_ + "/" + name; }
  RuntimeDirOptions options(const std::string& access = "user") const {
    return {path(), access, "root"};
  }

  static mode_t mode_of(const std::string& path) {
    struct stat status = {};
    EXPECT_EQ(::lstat(path.c_str(), &status), 0) << path;
    return status.st_mode & 07777;
  }

  static Error error_of(const RuntimeDirOptions& options) {
    const auto opened = RuntimeDir::open(options);
    return opened ? Error(ErrorCode::kOk, "it opened") : opened.error();
  }

  // Runs `body` in a process of a user without privilege; it must return an error's sentence.
  static std::string as_ordinary_user(const std::function<std::string()>& body) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const bool dropped = ::geteuid() != 0 || ::setresuid(kOrdinaryUser, kOrdinaryUser, kOrdinaryUser) == 0;
      const std::string said = dropped ? body() : "cannot become an ordinary user";
      const bool written = ::write(ends[1], said.data(), said.size()) == static_cast<ssize_t>(said.size());
      ::_exit(written ? 0 : 1);
    }
    ::close(ends[1]);
    std::string said(4096, '\0');
    const ssize_t got = ::read(ends[0], said.data(), said.size());
    ::close(ends[0]);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    said.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return said;
  }

  std::string folder_;
};

// A socket at `path` that listens for as long as the descriptor is open.
UniqueFd listen_at(const std::string& path, int type) {
  UniqueFd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(::listen(fd.get(), 1), 0);
  return fd;
}

TEST_F(RuntimeDirTest, ModesFollowWhoMayConnectAndEverythingGoesWithTheDaemon) {
  struct Modes {
    const char* access;
    mode_t directory;
    mode_t socket;
  };
  for (const Modes& modes : {Modes{"user", 0700, 0600}, {"group", 0750, 0660}, {"all", 0755, 0666}}) {
    if (std::string_view(modes.access) == "group" && ::geteuid() != 0) continue;  // needs a group of one's own
    std::filesystem::remove_all(path());
    {
      auto dir = RuntimeDir::open(options(modes.access));
      ASSERT_TRUE(dir.ok()) << dir.error().message();
      const auto clients = dir->listen_clients();
      const auto control = dir->listen_control();
      ASSERT_TRUE(clients.ok() && control.ok());
      EXPECT_EQ(mode_of(path()), modes.directory);
      EXPECT_EQ(mode_of(path("run/inferd.sock")), modes.socket);
      EXPECT_EQ(mode_of(path("run/control.sock")), modes.socket);
    }
    EXPECT_TRUE(std::filesystem::is_empty(path())) << modes.access;
  }
}

TEST_F(RuntimeDirTest, ASecondDaemonIsToldWhoServesTheDirectory) {
  const auto first = RuntimeDir::open(options());
  ASSERT_TRUE(first.ok());
  const Error error = error_of(options());
  EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("pid " + std::to_string(::getpid())), HasSubstr(path()),
                                     HasSubstr("stop it, or choose another")));
}

TEST_F(RuntimeDirTest, WhatAKilledDaemonLeftIsReplaced) {
  ASSERT_EQ(::mkdir(path().c_str(), 0700), 0);
  std::ofstream(path("run/inferd.lock")) << "12345\n";
  listen_at(path("run/inferd.sock"), SOCK_SEQPACKET);
  listen_at(path("run/control.sock"), SOCK_STREAM);
  auto dir = RuntimeDir::open(options());
  ASSERT_TRUE(dir.ok()) << dir.error().message();
  EXPECT_TRUE(dir->listen_clients().ok());
  EXPECT_TRUE(dir->listen_control().ok());
}

TEST_F(RuntimeDirTest, ASocketThatSomebodyListensOnIsLeftAlone) {
  auto dir = RuntimeDir::open(options());
  ASSERT_TRUE(dir.ok());
  const UniqueFd alive = listen_at(path("run/inferd.sock"), SOCK_SEQPACKET);
  const auto refused = dir->listen_clients();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(refused.error().message(), HasSubstr("another process listens on " + path("run/inferd.sock")));
  EXPECT_TRUE(std::filesystem::exists(path("run/inferd.sock")));
}

TEST_F(RuntimeDirTest, AFileInTheSocketsPlaceIsNotRemoved) {
  auto dir = RuntimeDir::open(options());
  ASSERT_TRUE(dir.ok());
  std::ofstream(path("run/control.sock")) << "precious";
  const auto refused = dir->listen_control();
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message(), HasSubstr("is no socket; remove it"));
  EXPECT_TRUE(std::filesystem::is_regular_file(path("run/control.sock")));
}

TEST_F(RuntimeDirTest, EachDirectoryThatWillNotDoIsASentenceWithAdvice) {
  RuntimeDirOptions orphan = options();
  orphan.path = path("no/such/parent");
  EXPECT_EQ(error_of(orphan).code(), ErrorCode::kNotFound);
  EXPECT_THAT(error_of(orphan).message(), HasSubstr("its parent directory does not exist; make that"));

  std::ofstream(path("file")) << "x";
  RuntimeDirOptions file = options();
  file.path = path("file");
  EXPECT_EQ(error_of(file).code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error_of(file).message(), HasSubstr("is not a directory; remove it, or choose another"));

  ASSERT_EQ(::mkdir(path("open").c_str(), 0700), 0);
  ASSERT_EQ(::chmod(path("open").c_str(), 0777), 0);
  RuntimeDirOptions open = options();
  open.path = path("open");
  EXPECT_EQ(error_of(open).code(), ErrorCode::kPermissionDenied);
  EXPECT_THAT(error_of(open).message(), HasSubstr("can be written by everyone"));
}

TEST_F(RuntimeDirTest, AnUnknownGroupIsASentenceWithAdvice) {
  RuntimeDirOptions strangers = options("group");
  strangers.group = "no-such-group";
  const Error error = error_of(strangers);
  EXPECT_EQ(error.code(), ErrorCode::kNotFound);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("no group 'no-such-group'"), HasSubstr("create it")));
}

TEST_F(RuntimeDirTest, APlaceThatThisUserMayNotWriteIsASentenceWithAdvice) {
  ASSERT_EQ(::chmod(folder_.c_str(), 0555), 0);
  const std::string refused = as_ordinary_user([&] { return error_of(options()).message(); });
  EXPECT_THAT(refused, AllOf(HasSubstr("cannot make the runtime directory " + path() + ": Permission denied"),
                             HasSubstr("choose a directory that this user may write, with --runtime-dir")));

  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  ASSERT_EQ(::mkdir(path().c_str(), 0555), 0);
  const std::string locked_out = as_ordinary_user([&] { return error_of(options()).message(); });
  EXPECT_THAT(locked_out, AllOf(HasSubstr("cannot open the lock file"), HasSubstr("must belong to user ")));
}

TEST_F(RuntimeDirTest, AnotherUsersDirectoryIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make another user's directory";
  ASSERT_EQ(::mkdir(path().c_str(), 0700), 0);
  ASSERT_EQ(::chown(path().c_str(), kOrdinaryUser, kOrdinaryUser), 0);
  const Error error = error_of(options());
  EXPECT_EQ(error.code(), ErrorCode::kPermissionDenied);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("belongs to another user"), HasSubstr("choose another")));
}

}  // namespace
}  // namespace inferd::daemon
