// Prompts that clients pin over their rings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/daemon/loop_fixture.h"

namespace inferd::daemon {
namespace {

using testing::HasSubstr;

uint32_t pinned_pages(const LoopFixture& fixture, uint32_t uid) {
  return fixture.memory.prefixes().pinned_pages(UserId(uid));
}

// Computes a prompt, so that it is cached.
void run(LoopFixture& fixture, FakeClient& client, const std::vector<TokenId>& prompt) {
  const uint64_t cookie = client.submit(prompt, 1);
  fixture.run_until_idle({&client});
  ASSERT_TRUE(client[cookie].finished) << client[cookie].sentence;
}

TEST(Pins, TheWholePagesOfAPromptThatWasRunAreItsUsers) {
  LoopFixture fixture;
  FakeClient client = fixture.connect(), other = fixture.connect(1001);
  run(fixture, client, prompt_of(50));
  const uint64_t own = client.pin(prompt_of(50));
  // What is cached of a longer one is pinned, too, and only that.
  std::vector<TokenId> longer = prompt_of(50);
  longer.resize(200, 9);
  const uint64_t part = client.pin(longer);
  const uint64_t others = other.pin(prompt_of(50));  // another domain
  fixture.run_until_idle({&client, &other});
  EXPECT_EQ(client[own].error, ErrorCode::kOk) << client[own].sentence;
  EXPECT_EQ(client[own].pinned_tokens, 48u);
  EXPECT_EQ(client[part].pinned_tokens, 48u);
  EXPECT_EQ(other[others].error, ErrorCode::kNotFound);
  EXPECT_THAT(other[others].sentence, HasSubstr("run it first"));
  EXPECT_EQ(pinned_pages(fixture, 1000), 3u);
  // They outlast the connection, and end for the user by any other.
  fixture.loop->remove_session(SessionId(1));
  FakeClient later = fixture.connect();
  EXPECT_EQ(pinned_pages(fixture, 1000), 3u);
  const uint64_t not_theirs = other.unpin();
  fixture.run_until_idle({&other, &later});
  EXPECT_EQ(other[not_theirs].pinned_tokens, 0u);
  EXPECT_EQ(pinned_pages(fixture, 1000), 3u);
  const uint64_t ended = later.unpin();
  fixture.run_until_idle({&later});
  EXPECT_EQ(later[ended].pinned_tokens, 48u);
  EXPECT_EQ(pinned_pages(fixture, 1000), 0u);
}

TEST(Pins, BeyondTheLimitNothingIsPinnedAndTheLimitIsNamed) {
  LoopFixture fixture({.user_pinned_pages = 4});
  FakeClient client = fixture.connect();
  run(fixture, client, prompt_of(48));
  run(fixture, client, prompt_of(48, 2));
  const uint64_t first = client.pin(prompt_of(48));
  const uint64_t second = client.pin(prompt_of(48, 2));
  const uint64_t shorter = client.pin(prompt_of(16, 2));
  fixture.run_until_idle({&client});
  EXPECT_EQ(client[first].pinned_tokens, 48u);
  EXPECT_EQ(client[second].error, ErrorCode::kResourceExhausted);
  EXPECT_THAT(client[second].sentence, HasSubstr("6 pages pinned"));
  EXPECT_THAT(client[second].sentence, HasSubstr("user_pinned_pages allows 4"));
  EXPECT_EQ(client[shorter].pinned_tokens, 16u);
  EXPECT_EQ(pinned_pages(fixture, 1000), 4u);
}

TEST(Pins, ASharedDomainsPromptIsPinnedThere) {
  const CacheDomain shared(77);
  LoopFixture fixture;
  FakeClient one = fixture.connect(1000, nullptr, false, shared);
  FakeClient two = fixture.connect(1001, nullptr, false, shared);
  run(fixture, one, prompt_of(40));
  const uint64_t beginning = two.pin(prompt_of(16));
  fixture.run_until_idle({&one, &two});
  const uint64_t whole = one.pin(prompt_of(40));
  fixture.run_until_idle({&one, &two});
  EXPECT_EQ(two[beginning].pinned_tokens, 16u);
  EXPECT_EQ(one[whole].pinned_tokens, 32u);
  EXPECT_EQ(pinned_pages(fixture, 1000), 1u);  // the other's page is pinned already
  EXPECT_EQ(pinned_pages(fixture, 1001), 1u);
  // What stands before another's pin stays.
  const uint64_t ended = two.unpin();
  fixture.run_until_idle({&one, &two});
  EXPECT_EQ(two[ended].pinned_tokens, 0u);
  EXPECT_EQ(pinned_pages(fixture, 1001), 1u);
}

TEST(Pins, WhatMakesNoSenseIsRefusedInASentence) {
  LoopFixture fixture;
  FakeClient client = fixture.connect();
  std::vector<TokenId> wrong = prompt_of(40);
  wrong[20] = 50;  // the first id that the model has not
  const uint64_t outside = client.pin(wrong);
  const uint64_t empty = client.pin({});
  client.put(ipc::PinRecord{{ipc::kPin, 1, 0, 0, 100}, UINT32_MAX - 3, 16, {}});
  client.put(ipc::PinRecord{{ipc::kUnpin, 1, 0, 0, 101}, 0, 16, {}});
  fixture.run_until_idle({&client});
  EXPECT_EQ(client[outside].error, ErrorCode::kInvalidArgument);
  EXPECT_THAT(client[outside].sentence, HasSubstr("token id 50"));
  EXPECT_EQ(client[empty].error, ErrorCode::kInvalidArgument);
  EXPECT_THAT(client[empty].sentence, HasSubstr("no tokens"));
  EXPECT_THAT(client[100].sentence, HasSubstr("outside the arena"));
  EXPECT_THAT(client[101].sentence, HasSubstr("end together"));
  EXPECT_FALSE(client.session_ended);

  LoopFixture without({.prefix_cache = false});
  FakeClient poor = without.connect();
  run(without, poor, prompt_of(40));
  const uint64_t never = poor.pin(prompt_of(40));
  without.run_until_idle({&poor});
  EXPECT_EQ(poor[never].error, ErrorCode::kUnsupported);
  EXPECT_THAT(poor[never].sentence, HasSubstr("prefix_cache is false"));
}

TEST(Pins, PinnedPromptsOutlastThoseThatAreNot) {
  LoopFixture fixture({.pages = 32});
  FakeClient client = fixture.connect();
  run(fixture, client, prompt_of(128));
  const uint64_t pinned = client.pin(prompt_of(128));
  fixture.run_until_idle({&client});
  for (TokenId seed = 2; seed < 12; ++seed) {
    client.rewind_arena();
    run(fixture, client, prompt_of(200, seed));
  }
  EXPECT_EQ(client[pinned].pinned_tokens, 128u);
  const uint64_t again = client.submit(prompt_of(128), 1);
  fixture.run_until_idle({&client});
  EXPECT_EQ(client[again].cached_tokens, 127u);
}

}  // namespace
}  // namespace inferd::daemon
