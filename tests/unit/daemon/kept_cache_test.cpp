// What an orderly end leaves for the next start, and what is refused of it.
#include "daemon/kept_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "memory/paged_memory.h"
#include "tests/unit/daemon/temp_dir.h"

namespace inferd::daemon {
namespace {

using testing::HasSubstr;

TierIndex sample_index() {
  TierIndex index;
  index.content_id = "aabb";
  index.numerics_id = "ccdd";
  index.page_bytes = 4096;
  index.slots = 10;
  index.domains = {"user:1000", "shared:devs"};
  for (uint32_t i = 0; i < 6; ++i) {
    TierIndex::Entry entry;
    entry.parent = i == 0 || i == 4 ? TierIndex::kNone : i - 1;
    entry.domain = i >= 4 ? 1 : 0;
    entry.position = 9 - i;
    entry.checksum = i * 0x0123456789abcdefull;
    if (i < 3 || i == 4) entry.pinned_for = UserId(i == 2 ? 1001 : 1000);
    for (uint32_t k = 0; k < kPageTokens; ++k) entry.tokens[k] = static_cast<TokenId>(i * 100 + k);
    index.entries.push_back(entry);
  }
  return index;
}

engine::ModelInfo sample_model() {
  engine::ModelInfo model;
  model.content_id = "aabb";
  model.numerics_id = "ccdd";
  model.page_bytes = Bytes(4096);
  return model;
}

TEST(TierIndexBytes, ComeBackAsTheyWere) {
  const TierIndex index = sample_index();
  const Result<TierIndex> read = decode_tier_index(encode_tier_index(index));
  ASSERT_TRUE(read.ok()) << read.error().message();
  EXPECT_EQ(*read, index);
  const Result<TierIndex> empty = decode_tier_index(encode_tier_index(TierIndex{}));
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE(empty->entries.empty());
}

TEST(TierIndexBytes, EveryCutAndEveryFlippedBitIsRefused) {
  const std::vector<std::byte> good = encode_tier_index(sample_index());
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(decode_tier_index(std::span(good).first(length)).ok()) << length;
  }
  for (size_t bit = 0; bit < good.size() * 8; bit += 5) {
    std::vector<std::byte> bytes = good;
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    EXPECT_FALSE(decode_tier_index(bytes).ok()) << bit;
  }
}

// With a right sum, what it says is looked at all the same.
TEST(TierIndexBytes, ContradictionsAreRefused) {
  const auto refused = [](void (*spoil)(TierIndex&), const char* words) {
    TierIndex index = sample_index();
    spoil(index);
    const Result<TierIndex> read = decode_tier_index(encode_tier_index(index));
    ASSERT_FALSE(read.ok()) << words;
    EXPECT_THAT(read.error().message(), HasSubstr(words));
  };
  refused([](TierIndex& i) { i.entries[2].parent = 2; }, "comes before");
  refused([](TierIndex& i) { i.entries[2].parent = 77; }, "comes before");
  refused([](TierIndex& i) { i.entries[5].parent = 1; }, "belongs to nobody");
  refused([](TierIndex& i) { i.entries[3].domain = 2; }, "belongs to nobody");
  refused([](TierIndex& i) { i.entries[3].position = 10; }, "beyond the end");
  refused([](TierIndex& i) { i.entries[3].position = 9; }, "at one place");
  refused([](TierIndex& i) { i.entries[1].pinned_for = TierIndex::kNobody; }, "follows one that");
  refused([](TierIndex& i) { i.slots = 5; }, "length is wrong");
}

class KeptCache : public testing::Test {
 protected:
  void write() { ASSERT_TRUE(write_kept_index(directory_.path(), sample_index()).ok()); }
  std::string path(const char* name) const { return directory_.path() + "/" + name; }
  bool exists(const char* name) const { return ::access(path(name).c_str(), F_OK) == 0; }

