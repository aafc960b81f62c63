// plan() and commit() allocate nothing once warm. Counts every operator new of the program.
#include <gtest/gtest.h>

#include "tests/unit/counted_new.h"
#include "tests/unit/scheduler/scheduler_test_util.h"

namespace inferd::scheduler {
namespace {

TEST(SchedulerAllocation, AStepAllocatesNothingOnceWarm) {
  SchedulerConfig config;
  config.step_tokens = 32;
  config.step_logits = 8;
  config.context_tokens = 256;
  config.queue_max = 32;
  SchedulerRig rig({PageCount(16), 8, 256}, config);
  for (uint64_t id = 1; id <= 30; ++id) ASSERT_TRUE(rig.submit(id, 20, 60).ok());
  const std::vector<TokenId> token = {1};
  std::vector<ItemResult> results;
  results.reserve(8);
  ASSERT_TRUE(rig.plan());  // the first one sizes the plan
  const uint64_t before = counted_new::allocations.load();
  uint32_t steps = 0;
  do {
    results.clear();
    for (const BatchItem& item : rig.batch.items) {
      results.push_back(
          {item.logits_count > 0 ? std::span<const TokenId>(token) : std::span<const TokenId>()});
    }
    rig.scheduler.commit(results);
    ++steps;
  } while (rig.plan());
  EXPECT_EQ(counted_new::allocations.load() - before, 0u);
  // Prefill, decode, admission, preemption and the end of all of them were among it.
  EXPECT_GT(steps, 100u);
  EXPECT_EQ(rig.scheduler.stats().finished, 30u);
  EXPECT_GT(rig.scheduler.stats().preemptions, 0u);
}

TEST(SchedulerAllocation, TheCounterCounts) {
  const uint64_t before = counted_new::allocations.load();
  std::vector<int> vector(100);
  EXPECT_GT(vector.capacity(), 0u);
  EXPECT_GT(counted_new::allocations.load(), before);
}

}  // namespace
}  // namespace inferd::scheduler
