// The next tier on disk: content comes back exactly, or counts as lost; nobody waits for the disk.
#include "daemon/disk_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <vector>

#include "tests/unit/daemon/loop_fixture.h"
#include "tests/unit/daemon/temp_dir.h"

namespace inferd::daemon {
namespace {

using memory::FetchState;
using memory::SlotRef;
using testing::HasSubstr;

constexpr uint32_t kPageBytes = 8192;

class DiskTierTest : public testing::Test {
 protected:
  std::unique_ptr<DiskTier> open(bool keep = true, uint32_t slots = 16) {
    Result<std::unique_ptr<DiskTier>> tier = DiskTier::open({.path = path_,
                                                             .keep_file = keep,
                                                             .page_bytes = Bytes(kPageBytes),
                                                             .slots = slots,
                                                             .buffers = 4},
                                                            clock_, [] {});
    EXPECT_TRUE(tier.ok()) << tier.error().message();
    return std::move(tier).value();
  }
  static std::vector<std::byte> content(uint32_t seed) {
    std::vector<std::byte> bytes(kPageBytes);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(seed * 31 + i * i);
    return bytes;
  }
  static void store(DiskTier& tier, SlotRef slot, uint32_t seed) {
    const std::vector<std::byte> bytes = content(seed);
    std::copy(bytes.begin(), bytes.end(), tier.store(slot).begin());
    tier.finish();
  }
  static FetchState fetch(DiskTier& tier, SlotRef slot) {
    const FetchState first = tier.fetch(slot);
    if (first != FetchState::kComing) return first;
    tier.finish();
    return tier.fetch(slot);
  }
  // What is in the slot; empty if it is not what was stored.
  static std::vector<std::byte> read(DiskTier& tier, SlotRef slot) {
    if (fetch(tier, slot) != FetchState::kHere) return {};
    const std::span<const std::byte> bytes = tier.load(slot);
    std::vector<std::byte> copy(bytes.begin(), bytes.end());
    tier.end_loads();
    return copy;
  }
  static std::vector<SlotRef> lost(DiskTier& tier) {
    std::vector<SlotRef> all;
    while (const auto one = tier.take_lost()) all.push_back(*one);
    return all;
  }

