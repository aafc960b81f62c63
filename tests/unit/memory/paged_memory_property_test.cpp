// PagedMemory under random operations, against a naive model that keeps each sequence's own
// content.
//
// The model writes a number into every position, and reads all sequences back through their page
// tables after each operation: whatever is shared, copied or reused, no sequence may see another's
// numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <list>
#include <map>
#include <set>
#include <vector>

#include "base/prng.h"
#include "memory/paged_memory.h"
#include "tests/unit/memory/memory_test_util.h"

namespace inferd::memory {
namespace {

constexpr uint32_t kPages = 24;
constexpr uint32_t kSequences = 6;
constexpr uint32_t kTokensMax = 120;
constexpr MemoryConfig kConfig{PageCount(kPages), kSequences, kTokensMax};

// One sequence: the handle under test, and what it should contain.
struct Sequence {
  PageTable table;
  UserId user;
  std::vector<uint64_t> content;
};

class RandomMemory {
 public:
  explicit RandomMemory(uint64_t seed)
      : prng_(seed),
        region_(PagedMemory::layout_bytes(kConfig)),
        memory_(kConfig, region_.span()),
        storage_(kPages, std::vector<uint64_t>(kPageTokens, 0)) {}

  ~RandomMemory() {
    for (Sequence& sequence : sequences_) memory_.sequences().close(sequence.table);
    memory_.pool().forfeit(held_);
  }

  void step() {
    switch (prng_.below(10)) {
      case 0:
        open();
        break;
      case 1:
        fork();
        break;
      case 2:
      case 3:
      case 4:
      case 5:
        append();
        break;
      case 6:
        truncate();
        break;
      case 7:
        close();
        break;
      case 8:
        rewrite();
        break;
      default:
        pool_operation();
        break;
    }
    check();
  }

  // The bytes elsewhere are the same memory.
  void check_moved() {
    TestRegion moved(region_.span().size());
    std::copy(region_.span().begin(), region_.span().end(), moved.span().begin());
    Result<std::unique_ptr<PagedMemory>> attached = PagedMemory::attach(moved.span());
    ASSERT_TRUE(attached.ok());
    PagedMemory& memory = **attached;
    for (Sequence& sequence : sequences_) {
      PageTable table = memory.sequences().adopt(sequence.table.id());
      ASSERT_TRUE(table.is_open());
      ASSERT_TRUE(std::ranges::equal(table.pages(), sequence.table.pages()));
      memory.sequences().close(table);
      ASSERT_EQ(verdict(memory.verify()), "");
    }
    ASSERT_EQ(memory.pool().counts().free.value, kPages);
  }

 private:
  Sequence* pick() {
    return sequences_.empty() ? nullptr : &sequences_[prng_.below(sequences_.size())];
  }
  UserId random_user() { return UserId(1000 + static_cast<uint32_t>(prng_.below(3))); }
  uint64_t& slot_of(const Sequence& sequence, uint32_t position) {
    const PageId page = sequence.table.pages()[position / kPageTokens];
    return storage_[page.value][position % kPageTokens];
  }
  void apply(const std::optional<PageCopy>& copy) {
    if (!copy) return;
    storage_[copy->to.value] = storage_[copy->from.value];
    note_taken(copy->to);
  }
  void note_taken(PageId page) {
    unannounced_.insert(page);
    std::erase(idle_, page);
  }
  // What is free after an operation but was not before became idle.
  void note_freed() {
    for (uint32_t index = 0; index < kPages; ++index) {
      const PageId page(index);
      const bool free = memory_.pool().state(page) == PageState::kFree;
      const bool known = std::find(idle_.begin(), idle_.end(), page) != idle_.end();
      if (free && used_.contains(page) && !known) idle_.push_back(page);
      if (free) {
        used_.erase(page);
        unannounced_.erase(page);
      } else {
        used_.insert(page);
      }
    }
  }

  void open() {
    if (memory_.sequences().full()) return;
    const UserId user = random_user();
    sequences_.push_back({memory_.sequences().open(SequenceId(++last_id_), user), user, {}});
  }

  void fork() {
    Sequence* parent = pick();
    if (parent == nullptr || memory_.sequences().full()) return;
    const UserId user = random_user();
    PageTable table = memory_.sequences().fork(parent->table, SequenceId(++last_id_), user);
    std::vector<uint64_t> content = parent->content;
    sequences_.push_back({std::move(table), user, std::move(content)});
  }

  void append() {
    Sequence* sequence = pick();
    if (sequence == nullptr) return;
    const uint32_t length = static_cast<uint32_t>(sequence->content.size());
    const uint32_t tokens =
        std::min(1 + static_cast<uint32_t>(prng_.below(40)), kTokensMax - length);
    if (tokens == 0) return;
    const PageCount needed = sequence->table.pages_needed(tokens);
    const PageCount free = memory_.pool().counts().free;
    Reservation reservation;
    const ReserveStatus status = memory_.pool().reserve(needed, reservation);
    ASSERT_EQ(status == ReserveStatus::kReserved, needed <= free);
    if (status != ReserveStatus::kReserved) return;
    const std::vector<PageId> before(sequence->table.pages().begin(),
                                     sequence->table.pages().end());
    apply(sequence->table.append(tokens, reservation));
    ASSERT_EQ(reservation.count().value, 0u);
    const std::span<const PageId> after = sequence->table.pages();
    for (size_t index = before.size(); index < after.size(); ++index) note_taken(after[index]);
    for (uint32_t i = 0; i < tokens; ++i) {
      sequence->content.push_back(prng_.next());
      slot_of(*sequence, length + i) = sequence->content.back();
    }
  }

