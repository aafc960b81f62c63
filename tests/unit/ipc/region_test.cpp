// What a client can and cannot do to the memory that it was given.
#include "ipc/region.h"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace inferd::ipc {
namespace {

std::string proc_path(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

TEST(Region, ItsSizeIsFixedAndItsSealsAreSealed) {
  SharedRegion region = std::move(SharedRegion::create("test", 8192)).value();
  ASSERT_EQ(region.size(), 8192u);
  region.data()[8191] = std::byte{42};
  EXPECT_EQ(ftruncate(region.fd(), 4096), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(ftruncate(region.fd(), 16384), -1);
  EXPECT_EQ(errno, EPERM);
  // A client that could seal it against writing would lock the daemon's next instance out.
  EXPECT_EQ(fcntl(region.fd(), F_ADD_SEALS, F_SEAL_WRITE), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_EQ(fcntl(region.fd(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), -1);
  EXPECT_NE(fcntl(region.fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Region, ReadOnlyDescriptorCannotBecomeAWritableMapping) {
  SharedRegion region = std::move(SharedRegion::create("test", 4096)).value();
  const UniqueFd reader = std::move(reopen_read_only(region.fd())).value();
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, reader.get(), 0), MAP_FAILED);
  EXPECT_EQ(errno, EACCES);
  void* view = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, reader.get(), 0);
  ASSERT_NE(view, MAP_FAILED);
  EXPECT_EQ(mprotect(view, 4096, PROT_READ | PROT_WRITE), -1);
  EXPECT_EQ(errno, EACCES);
  region.data()[5] = std::byte{9};
  EXPECT_EQ(static_cast<std::byte*>(view)[5], std::byte{9});
  munmap(view, 4096);
  EXPECT_EQ(pwrite(reader.get(), "x", 1, 0), -1);
  EXPECT_EQ(fallocate(reader.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
}

// Everything that a client of another user could try on the descriptors it was given; 0 if all
// failed.
int attack_as_nobody(int reader, int client_region) {
  if (setgroups(0, nullptr) != 0 || setgid(65534) != 0 || setuid(65534) != 0) return 100;
  if (open(proc_path(reader).c_str(), O_RDWR | O_CLOEXEC) >= 0) return 1;
  if (open(proc_path(reader).c_str(), O_WRONLY | O_CLOEXEC) >= 0) return 2;
  if (open(proc_path(client_region).c_str(), O_RDWR | O_CLOEXEC) >= 0) return 3;
  if (fchmod(reader, 0777) == 0) return 4;
  if (chmod(proc_path(reader).c_str(), 0777) == 0) return 5;
  if (fcntl(reader, F_ADD_SEALS, F_SEAL_WRITE) == 0) return 6;
  if (mmap(nullptr, 4096, PROT_WRITE, MAP_SHARED, reader, 0) != MAP_FAILED) return 7;
  if (ftruncate(client_region, 0) == 0) return 8;
  void* view = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, reader, 0);
  if (view == MAP_FAILED) return 101;
  if (mprotect(view, 4096, PROT_READ | PROT_WRITE) == 0) return 9;
  if (fcntl(reader, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0) return 10;
  if (fcntl(client_region, F_ADD_SEALS, F_SEAL_WRITE) == 0) return 11;
  if (fchmod(client_region, 0777) == 0) return 12;
  if (fchown(reader, 65534, 65534) == 0) return 13;
  if (fallocate(reader, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0) return 14;
  if (pwrite(reader, "x", 1, 0) >= 0) return 15;
  // A second name for it, by /proc or by the descriptor, would be one more to open.
  if (linkat(AT_FDCWD, proc_path(reader).c_str(), AT_FDCWD, "/dev/shm/inferd-test-stolen",
             AT_SYMLINK_FOLLOW) == 0) {
    return 16;
  }
  if (open(("/proc/" + std::to_string(getppid()) + "/fd/" + std::to_string(reader)).c_str(),
           O_RDWR | O_CLOEXEC) >= 0) {
    return 17;
  }
  return 0;
}

// What the daemon's next instance does with a descriptor that was kept for it.
int take_over(int region) {
  if (setgroups(0, nullptr) != 0 || setgid(65533) != 0 || setuid(65533) != 0) return 100;
  struct stat status = {};
  if (fstat(region, &status) != 0 || (status.st_mode & 0777) != 0) return 1;
  auto again = SharedRegion::map(UniqueFd(dup(region)), 4096, Access::kReadWrite);
  if (!again.ok()) return 2;
  again->data()[77] = std::byte{42};
  return 0;
}

TEST(Region, ClientOfAnotherUserFindsNoWayToWrite) {
  if (geteuid() != 0) {
    // Without privilege there is no other user to become; the promise that remains is the mode.
    SharedRegion region = std::move(SharedRegion::create("test", 4096)).value();
    const UniqueFd reader = std::move(reopen_read_only(region.fd())).value();
    struct stat status = {};
    ASSERT_EQ(fstat(reader.get(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0u);
    return;
  }
  SharedRegion region = std::move(SharedRegion::create("test", 4096)).value();
  SharedRegion client = std::move(SharedRegion::create("test-client", 4096)).value();
  const UniqueFd reader = std::move(reopen_read_only(region.fd())).value();
  ASSERT_TRUE(deny_reopening(client.fd()).ok());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(attack_as_nobody(reader.get(), client.fd()));
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the attack of this number succeeded";
  // A later instance of the daemon, given the stored descriptor, maps it for writing again: with
  // the mode 0 that it has by now, and as a user without privilege.
  const pid_t next = fork();
  ASSERT_GE(next, 0);
  if (next == 0) _exit(take_over(region.fd()));
  ASSERT_EQ(waitpid(next, &status, 0), next);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(region.data()[77], std::byte{42}) << "what it wrote is seen by whoever maps it";
}

TEST(Region, MappingRefusesMemoryThatIsNotAsAnnounced) {
  SharedRegion region = std::move(SharedRegion::create("test", 8192)).value();
  auto wrong_size = SharedRegion::map(UniqueFd(dup(region.fd())), 4096, Access::kReadOnly);
  ASSERT_FALSE(wrong_size.ok());
  EXPECT_EQ(wrong_size.error().code(), ErrorCode::kProtocol);
  // Memory that can still shrink would be a SIGBUS for whoever maps it.
  UniqueFd loose(memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(loose.get(), 8192), 0);
  auto unsealed = SharedRegion::map(std::move(loose), 8192, Access::kReadOnly);
  ASSERT_FALSE(unsealed.ok());
  EXPECT_EQ(unsealed.error().code(), ErrorCode::kProtocol);
  auto no_memory =
      SharedRegion::map(UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)), 8192, Access::kReadOnly);
  ASSERT_FALSE(no_memory.ok());
}

TEST(Region, PublishedBytesNeverChange) {
  const std::string text(100'000, 'x');
  const UniqueFd fd =
      std::move(publish_immutable("tables", std::as_bytes(std::span(text)))).value();
  EXPECT_TRUE(is_immutable(fd.get()));
  EXPECT_EQ(fcntl(fd.get(), F_GETFL) & O_ACCMODE, O_RDONLY);
  // Not even its maker, reopening it for writing, can write.
  fchmod(fd.get(), 0600);
  const UniqueFd writer(open(proc_path(fd.get()).c_str(), O_RDWR | O_CLOEXEC));
  if (writer) {
    EXPECT_EQ(pwrite(writer.get(), "y", 1, 0), -1);
    EXPECT_EQ(mmap(nullptr, 4096, PROT_WRITE, MAP_SHARED, writer.get(), 0), MAP_FAILED);
    EXPECT_EQ(ftruncate(writer.get(), 0), -1);
  }
  auto mapped = SharedRegion::map(UniqueFd(dup(fd.get())), text.size(), Access::kReadOnly);
  ASSERT_TRUE(mapped.ok()) << mapped.error().message();
  EXPECT_EQ(std::memcmp(mapped->data(), text.data(), text.size()), 0);
  SharedRegion changeable = std::move(SharedRegion::create("test", 4096)).value();
  EXPECT_FALSE(is_immutable(changeable.fd()));
  EXPECT_FALSE(publish_immutable("nothing", {}).ok());
}

}  // namespace
}  // namespace inferd::ipc
