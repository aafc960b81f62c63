// Bells that the other side may do with what it likes.
#include "ipc/doorbell_batch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "ipc/doorbell.h"

namespace inferd::ipc {
namespace {

constexpr auto kPatience = std::chrono::seconds(20);

std::vector<UniqueFd> make_bells(size_t count) {
  std::vector<UniqueFd> bells;
  for (size_t i = 0; i < count; ++i) bells.push_back(std::move(create_doorbell()).value());
  return bells;
}

// Rings every third bell and says whether exactly those have rung.
bool rings_the_chosen(DoorbellBatch& batch, const std::vector<UniqueFd>& bells) {
  for (size_t i = 0; i < bells.size(); i += 3) batch.add(bells[i].get());
  batch.ring();
  for (size_t i = 0; i < bells.size(); ++i) {
    if (clear_doorbell(bells[i].get()) != (i % 3 == 0)) return false;
  }
  return true;
}

bool polls_readable(int fd) {
  pollfd poller = {fd, POLLIN, 0};
  return poll(&poller, 1, 0) == 1;
}

// From now on this process's calls of `number` fail with `error`.
bool forbid(long number, int error) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {static_cast<unsigned short>(std::size(filter)), filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Only root may make the kernel itself wait for a page, unless vm.unprivileged_userfaultfd says otherwise; and some
// kernels have no such call.
bool may_have_stuck_pages() {
  const UniqueFd faults(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC)));
  return faults || (errno != EPERM && errno != ENOSYS);
}

// A page that does not come: whoever touches it waits until it is let go.
class StuckPage {
 public:
  StuckPage()
      : faults_(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC))),
        bytes_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    EXPECT_TRUE(faults_) << std::strerror(errno);
    uffdio_api api = {};
    api.api = UFFD_API;
    EXPECT_EQ(ioctl(faults_.get(), UFFDIO_API, &api), 0);
    page_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(page_, MAP_FAILED);
    uffdio_register range = {};
    range.range = {reinterpret_cast<uintptr_t>(page_), bytes_};
    range.mode = UFFDIO_REGISTER_MODE_MISSING;
    EXPECT_EQ(ioctl(faults_.get(), UFFDIO_REGISTER, &range), 0);
  }
  StuckPage(const StuckPage&) = delete;
  StuckPage& operator=(const StuckPage&) = delete;
  void* page() const { return page_; }
  // Blocks until somebody waits for the page.
  bool somebody_waits() const {
    pollfd poller = {faults_.get(), POLLIN, 0};
    return poll(&poller, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())) == 1;
  }
  // The page comes.
  void let_go() {
    uffdio_zeropage zero = {};
    zero.range = {reinterpret_cast<uintptr_t>(page_), bytes_};
    ioctl(faults_.get(), UFFDIO_ZEROPAGE, &zero);
  }
  ~StuckPage() {
    if (page_ != MAP_FAILED) munmap(page_, bytes_);
  }

 private:
  UniqueFd faults_;
  size_t bytes_;
  void* page_ = MAP_FAILED;
};

TEST(DoorbellBatch, RingsTheBellsThatWereAddedHoweverManyAndHoweverOften) {
  const auto batch = DoorbellBatch::create().value();
  for (const size_t count : {1, 7, 16, 200}) {
    const std::vector<UniqueFd> bells = make_bells(count);
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(rings_the_chosen(*batch, bells)) << count;
  }
}

TEST(DoorbellBatch, ABellThatIsFullAndBlocksHoldsNobodyUp) {
  const auto batch = DoorbellBatch::create().value();
  const std::vector<UniqueFd> bells = make_bells(8);
  const uint64_t most = UINT64_MAX - 1;
  ASSERT_EQ(write(bells[2].get(), &most, sizeof(most)), ssize_t{sizeof(most)});
  ASSERT_EQ(fcntl(bells[2].get(), F_SETFL, 0), 0);
  const auto ring = [&] {
    for (int i = 0; i < 3; ++i) {
      for (const UniqueFd& bell : bells) batch->add(bell.get());
      batch->ring();
    }
  };
  std::future<void> rung = std::async(std::launch::async, ring);
  const bool in_time = rung.wait_for(kPatience) == std::future_status::ready;
  EXPECT_TRUE(in_time);
  if (!in_time) clear_doorbell(bells[2].get());  // or it would never end
  rung.wait();
  for (const UniqueFd& bell : bells) EXPECT_TRUE(clear_doorbell(bell.get()));
}

TEST(DoorbellBatch, AReaderOrWriterWhosePageDoesNotComeHoldsNobodyUp) {
  if (!may_have_stuck_pages()) GTEST_SKIP() << "this user may not use userfaultfd(2); root may";
  StuckPage to, from;
  const auto batch = DoorbellBatch::create().value();
  const std::vector<UniqueFd> bells = make_bells(2);
  ring_doorbell(bells[0].get());
  std::thread reader([&] { EXPECT_EQ(read(bells[0].get(), to.page(), 8), 8); });
  std::thread writer([&] { EXPECT_EQ(write(bells[1].get(), from.page(), 8), 8); });
  EXPECT_TRUE(to.somebody_waits() && from.somebody_waits());
  const auto ring = [&] {
    for (const UniqueFd& bell : bells) batch->add(bell.get());
    batch->ring();
    return polls_readable(bells[0].get()) && polls_readable(bells[1].get());
  };
  std::future<bool> rung = std::async(std::launch::async, ring);
  EXPECT_EQ(rung.wait_for(kPatience), std::future_status::ready);
  to.let_go();
  from.let_go();
  EXPECT_TRUE(rung.get());
  reader.join();
  writer.join();
}

TEST(DoorbellBatch, SaysWhichCallsItNeedsWhereTheyAreForbidden) {
  for (const long number : {SYS_io_setup, SYS_io_submit, SYS_io_getevents}) {
    const pid_t child = fork();
    if (child == 0) {
      if (!forbid(number, EPERM)) _exit(2);
      const auto batch = DoorbellBatch::create();
      _exit(!batch.ok() && batch.error().message().find("io_") != std::string::npos ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << number << ": " << status;
  }
}

}  // namespace
}  // namespace inferd::ipc
