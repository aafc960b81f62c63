#include "ipc/doorbell_batch.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "ipc/doorbell.h"

namespace inferd::ipc {
namespace {

std::vector<Doorbell> make_bells(size_t count) {
  std::vector<Doorbell> bells;
  for (size_t i = 0; i < count; ++i) bells.push_back(std::move(create_doorbell()).value());
  return bells;
}

// Rings every third bell and says whether exactly those have rung.
bool rings_the_chosen(DoorbellBatch& batch, const std::vector<Doorbell>& bells) {
  for (size_t i = 0; i < bells.size(); i += 3) batch.add(bells[i].write_end.get());
  batch.ring();
  for (size_t i = 0; i < bells.size(); ++i) {
    if (clear_doorbell(bells[i].read_end.get()) != (i % 3 == 0)) return false;
  }
  return true;
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

TEST(DoorbellBatch, RingsTheBellsThatWereAddedHoweverManyAndHoweverOften) {
  DoorbellBatch batch;
  for (const size_t count : {1, 7, 16, 200}) {
    const std::vector<Doorbell> bells = make_bells(count);
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(rings_the_chosen(batch, bells)) << count;
  }
}

TEST(DoorbellBatch, NeitherAFullBellNorADeadListenerHoldsTheOthersUp) {
  std::vector<Doorbell> bells = make_bells(8);
  while (write(bells[2].write_end.get(), "", 1) == 1) {
  }
  ASSERT_EQ(errno, EAGAIN);
  const UniqueFd keeper = std::move(reopen_read_end(bells[4].read_end.get())).value();
  bells[4].read_end.reset();
  DoorbellBatch batch;
  for (const Doorbell& bell : bells) batch.add(bell.write_end.get());
  batch.ring();
  for (const size_t i : {0, 1, 3, 5, 6, 7}) EXPECT_TRUE(clear_doorbell(bells[i].read_end.get()));
  EXPECT_TRUE(clear_doorbell(keeper.get()));
}

TEST(DoorbellBatch, RingsWithoutTheKernelsCallsToo) {
  for (const long number : {SYS_io_setup, SYS_io_submit, SYS_io_getevents}) {
    const pid_t child = fork();
    if (child == 0) {
      if (!forbid(number, EPERM)) _exit(2);
      DoorbellBatch batch;
      const std::vector<Doorbell> bells = make_bells(48);
      bool rings = true;
      for (int i = 0; i < 100; ++i) rings = rings && rings_the_chosen(batch, bells);
      _exit(rings ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << number << ": " << status;
  }
}

}  // namespace
}  // namespace inferd::ipc