  void truncate() {
    Sequence* sequence = pick();
    if (sequence == nullptr) return;
    const uint32_t tokens = static_cast<uint32_t>(prng_.below(sequence->content.size() + 1));
    sequence->table.truncate(tokens);
    sequence->content.resize(tokens);
  }

  void close() {
    if (sequences_.empty()) return;
    const size_t index = prng_.below(sequences_.size());
    memory_.sequences().close(sequences_[index].table);
    sequences_.erase(sequences_.begin() + static_cast<ptrdiff_t>(index));
  }

  // Changes one position in the middle.
  void rewrite() {
    Sequence* sequence = pick();
    if (sequence == nullptr || sequence->content.empty()) return;
    const uint32_t position = static_cast<uint32_t>(prng_.below(sequence->content.size()));
    Reservation reservation;
    if (memory_.pool().reserve(PageCount(1), reservation) != ReserveStatus::kReserved) return;
    apply(sequence->table.make_writable(position / kPageTokens, reservation));
    memory_.pool().forfeit(reservation);
    sequence->content[position] = prng_.next();
    slot_of(*sequence, position) = sequence->content[position];
  }

  void pool_operation() {
    std::vector<PageId> out(1 + prng_.below(kPages));
    switch (prng_.below(4)) {
      case 0: {
        const std::set<PageId> expected = unannounced_;
        std::set<PageId> found;
        size_t count = out.size();
        while (count == out.size()) {
          count = memory_.pool().drain_taken(out);
          for (size_t i = 0; i < count; ++i) ASSERT_TRUE(found.insert(out[i]).second);
        }
        ASSERT_EQ(found, expected);
        unannounced_.clear();
        break;
      }
      case 1: {
        const PageCount keep(static_cast<uint32_t>(prng_.below(6)));
        const size_t count = memory_.pool().give_back(keep, out);
        const size_t surplus = idle_.size() > keep.value ? idle_.size() - keep.value : 0;
        ASSERT_EQ(count, std::min(out.size(), surplus));
        for (size_t i = 0; i < count; ++i) {
          // Freed in one operation, pages may be in either order: one of the coldest will do.
          const auto place = std::find(idle_.begin(), idle_.end(), out[i]);
          ASSERT_NE(place, idle_.end());
          idle_.erase(place);
        }
        break;
      }
      case 2:
        if (memory_.pool().reserve(PageCount(static_cast<uint32_t>(prng_.below(4))), held_) !=
            ReserveStatus::kReserved) {
          memory_.pool().forfeit(held_);
        }
        break;
      default:
        memory_.pool().forfeit(held_);
        break;
    }
  }

  void check() {
    note_freed();
    ASSERT_EQ(verdict(memory_.verify()), "");
    std::map<PageId, std::vector<UserId>> holders;
    for (const Sequence& sequence : sequences_) {
      ASSERT_EQ(sequence.table.tokens(), sequence.content.size());
      for (uint32_t position = 0; position < sequence.content.size(); ++position) {
        ASSERT_EQ(slot_of(sequence, position), sequence.content[position]);
      }
      for (PageId page : sequence.table.pages()) holders[page].push_back(sequence.user);
    }
    const PageCounts counts = memory_.pool().counts();
    ASSERT_EQ((counts.free + counts.reserved + counts.owned + counts.shared + counts.cached).value,
              kPages);
    ASSERT_EQ(counts.reserved, held_.count());
    ASSERT_EQ(counts.live().value, holders.size());
    ASSERT_EQ(counts.idle.value, idle_.size());
    check_charges(holders);
  }

  // A page is charged to a user who holds it, and stays with that user while they do.
  void check_charges(const std::map<PageId, std::vector<UserId>>& holders) {
    std::map<UserId, uint32_t> charged;
    for (const auto& [page, users] : holders) {
      const UserId user = memory_.pool().charged_to(page);
      ASSERT_NE(std::find(users.begin(), users.end(), user), users.end());
      // One operation never frees a page and hands it out again, so a page that was held before it
      // and after it was held throughout.
      const auto former = charges_.find(page);
      if (former != charges_.end() &&
          std::find(users.begin(), users.end(), former->second) != users.end()) {
        ASSERT_EQ(user, former->second);
      }
      ++charged[user];
    }
    charges_.clear();
    for (const auto& [page, users] : holders) charges_[page] = memory_.pool().charged_to(page);
    for (uint32_t id = 999; id < 1004; ++id) {
      const auto found = charged.find(UserId(id));
      ASSERT_EQ(memory_.pool().charged_pages(UserId(id)).value,
                found == charged.end() ? 0u : found->second);
    }
  }

  Prng prng_;
  TestRegion region_;
  PagedMemory memory_;
  std::vector<std::vector<uint64_t>> storage_;  // [pages, 16] what the "engine" holds
  std::vector<Sequence> sequences_;
  Reservation held_;
  uint64_t last_id_ = 0;
  std::set<PageId> used_;
  std::set<PageId> unannounced_;
  std::vector<PageId> idle_;
  std::map<PageId, UserId> charges_;
};

uint64_t seed_count() {
  const char* text = std::getenv("INFERD_TEST_SEEDS");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 300;
}

TEST(PagedMemoryProperty, NoSequenceSeesAnothersContentAndEverySumHolds) {
  for (uint64_t seed = 1; seed <= seed_count(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomMemory memory(seed);
    for (int step = 0; step < 200; ++step) {
      memory.step();
      if (HasFatalFailure()) return;
    }
    memory.check_moved();
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace inferd::memory