  TempDir directory_;
};

TEST_F(KeptCache, IsPrivateAndReadOnce) {
  write();
  struct stat status {};
  ASSERT_EQ(::stat(path(kTierIndexName).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  const KeptIndex kept = take_kept_index(directory_.path(), sample_model());
  ASSERT_TRUE(kept.index.has_value()) << kept.why;
  EXPECT_EQ(*kept.index, sample_index());
  EXPECT_FALSE(exists(kTierIndexName));
  const KeptIndex none = take_kept_index(directory_.path(), sample_model());
  EXPECT_FALSE(none.index.has_value());
  EXPECT_EQ(none.why, "");
}

TEST_F(KeptCache, OfAnotherModelOrOtherKernelsIsRefusedAndRemoved) {
  engine::ModelInfo other = sample_model();
  other.content_id = "ffff";
  write();
  EXPECT_THAT(take_kept_index(directory_.path(), other).why, HasSubstr("another model"));
  EXPECT_FALSE(exists(kTierIndexName));
  other = sample_model();
  other.numerics_id = "ffff";
  write();
  EXPECT_THAT(take_kept_index(directory_.path(), other).why, HasSubstr("other kernels"));
  std::ofstream(path(kTierIndexName)) << "no index";
  EXPECT_THAT(take_kept_index(directory_.path(), sample_model()).why, HasSubstr("damaged"));
}

TEST_F(KeptCache, ALinkIsNotFollowed) {
  write();
  ASSERT_EQ(::rename(path(kTierIndexName).c_str(), path("elsewhere").c_str()), 0);
  ASSERT_EQ(::symlink(path("elsewhere").c_str(), path(kTierIndexName).c_str()), 0);
  EXPECT_FALSE(take_kept_index(directory_.path(), sample_model()).index.has_value());
  EXPECT_TRUE(exists("elsewhere"));
}

TEST_F(KeptCache, ADirectoryThatOthersCanWriteToIsRefused) {
  const std::string made = directory_.path() + "/made";
  {
    const Result<UniqueFd> taken = take_tier_directory(made);
    ASSERT_TRUE(taken.ok());
    EXPECT_EQ(take_tier_directory(made).error().code(), ErrorCode::kUnavailable);
    std::ofstream(made + "/" + kTierFileName) << "pages";
    remove_unused(made);
    EXPECT_EQ(::access((made + "/" + kTierFileName).c_str(), F_OK), 0);
  }
  remove_unused(made);
  EXPECT_NE(::access((made + "/" + kTierFileName).c_str(), F_OK), 0);
  struct stat status {};
  ASSERT_EQ(::stat(made.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  ASSERT_EQ(::chmod(made.c_str(), 0777), 0);
  EXPECT_EQ(take_tier_directory(made).error().code(), ErrorCode::kPermissionDenied);
  EXPECT_FALSE(take_tier_directory(made + "/not/there").ok());
}

// A memory and a next tier with room for nine pages.
struct Nine {
  explicit Nine(const std::string& path)
      : tier(std::move(DiskTier::open({.path = path,
                                       .keep_file = true,
                                       .page_bytes = Bytes(4096),
                                       .slots = 9},
                                      clock, [] {}))
                 .value()) {}

  Restored restore(const TierIndex& index, uint32_t user_pinned_pages) {
    const Restored restored =
        restore_kept(index, CacheDomains(), user_pinned_pages, memory.prefixes(), *tier);
    EXPECT_TRUE(memory.verify().ok()) << memory.verify().error().message();
    return restored;
  }
  TierIndex describe() const {
    return describe_kept(sample_model(), CacheDomains(), memory.prefixes(), *tier);
  }

  ManualClock clock;
  memory::PagedMemory memory{{.pages = PageCount(16),
                              .sequences_max = 2,
                              .sequence_tokens_max = 128,
                              .tier_slots = 9}};
  std::unique_ptr<DiskTier> tier;
};

// The sample's positions, so that all are within nine pages.
TierIndex index_of_nine() {
  TierIndex index = sample_index();
  for (TierIndex::Entry& entry : index.entries) entry.position = (entry.position + 5) % 9;
  return index;
}

TEST_F(KeptCache, IsPutBackAsFarAsItFitsAndItsDomainsExist) {
  Nine nine(path(kTierFileName));
  TierIndex index = sample_index();
  // User 1000's first page is beyond the end, and all follow it; the shared domain is not configured
  // any more.
  EXPECT_EQ(nine.restore(index, 10).pages, 0u);
  index = index_of_nine();
  EXPECT_EQ(nine.restore(index, 10).pages, 4u);
  const TierIndex again = nine.describe();
  ASSERT_EQ(again.entries.size(), 4u);
  EXPECT_EQ(again.domains, (std::vector<std::string>{"user:1000"}));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(again.entries[i].position, index.entries[i].position);
    EXPECT_EQ(again.entries[i].checksum, index.entries[i].checksum);
    EXPECT_EQ(again.entries[i].tokens, index.entries[i].tokens);
    EXPECT_EQ(again.entries[i].pinned_for, index.entries[i].pinned_for);
  }
}

TEST_F(KeptCache, IsPinnedAsItWasAndPinsStayUnderOnesOwnName) {
  Nine nine(path(kTierFileName));
  const Restored restored = nine.restore(index_of_nine(), 2);
  EXPECT_EQ(restored.pinned, 3u);
  EXPECT_EQ(restored.not_pinned, 0u);
  const memory::PrefixIndex& prefixes = nine.memory.prefixes();
  EXPECT_EQ(prefixes.pinned_pages(UserId(1000)), 2u);
  EXPECT_EQ(prefixes.pinned_pages(UserId(1001)), 1u);
  // User 1000's stand before the other's.
  EXPECT_EQ(nine.memory.prefixes().unpin(UserId(1000)), 0u);
  EXPECT_EQ(nine.memory.prefixes().unpin(UserId(1001)), 1u);
  EXPECT_EQ(nine.memory.prefixes().unpin(UserId(1000)), 2u);
  for (const TierIndex::Entry& entry : nine.describe().entries) {
    EXPECT_EQ(entry.pinned_for, TierIndex::kNobody);
  }
}

TEST_F(KeptCache, IsPinnedUpToTheLimitAndNothingBehindWhatIsNot) {
  Nine nine(path(kTierFileName));
  const Restored restored = nine.restore(index_of_nine(), 1);
  EXPECT_EQ(restored.pages, 4u);
  EXPECT_EQ(restored.pinned, 1u);
  EXPECT_EQ(restored.not_pinned, 2u);
  EXPECT_EQ(nine.memory.prefixes().pinned_pages(UserId(1000)), 1u);
  EXPECT_EQ(nine.memory.prefixes().pinned_pages(UserId(1001)), 0u);
}

TEST(CacheDomainNames, AreTheSameWhateverTheOrderOfTheConfiguration) {
  Config::CacheDomain one, two;
  one.name = "one";
  two.name = "two";
  one.users = two.users = {"0"};
  const CacheDomains before = *CacheDomains::resolve({one, two});
  const CacheDomains after = *CacheDomains::resolve({two, one});
  const CacheDomain domain = *before.shared("two", UserId(0), {});
  EXPECT_EQ(before.name_of(domain), "shared:two");
  EXPECT_EQ(after.find("shared:two"), *after.shared("two", UserId(0), {}));
  EXPECT_EQ(after.find("shared:three"), std::nullopt);
  EXPECT_EQ(after.name_of(CacheDomains::of_user(UserId(1000))), "user:1000");
  EXPECT_EQ(after.find("user:1000"), CacheDomains::of_user(UserId(1000)));
  for (const char* name : {"user:", "user:x", "user:1000x", "user:99999999999", "", "two"}) {
    EXPECT_EQ(after.find(name), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace inferd::daemon