  ManualClock clock_;
  TempDir directory_;
  const std::string path_ = directory_.path() + "/pages";
};

TEST_F(DiskTierTest, WhatIsStoredComesBack) {
  const auto tier = open();
  for (uint32_t i = 0; i < 16; ++i) store(*tier, {i, 1}, i);
  for (uint32_t i = 16; i-- > 0;) EXPECT_EQ(read(*tier, {i, 1}), content(i));
  store(*tier, {3, 2}, 77);
  EXPECT_EQ(read(*tier, {3, 2}), content(77));
  EXPECT_EQ(fetch(*tier, {3, 1}), FetchState::kLost);  // the old one is no longer there
  EXPECT_EQ(fetch(*tier, {9, 4}), FetchState::kLost);
  EXPECT_TRUE(lost(*tier).empty());
  EXPECT_EQ(tier->counters().pages_stored, 17u);
  EXPECT_EQ(tier->counters().pages_loaded, 17u);
}

TEST_F(DiskTierTest, ASlotCanBeReadWhileItIsStillBeingWritten) {
  const auto tier = open();
  const std::vector<std::byte> bytes = content(5);
  std::copy(bytes.begin(), bytes.end(), tier->store({2, 1}).begin());
  EXPECT_EQ(tier->fetch({2, 1}), FetchState::kComing);
  tier->finish();
  EXPECT_EQ(read(*tier, {2, 1}), bytes);
}

TEST_F(DiskTierTest, BuffersAreBoundedAndComeBack) {
  const auto tier = open();
  EXPECT_EQ(tier->stores_free(), 4u);
  for (uint32_t i = 0; i < 4; ++i) static_cast<void>(tier->store({i, 1}));
  EXPECT_EQ(tier->stores_free(), 0u);
  tier->finish();
  EXPECT_EQ(tier->stores_free(), 4u);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(tier->fetch({i, 1}), FetchState::kComing);
  tier->finish();
  EXPECT_EQ(tier->fetch({0, 1}), FetchState::kHere);
  EXPECT_EQ(tier->fetch({9, 1}), FetchState::kComing);  // without a buffer
  clock_.advance_ns(600'000'000);
  // What nobody loads gives way.
  store(*tier, {9, 1}, 9);
  EXPECT_EQ(read(*tier, {9, 1}), content(9));
}

TEST_F(DiskTierTest, SeveralMayLoadTheSame) {
  const auto tier = open();
  store(*tier, {1, 1}, 1);
  ASSERT_EQ(fetch(*tier, {1, 1}), FetchState::kHere);
  static_cast<void>(tier->load({1, 1}));
  EXPECT_EQ(tier->fetch({1, 1}), FetchState::kHere);
  static_cast<void>(tier->load({1, 1}));
  tier->end_loads();
  EXPECT_EQ(tier->fetch({1, 1}), FetchState::kComing);
  tier->finish();
}

TEST_F(DiskTierTest, OneFlippedBitIsNoticed) {
  const auto tier = open();
  store(*tier, {5, 1}, 5);
  store(*tier, {6, 1}, 6);
  const int file = ::open(path_.c_str(), O_RDWR);
  ASSERT_GE(file, 0);
  std::byte bit;
  ASSERT_EQ(::pread(file, &bit, 1, 5 * kPageBytes + 4711), 1);
  bit ^= std::byte{8};
  ASSERT_EQ(::pwrite(file, &bit, 1, 5 * kPageBytes + 4711), 1);
  ::close(file);
  EXPECT_EQ(fetch(*tier, {5, 1}), FetchState::kLost);
  EXPECT_EQ(lost(*tier), (std::vector<SlotRef>{{5, 1}}));
  EXPECT_EQ(read(*tier, {6, 1}), content(6));
  EXPECT_EQ(tier->counters().pages_lost, 1u);
  const std::optional<Error> trouble = tier->take_trouble();
  ASSERT_TRUE(trouble.has_value());
  EXPECT_THAT(trouble->message(), HasSubstr("computed again"));
  EXPECT_FALSE(tier->take_trouble().has_value());
}

TEST_F(DiskTierTest, ACutFileLosesWhatWasBehindTheCut) {
  const auto tier = open();
  for (uint32_t i = 0; i < 4; ++i) store(*tier, {i, 1}, i);
  ASSERT_EQ(::truncate(path_.c_str(), 2 * kPageBytes + 100), 0);
  EXPECT_EQ(read(*tier, {1, 1}), content(1));
  EXPECT_EQ(fetch(*tier, {2, 1}), FetchState::kLost);
  EXPECT_EQ(fetch(*tier, {3, 1}), FetchState::kLost);
  store(*tier, {3, 2}, 33);  // writing makes it longer again
  EXPECT_EQ(read(*tier, {3, 2}), content(33));
}

TEST_F(DiskTierTest, ARemovedFileGoesOnServing) {
  const auto tier = open();
  store(*tier, {0, 1}, 1);
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  EXPECT_EQ(read(*tier, {0, 1}), content(1));
  store(*tier, {1, 1}, 2);
  EXPECT_EQ(read(*tier, {1, 1}), content(2));
}

// A limit on file sizes stands for the full disk: the write fails, and that is all.
TEST_F(DiskTierTest, WhatCannotBeWrittenIsLostAndNothingIsStoredForAWhile) {
  const auto tier = open();
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 4 * kPageBytes;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  store(*tier, {2, 1}, 2);
  store(*tier, {7, 1}, 7);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(lost(*tier), (std::vector<SlotRef>{{7, 1}}));
  EXPECT_EQ(tier->stores_free(), 0u);
  EXPECT_EQ(tier->counters().store_failures, 1u);
  EXPECT_THAT(tier->take_trouble()->message(), HasSubstr("cannot store cached pages"));
  EXPECT_EQ(read(*tier, {2, 1}), content(2));
  EXPECT_EQ(fetch(*tier, {7, 1}), FetchState::kLost);
  clock_.advance_ns(10'000'000'001);
  EXPECT_EQ(tier->stores_free(), 4u);
}

TEST_F(DiskTierTest, ErasedContentIsNowhere) {
  const auto tier = open();
  for (uint32_t i = 0; i < 3; ++i) store(*tier, {i, 1}, i);
  tier->erase_unused([](uint32_t slot) { return slot == 1; });
  tier->finish();
  EXPECT_EQ(fetch(*tier, {0, 1}), FetchState::kLost);
  EXPECT_EQ(read(*tier, {1, 1}), content(1));
  const int file = ::open(path_.c_str(), O_RDONLY);
  std::vector<std::byte> bytes(kPageBytes);
  ASSERT_EQ(::pread(file, bytes.data(), bytes.size(), 0), kPageBytes);
  ::close(file);
  EXPECT_EQ(bytes, std::vector<std::byte>(kPageBytes));
}

TEST_F(DiskTierTest, ItsFileIsPrivateAndOfOneDaemon) {
  const mode_t before = ::umask(0);
  const auto tier = open();
  ::umask(before);
  struct stat status {};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  const auto second = DiskTier::open(
      {.path = path_, .keep_file = true, .page_bytes = Bytes(kPageBytes), .slots = 4}, clock_,
      [] {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(second.error().message(), HasSubstr("another daemon"));
}

TEST_F(DiskTierTest, AFileThatIsNotKeptHasNoName) {
  const auto tier = open(false);
  EXPECT_NE(::access(path_.c_str(), F_OK), 0);
  store(*tier, {1, 1}, 1);
  EXPECT_EQ(read(*tier, {1, 1}), content(1));
}

TEST_F(DiskTierTest, AnotherDaemonTakesItOver) {
  std::vector<StoredPage> pages;
  {
    const auto tier = open();
    for (uint32_t i = 0; i < 5; ++i) store(*tier, {i, 3}, i);
    EXPECT_FALSE(tier->stored_page({0, 2}).has_value());
    for (uint32_t i = 0; i < 5; ++i) pages.push_back(*tier->stored_page({i, 3}));
    EXPECT_TRUE(tier->sync().ok());
  }
  const auto tier = open();
  // The slots have other numbers now.
  for (uint32_t i = 0; i < 5; ++i) tier->adopt({(i + 2) % 5, 1}, pages[i]);
  for (uint32_t i = 0; i < 5; ++i) EXPECT_EQ(read(*tier, {(i + 2) % 5, 1}), content(i));
  for (uint32_t i = 5; i < 16; ++i) store(*tier, {i, 1}, 100 + i);
  for (uint32_t i = 0; i < 5; ++i) EXPECT_EQ(read(*tier, {(i + 2) % 5, 1}), content(i));
  for (uint32_t i = 5; i < 16; ++i) EXPECT_EQ(read(*tier, {i, 1}), content(100 + i));
}

// ---- in the step loop ----

class TierLoop : public testing::Test {
 protected:
  TierLoop() {
    tier_ = std::move(DiskTier::open({.path = directory_.path() + "/pages",
                                      .keep_file = true,
                                      .page_bytes = Bytes(4096),
                                      .slots = 200,
                                      .buffers = 16},
                                     fixture_.clock, [] {}))
                .value();
    fixture_.attach_tier(*tier_);
  }
  // As run_until_idle(), with time for the disk.
  void run(FakeClient& client) {
    for (int round = 0; round < 200; ++round) {
      fixture_.run_until_idle({&client});
      tier_->finish();
      if (fixture_.scheduler.idle()) return;
    }
    ADD_FAILURE() << "still waiting for the disk";
  }

  TempDir directory_;
  LoopFixture fixture_{{.pages = 24, .context_tokens = 384, .tier_slots = 200}};
  std::unique_ptr<DiskTier> tier_;
};

TEST_F(TierLoop, ManyPromptsThroughASmallPoolComeBackFromDisk) {
  FakeClient client = fixture_.connect();
  for (int round = 0; round < 2; ++round) {
    for (TokenId text = 1; text <= 6; ++text) {
      const uint64_t cookie = client.submit(prompt_of(200, text), 5);
      run(client);
      EXPECT_EQ(client[cookie].ids, fake_answer(prompt_of(200, text), 5)) << "text " << text;
      EXPECT_EQ(client[cookie].cached_tokens, round == 1 ? 192u : 0u);
    }
  }
  EXPECT_GT(tier_->counters().pages_loaded, 50u);
}

TEST_F(TierLoop, WhatWasFlushedIsGoneFromBothTiers) {
  FakeClient client = fixture_.connect();
  for (TokenId text = 1; text <= 4; ++text) {
    client.submit(prompt_of(200, text), 2);
    run(client);
  }
  ASSERT_GT(fixture_.memory.prefixes().slots_used(), 10u);
  EXPECT_EQ(fixture_.loop->flush_cache(std::nullopt), 48u);
  EXPECT_EQ(fixture_.memory.prefixes().nodes(), 0u);
  const uint64_t cookie = client.submit(prompt_of(200, 1), 2);
  run(client);
  EXPECT_EQ(client[cookie].cached_tokens, 0u);
  EXPECT_EQ(client[cookie].ids, fake_answer(prompt_of(200, 1), 2));
}

TEST_F(TierLoop, ADamagedFileCostsTimeAndNothingElse) {
  FakeClient client = fixture_.connect();
  for (TokenId text = 1; text <= 4; ++text) {
    client.submit(prompt_of(200, text), 2);
    run(client);
  }
  const int file = ::open((directory_.path() + "/pages").c_str(), O_WRONLY);
  ASSERT_GE(file, 0);
  const std::vector<std::byte> noise(4096 * 200, std::byte{0x5a});
  ASSERT_EQ(::pwrite(file, noise.data(), noise.size(), 0), static_cast<ssize_t>(noise.size()));
  ::close(file);
  for (TokenId text = 1; text <= 4; ++text) {
    const uint64_t cookie = client.submit(prompt_of(200, text), 6);
    run(client);
    EXPECT_EQ(client[cookie].ids, fake_answer(prompt_of(200, text), 6)) << "text " << text;
  }
  EXPECT_GT(tier_->counters().pages_lost, 0u);
  EXPECT_EQ(fixture_.troubles.size(), 1u);
}

TEST_F(TierLoop, NothingOfARequestWithoutACacheGetsToDisk) {
  FakeClient client = fixture_.connect();
  for (TokenId text = 1; text <= 4; ++text) {
    client.submit(prompt_of(200, text), 2, ipc::kSubmitNoStore);
    run(client);
  }
  fixture_.loop->store_cache();
  EXPECT_EQ(tier_->counters().pages_stored, 0u);
}

TEST_F(TierLoop, EverythingCachedIsStoredForARestart) {
  FakeClient client = fixture_.connect();
  client.submit(prompt_of(200, 1), 2);
  run(client);
  fixture_.loop->store_cache();
  EXPECT_EQ(fixture_.memory.prefixes().slots_used(), fixture_.memory.prefixes().nodes());
  uint32_t readable = 0;
  fixture_.memory.prefixes().visit_stored(
      [&](uint32_t, uint32_t, CacheDomain, memory::SlotRef slot, std::span<const TokenId>) {
        readable += tier_->stored_page(slot).has_value() ? 1 : 0;
      });
  EXPECT_EQ(readable, 12u);
}

}  // namespace
}  // namespace inferd::daemon
