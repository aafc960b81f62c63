#include "daemon/pool_sizing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace inferd::daemon {
namespace {

using testing::HasSubstr;

constexpr Bytes kGiB(uint64_t n) { return Bytes(n << 30); }

// A directory with copies of the files of /proc and /sys that the reader looks at.
class FakeRoot {
 public:
  FakeRoot() {
    std::string name = testing::TempDir() + "inferd-root-XXXXXX";
    root_ = ::mkdtemp(name.data());
    write("/proc/meminfo", "MemTotal:       16777216 kB\nMemFree:         1000 kB\n"
                           "MemAvailable:    8388608 kB\n");
  }
  ~FakeRoot() { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  const std::string& path() const { return root_; }

 private:
  std::string root_;
};

TEST(MachineMemory, WithoutAGroupOnlyTheMachineCounts) {
  FakeRoot root;
  const auto memory = read_machine_memory(root.path());
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory->total, kGiB(16));
  EXPECT_EQ(memory->available, kGiB(8));
  EXPECT_FALSE(memory->group.has_value());
}

TEST(MachineMemory, TheTightestGroupOfVersion2Wins) {
  FakeRoot root;
  root.write("/proc/self/cgroup", "0::/system.slice/inferd.service\n");
  root.write("/sys/fs/cgroup/system.slice/inferd.service/memory.max", "max\n");
  root.write("/sys/fs/cgroup/system.slice/inferd.service/memory.high", "6442450944\n");
  root.write("/sys/fs/cgroup/system.slice/memory.max", "4294967296\n");
  root.write("/sys/fs/cgroup/system.slice/memory.current", "2147483648\n");
  root.write("/sys/fs/cgroup/system.slice/memory.stat",
             "anon 1073741824\ninactive_file 1073741824\nactive_file 0\n");
  const auto memory = read_machine_memory(root.path());
  ASSERT_TRUE(memory.ok());
  ASSERT_TRUE(memory->group.has_value());
  EXPECT_EQ(memory->group->limit, kGiB(4));
  EXPECT_EQ(memory->group->used, kGiB(1));
  EXPECT_EQ(memory->group->directory, root.path() + "/sys/fs/cgroup/system.slice");
}

TEST(MachineMemory, TheLimitOfVersion1IsReadToo) {
  FakeRoot root;
  root.write("/proc/self/cgroup", "4:cpu,memory:/box\n0::/\n");
  root.write("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "3221225472\n");
  root.write("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", "1073741824\n");
  root.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const auto memory = read_machine_memory(root.path());
  ASSERT_TRUE(memory.ok());
  ASSERT_TRUE(memory->group.has_value());
  EXPECT_EQ(memory->group->limit, kGiB(3));
  EXPECT_EQ(memory->group->used, kGiB(1));
}

TEST(MachineMemory, AGroupThatIsNotMountedHereStillHasItsAncestors) {
  FakeRoot root;
  root.write("/proc/self/cgroup", "0::/a/b/c\n");
  root.write("/sys/fs/cgroup/memory.max", "1073741824\n");
  const auto memory = read_machine_memory(root.path());
  ASSERT_TRUE(memory.ok());
  ASSERT_TRUE(memory->group.has_value());
  EXPECT_EQ(memory->group->limit, kGiB(1));
}

TEST(MachineMemory, WithoutMeminfoTheErrorSaysWhatToDo) {
  FakeRoot root;
  root.write("/proc/meminfo", "nothing\n");
  const auto memory = read_machine_memory(root.path());
  ASSERT_FALSE(memory.ok());
  EXPECT_THAT(memory.error().message(), HasSubstr("set [memory] pool"));
}

TEST(MachineMemory, ThisMachineCanBeRead) {
  const auto memory = read_machine_memory("");
  ASSERT_TRUE(memory.ok());
  EXPECT_GT(memory->total.value, 0u);
}

PoolRequest request() {
  PoolRequest request;
  request.page = Bytes(1 << 20);
  request.weights = kGiB(1);
  request.context_tokens = 8192;
  request.sequences_max = 64;
  return request;
}

MachineMemory machine(uint64_t total_gib, uint64_t available_gib) {
  MachineMemory memory;
  memory.total = kGiB(total_gib);
  memory.available = kGiB(available_gib);
  return memory;
}

TEST(PoolSizing, HalfOfWhatIsAvailableBoundsIt) {
  const auto decision = decide_pool(request(), machine(16, 8));
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->pages, PageCount(4096));
  EXPECT_THAT(decision->explanation, HasSubstr("16 GiB of RAM, 8 GiB available"));
  EXPECT_THAT(decision->explanation, HasSubstr("4096 pages"));
  EXPECT_EQ(decision->warning, "");
}

TEST(PoolSizing, TheLimitLessTheWeightsBoundsIt) {
  PoolRequest heavy = request();
  heavy.weights = kGiB(10);
  const auto decision = decide_pool(heavy, machine(16, 8));
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->pages, PageCount(2048));
}

TEST(PoolSizing, TheGroupBoundsIt) {
  MachineMemory memory = machine(16, 8);
  memory.group = MachineMemory::GroupLimit{kGiB(4), kGiB(3), "/g"};
  const auto decision = decide_pool(request(), memory);
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->pages, PageCount(512));
  EXPECT_THAT(decision->explanation, HasSubstr("control group limit 4 GiB, 1 GiB left"));
}

TEST(PoolSizing, NoMoreThanTheSequencesCanUse) {
  PoolRequest small = request();
  small.sequences_max = 2;
  const auto decision = decide_pool(small, machine(16, 8));
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->pages, PageCount(2 * 8192 / 16));
}

TEST(PoolSizing, AConfiguredSizeIsTakenAsItIs) {
  PoolRequest configured = request();
  configured.configured = Bytes(100 << 20);
  const auto decision = decide_pool(configured, machine(16, 8));
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->pages, PageCount(100));
  EXPECT_THAT(decision->explanation, HasSubstr("as configured"));
  EXPECT_THAT(decision->warning, HasSubstr("holds 1600 tokens, less than the model's context"));
}

TEST(PoolSizing, TooLittleMemoryIsRefusedWithTheFigures) {
  MachineMemory memory = machine(16, 8);
  memory.group = MachineMemory::GroupLimit{kGiB(2), Bytes((2ull << 30) - (20 << 20)), "/g"};
  const auto decision = decide_pool(request(), memory);
  ASSERT_FALSE(decision.ok());
  EXPECT_EQ(decision.error().code(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(decision.error().message(), HasSubstr("at least 16 MiB"));
}

TEST(PoolSizing, AHugeSizeNeverOverflowsAPageId) {
  PoolRequest configured = request();
  configured.configured = Bytes(1ull << 46);
  configured.page = Bytes(1024);
  const auto decision = decide_pool(configured, machine(16, 8));
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->pages.value, kNoPage.value - 1);
}

}  // namespace
}  // namespace inferd::daemon
