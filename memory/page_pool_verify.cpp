// PagePool::verify(): every invariant of the pool, walked.
#include <string>
#include <vector>

#include "memory/page_pool.h"

namespace inferd::memory {

namespace {

Error violation(std::string message) {
  return Error(ErrorCode::kInternal, "page pool: " + std::move(message));
}

std::string page_text(uint32_t index) { return "page " + std::to_string(index); }

}  // namespace

Result<void> PagePool::verify() const {
  INFERD_TRY(verify_records());
  INFERD_TRY(verify_free_lists());
  INFERD_TRY(verify_cached_lists());
  return verify_charges();
}

// Each record agrees with its own state, and the header's sums with the records.
Result<void> PagePool::verify_records() const {
  std::array<uint32_t, kPageStates> found{};
  uint32_t unannounced = 0;
  for (uint32_t index = 0; index < records_.size(); ++index) {
    const PageRecord& page_record = records_[index];
    const uint32_t state = static_cast<uint32_t>(page_record.state);
    if (state >= kPageStates) {
      return violation(page_text(index) + " has state " + std::to_string(state));
    }
    ++found[state];
    if (page_record.announced == 0) ++unannounced;
    const bool counted = page_record.state == PageState::kOwned    ? page_record.references == 1
                         : page_record.state == PageState::kShared
                             ? page_record.references + (page_record.indexed != 0 ? 1 : 0) > 1
                                                                   : page_record.references == 0;
    if ((page_record.indexed & ~kPinned) > kCostClasses || page_record.indexed == kPinned ||
        (page_record.indexed != 0 && page_record.state != PageState::kShared &&
         page_record.state != PageState::kCached) ||
        (page_record.indexed == 0 && page_record.state == PageState::kCached)) {
      return violation(page_text(index) + " is " + std::string(page_state_name(page_record.state)) +
                       ", which does not go with its mark of the prefix index");
    }
    if (!counted) {
      return violation(page_text(index) + " is " + std::string(page_state_name(page_record.state)) +
                       " with " + std::to_string(page_record.references) + " references");
    }
  }
  for (uint32_t state = 0; state < kPageStates; ++state) {
    if (found[state] != header_->states[state]) {
      return violation("the header counts " + std::to_string(header_->states[state]) + " " +
                       std::string(page_state_name(static_cast<PageState>(state))) +
                       " pages, there are " + std::to_string(found[state]));
    }
  }
  if (header_->reserved > found[static_cast<uint32_t>(PageState::kFree)]) {
    return violation(std::to_string(header_->reserved) + " pages are reserved, but only " +
                     std::to_string(found[static_cast<uint32_t>(PageState::kFree)]) + " are free");
  }
  if (unannounced != header_->taken_count) {
    return violation(std::to_string(unannounced) + " pages are unannounced, but " +
                     std::to_string(header_->taken_count) + " are in the list to announce");
  }
  return {};
}

// The two lists hold every free page once, and no other.
Result<void> PagePool::verify_free_lists() const {
  std::vector<bool> seen(records_.size(), false);
  uint32_t idle = 0;
  uint32_t previous = kNoIndex;
  for (uint32_t index = header_->idle_first; index != kNoIndex; index = records_[index].next) {
    if (index >= records_.size()) return violation("the idle list leaves the pool");
    if (seen[index]) return violation(page_text(index) + " is in the idle list twice");
    if (records_[index].state != PageState::kFree || records_[index].idle != 1) {
      return violation(page_text(index) + " is in the idle list, but not idle");
    }
    if (records_[index].previous != previous) {
      return violation(page_text(index) + " has a wrong neighbour in the idle list");
    }
    seen[index] = true;
    previous = index;
    ++idle;
  }
  if (idle != header_->idle_count || previous != header_->idle_last) {
    return violation("the idle list has " + std::to_string(idle) + " pages instead of " +
                     std::to_string(header_->idle_count) + ", or another end");
  }
  uint32_t bare = 0;
  for (uint32_t index = header_->bare_first; index != kNoIndex; index = records_[index].next) {
    if (index >= records_.size()) return violation("the bare list leaves the pool");
    if (seen[index]) return violation(page_text(index) + " is in the free lists twice");
    if (records_[index].state != PageState::kFree || records_[index].idle != 0) {
      return violation(page_text(index) + " is in the bare list, but not bare");
    }
    seen[index] = true;
    ++bare;
  }
  if (bare != header_->bare_count) {
    return violation("the bare list has " + std::to_string(bare) + " pages instead of " +
                     std::to_string(header_->bare_count));
  }
  if (idle + bare != header_->states[static_cast<uint32_t>(PageState::kFree)]) {
    return violation("the free lists have " + std::to_string(idle + bare) + " pages instead of " +
                     std::to_string(header_->states[static_cast<uint32_t>(PageState::kFree)]));
  }
  return {};
}

// The lists of cached pages hold each of them once, from the latest to the oldest.
Result<void> PagePool::verify_cached_lists() const {
  const uint32_t cached = header_->states[static_cast<uint32_t>(PageState::kCached)];
  uint32_t found = 0;
  for (uint32_t number = 0; number < header_->cached.size(); ++number) {
    const PoolHeader::CachedList& list = header_->cached[number];
    uint32_t previous = kNoIndex;
    for (uint32_t index = list.first; index != kNoIndex; index = records_[index].next) {
      if (index >= records_.size() || records_[index].state != PageState::kCached ||
          records_[index].previous != previous || list_of(records_[index]) != number ||
          (previous != kNoIndex && age(index) <= age(previous)) || ++found > cached) {
        return violation("a list of cached pages is broken at " + page_text(index));
      }
      previous = index;
    }
    if (previous != list.last) return violation("a list of cached pages has another end");
  }
  if (found != cached) {
    return violation("the lists of cached pages have " + std::to_string(found) + " pages instead of " +
                     std::to_string(cached));
  }
  return {};
}

// The table of charges is the sum of the records' users.
Result<void> PagePool::verify_charges() const {
  INFERD_TRY(charges_.verify());
  const std::span<const UserCharge> entries = charges_.entries();
  uint32_t charged = 0;
  for (const UserCharge& entry : entries) charged += entry.pages.value;
  const uint32_t held = header_->pages - header_->states[static_cast<uint32_t>(PageState::kFree)];
  if (charged != held) {
    return violation(std::to_string(charged) + " pages are charged, but " + std::to_string(held) +
                     " are in use");
  }
  std::vector<UserCharge> recount_entries(entries.size());
  ChargeTable recount(recount_entries);
  for (uint32_t index = 0; index < records_.size(); ++index) {
    if (records_[index].state == PageState::kFree) continue;
    // Refuses before the recount could overflow: an unknown user is already a violation.
    if (charges_.pages(records_[index].user).value == 0) {
      return violation(page_text(index) + " is charged to user " +
                       std::to_string(records_[index].user.value) + ", who has no charge");
    }
    recount.add(records_[index].user);
  }
  for (const UserCharge& entry : entries) {
    if (entry.pages.value == 0) continue;
    if (recount.pages(entry.user) != entry.pages) {
      return violation("user " + std::to_string(entry.user.value) + " is charged " +
                       std::to_string(entry.pages.value) + " pages, but holds " +
                       std::to_string(recount.pages(entry.user).value));
    }
  }
  return {};
}

}  // namespace inferd::memory
