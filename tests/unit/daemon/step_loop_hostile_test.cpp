// Clients that write anything anywhere, at any time; and what the loop allocates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>


#include "base/prng.h"
#include "tests/unit/counted_new.h"
#include "tests/unit/daemon/loop_fixture.h"

namespace inferd::daemon {
namespace {

// Overwrites what the client can reach: indices, wake words, slots, arena.
void scribble(ipc::RawClient& client, Prng& prng) {
  const uint64_t bytes = client.client_region.size();
  for (uint32_t i = 0; i < 64; ++i) {
    // Mostly where it hurts: the control lines and the slots.
    const uint64_t range = prng.below(4) == 0 ? bytes : 3 * ipc::kControlBytes;
    const uint64_t word = prng.below(range / 8);
    const uint64_t value = prng.below(2) == 0 ? prng.next() : prng.below(64);
    std::memcpy(client.client_region.data() + word * 8, &value, 8);
  }
}

// A submission record whose fields are random, most of them in range.
ipc::SubmitRecord odd_submission(uint64_t cookie, Prng& prng) {
  ipc::SubmitRecord record = ipc::good_submission(cookie, 1 + static_cast<uint32_t>(prng.below(60)));
  record.max_tokens = 1 + static_cast<uint32_t>(prng.below(40));
  record.temperature = static_cast<float>(prng.uniform());
  record.seed = prng.next();
  auto* bytes = reinterpret_cast<std::byte*>(&record) + sizeof(ipc::RecordHeader);
  if (prng.below(2) == 0) {
    bytes[prng.below(sizeof(record) - sizeof(ipc::RecordHeader))] = std::byte(prng.below(256));
  }
  return record;
}

class Hostile : public testing::TestWithParam<uint64_t> {};

TEST_P(Hostile, ClientsHurtOnlyThemselves) {
  Prng prng(GetParam());
  LoopFixture fixture;
  FakeClient honest = fixture.connect();
  std::vector<uint64_t> cookies;
  std::vector<std::unique_ptr<FakeClient>> hostile;
  for (uint32_t round = 0; round < 400; ++round) {
    if (hostile.size() < 4) hostile.push_back(std::make_unique<FakeClient>(fixture.connect()));
    FakeClient& victim = *hostile[prng.below(hostile.size())];
    switch (prng.below(6)) {
      case 0: scribble(*victim.raw, prng); break;
      case 1:
      case 2: {
        if (victim.raw->submissions.free_slots(2) != ipc::kRingBroken &&
            victim.raw->submissions.free_slots(2) >= 2) {
          victim.put(odd_submission(1 + prng.below(12), prng));
        }
        break;
      }
      case 3: ipc::ring_doorbell(victim.raw->submission_bell.get()); break;
      case 4:
        fixture.die(victim);
        std::erase_if(hostile, [&](const auto& client) { return client.get() == &victim; });
        break;
      case 5:
        if (cookies.size() < 40 && round % 8 == 0) {
          cookies.push_back(honest.submit(prompt_of(1 + static_cast<uint32_t>(prng.below(90)),
                                                    static_cast<TokenId>(cookies.size())), 20));
        }
        break;
    }
    fixture.clock.advance_ns(1'000'000);
    fixture.loop->turn(false);
    honest.read();
    ASSERT_TRUE(fixture.loop->verify().ok()) << "seed " << GetParam();
  }
  for (const auto& client : hostile) fixture.die(*client);
  hostile.clear();
  fixture.run_until_idle({&honest});
  EXPECT_FALSE(honest.session_ended);
  for (uint64_t cookie : cookies) {
    EXPECT_TRUE(honest[cookie].finished || honest[cookie].error != ErrorCode::kOk);
    EXPECT_EQ(honest[cookie].error, ErrorCode::kOk) << honest[cookie].sentence;
    EXPECT_EQ(honest[cookie].completion_tokens, honest[cookie].ids.size());
  }
  EXPECT_EQ(fixture.pages_free(), PageCount(256)) << "seed " << GetParam();
  EXPECT_EQ(fixture.loop->snapshot().sessions.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Hostile, testing::Range<uint64_t>(1, 13));

TEST(StepLoopAllocation, NothingIsAllocatedWhileAnswersStream) {
  LoopFixture fixture;
  FakeClient first = fixture.connect();
  FakeClient second = fixture.connect();
  first.submit(prompt_of(100), ipc::kUnlimitedTokens);
  second.submit(prompt_of(50), ipc::kUnlimitedTokens, ipc::kSubmitLogprobs);
  for (int i = 0; i < 40; ++i) fixture.loop->turn(false);
  const uint64_t published = fixture.loop->counters().tokens_published;
  for (int i = 0; i < 100; ++i) {
    [[maybe_unused]] const uint64_t before = counted_new::allocations;
    fixture.loop->turn(false);
    // The preset that walks every invariant after a step allocates in doing so.
#ifndef INFERD_VERIFY
    ASSERT_EQ(counted_new::allocations - before, 0u) << "in turn " << i;
#endif
    first.read();
    second.read();
  }
  EXPECT_EQ(fixture.loop->counters().tokens_published, published + 200);
}

}  // namespace
}  // namespace inferd::daemon
