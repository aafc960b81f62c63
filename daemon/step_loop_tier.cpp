// StepLoop: content of pages on its way to the next tier and back.
#include <algorithm>

#include "base/check.h"
#include "daemon/step_loop.h"

namespace inferd::daemon {

namespace {

// The low watermark, below which content is stored ahead: this part of the pool, but no more than many steps
// can ask for. The high one is twice that.
constexpr uint32_t kFreeShare = 8;
constexpr uint32_t kFreeMax = 512;
constexpr uint32_t kStoresAheadATurn = 4;

}  // namespace

// What the tier did meanwhile.
void StepLoop::collect_tier() {
  if (parts_.tier == nullptr) return;
  while (const std::optional<memory::SlotRef> lost = parts_.tier->take_lost()) {
    parts_.memory.prefixes().lose(*lost);
  }
  if (const std::optional<Error> trouble = parts_.tier->take_trouble()) {
    parts_.observer.on_tier_trouble(*trouble);
  }
}

void StepLoop::make_stores() {
  if (parts_.tier == nullptr) return;
  for (const memory::PageStore& store : parts_.memory.stores()) {
    parts_.engine.save_page(store.page, parts_.tier->store(store.slot));
  }
  parts_.memory.stores().clear();
  parts_.tier->submit();
}

void StepLoop::make_loads() {
  if (plan_.loads.empty()) return;
  INFERD_CHECK(parts_.tier != nullptr);
  for (const scheduler::PageLoad& load : plan_.loads) {
    parts_.engine.restore_page(load.page, parts_.tier->load(load.slot));
  }
  parts_.tier->end_loads();
}

// So that pages are there at once when somebody needs them.
void StepLoop::store_ahead() {
  if (parts_.tier == nullptr) return;
  const uint32_t low = std::min(parts_.memory.pool().counts().total.value / kFreeShare, kFreeMax);
  parts_.memory.store_ahead({PageCount(low), PageCount(2 * low)}, kStoresAheadATurn);
  make_stores();
}

uint32_t StepLoop::flush_cache(std::optional<CacheDomain> domain) {
  memory::PrefixIndex& prefixes = parts_.memory.prefixes();
  const uint32_t pages = domain ? prefixes.flush(*domain) : prefixes.flush_all();
  if (parts_.tier != nullptr) {
    parts_.tier->erase_unused([&prefixes](uint32_t slot) { return prefixes.is_slot_used(slot); });
  }
  pages_to_give_back_ = true;
  return pages;
}

Result<uint32_t> StepLoop::pin_cache(CacheDomain domain, UserId user,
                                     std::span<const TokenId> tokens) {
  if (!limits_.prefix_cache) {
    return Error(ErrorCode::kUnsupported,
                 "this daemon keeps no prefixes, so none can be pinned: [memory] prefix_cache is "
                 "false");
  }
  const uint32_t limit = limits_.user_pinned_pages;
  const memory::PrefixIndex::Pinned pinned =
      parts_.memory.prefixes().pin(domain, tokens, user, limit);
  if (pinned.found == 0) {
    return Error(
        ErrorCode::kNotFound,
        "nothing of this prompt is cached: run it first, then pin it (pages of 16 tokens are "
        "pinned, so it must be as long as that)");
  }
  if (pinned.of_user > limit) {
    return Error(ErrorCode::kResourceExhausted,
                 "user " + std::to_string(user.value) + " would have " +
                     std::to_string(pinned.of_user) +
                     " pages pinned, and [limits] user_pinned_pages allows " +
                     std::to_string(limit) + ": unpin others first");
  }
  return pinned.found;
}

std::vector<CacheDomainFigures> StepLoop::cache_figures() const {
  std::vector<CacheDomainFigures> figures;
  parts_.memory.prefixes().visit_nodes([&figures](CacheDomain domain, bool stored) {
    if (figures.empty() || figures.back().domain != domain) figures.push_back({domain});
    ++figures.back().pages;
    figures.back().stored += stored ? 1 : 0;
  });
  return figures;
}

void StepLoop::store_cache() {
  if (parts_.tier == nullptr) return;
  collect_tier();
  const memory::PagePool& pool = parts_.memory.pool();
  memory::PrefixIndex& prefixes = parts_.memory.prefixes();
  // The dearest and newest first, beginnings before what follows them; never in the place of one
  // that was stored here.
  uint32_t room = prefixes.slots();
  for (PageId page = pool.first_cached(); page != kNoPage; page = pool.cached_after(page)) {
    if (prefixes.is_stored(page) && room > 0) --room;
  }
  for (PageId page = pool.last_cached(); page != kNoPage && room > 0;
       page = pool.cached_before(page)) {
    if (prefixes.is_stored(page)) continue;
    if (parts_.tier->stores_free() == 0) {
      parts_.tier->finish();
      collect_tier();
      if (parts_.tier->stores_free() == 0) break;  // it cannot be written
    }
    const std::optional<memory::SlotRef> slot = prefixes.store_beside(page);
    if (!slot) break;
    parts_.engine.save_page(page, parts_.tier->store(*slot));
    --room;
  }
  parts_.tier->finish();
  collect_tier();
}

}  // namespace inferd::daemon
