// PrefixIndex: which content goes when pages are wanted; how it moves to the next tier, is found there, is lost, or
// comes back with a restart.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "memory/prefix_index.h"

namespace inferd::memory {

namespace {

// Of the moving average of costs, the weight of the latest figures.
constexpr double kCostWeight = 1.0 / 64;
// Of a page's siblings so many are looked at for one that is still there.
constexpr uint32_t kSiblingsLookedAt = 8;

}  // namespace

void PrefixIndex::note_costs(double token, double position) {
  if (!(token > 0) || !(position >= 0)) return;
  const double depth_cost = position * kPageTokens / token;
  depth_cost_ += (depth_cost - depth_cost_) * kCostWeight;
}

uint32_t PrefixIndex::cost_class_of(uint32_t depth) const {
  const double doublings = std::log2(1 + depth * depth_cost_);
  return std::min(static_cast<uint32_t>(2 * doublings), kCostClasses - 1);
}

// All before a page that entered the index are held, like itself.
void PrefixIndex::raise_before(uint32_t node, uint32_t cost_class) {
  for (node = nodes_[node].parent; !is_root(node); node = nodes_[node].parent) {
    if (pool_.cost_class(nodes_[node].page) >= cost_class) return;
    pool_.raise_cost_class(nodes_[node].page, cost_class);
  }
}

// A page that follows the node's has gone. If it was the last one, the node's costs what its depth says.
void PrefixIndex::lower_end(uint32_t node) {
  if (is_root(node) || nodes_[node].page == kNoPage) return;
  uint32_t looked_at = 0;
  for (uint32_t child = nodes_[node].first_child; child != kNoIndex; child = nodes_[child].next_sibling) {
    if (nodes_[child].page != kNoPage || ++looked_at > kSiblingsLookedAt) return;
  }
  pool_.lower_cost_class(nodes_[node].page, cost_class_of(nodes_[node].depth));
}

size_t PrefixIndex::walk_stored(uint32_t node, std::span<const TokenId> tokens,
                                std::span<SlotRef> slots) const {
  size_t count = 0;
  while (count < slots.size() && tokens.size() >= kPageTokens) {
    node = find_child(node, tokens.first(kPageTokens));
    if (node == kNoIndex || nodes_[node].slot == kNoIndex) break;
    slots[count++] = slots_.ref(nodes_[node].slot);
    tokens = tokens.subspan(kPageTokens);
  }
  return count;
}

size_t PrefixIndex::stored_after(CacheDomain domain, PageId parent, std::span<const TokenId> tokens,
                                 std::span<SlotRef> slots) const {
  if (header_->slots == 0) return 0;
  uint32_t node = kNoIndex;
  if (parent == kNoPage) {
    node = root_of(domain);
  } else if (pool_.is_indexed(parent)) {
    node = node_of(parent);
  }
  return node == kNoIndex ? 0 : walk_stored(node, tokens, slots);
}

// Frees the oldest slot if none is free, a pinned one only if all are. Its node has a page besides,
// or is a leaf (invariant 3; what follows one that is not pinned is not pinned either).
bool PrefixIndex::make_slot_free() {
  if (header_->slots == 0) return false;
  if (!slots_.full()) return true;
  uint32_t slot = slots_.oldest();
  while (slot != kNoIndex && is_pinned(slots_.node_of(slots_.ref(slot)))) slot = slots_.newer(slot);
  if (slot == kNoIndex) slot = slots_.oldest();
  const uint32_t node = slots_.node_of(slots_.ref(slot));
  if (nodes_[node].page == kNoPage) {
    forget(node);
  } else {
    slots_.release(slot);
    nodes_[node].slot = kNoIndex;
  }
  return true;
}

std::optional<PrefixIndex::Evicted> PrefixIndex::evict_next(bool store) {
  const PageId page = pool_.next_to_go();
  return page == kNoPage ? std::nullopt : evict(page, store);
}

std::optional<PrefixIndex::Evicted> PrefixIndex::evict(PageId page, bool store) {
  INFERD_CHECK(pool_.state(page) == PageState::kCached);
  const uint32_t node = node_of(page);
  for (uint32_t child = nodes_[node].first_child; child != kNoIndex;
       child = nodes_[child].next_sibling) {
    if (nodes_[child].page != kNoPage) return std::nullopt;
  }
  Evicted evicted{page, std::nullopt};
  const uint32_t parent = nodes_[node].parent;
  if (nodes_[node].slot != kNoIndex) {
    slots_.touch(nodes_[node].slot);
  } else if (store && make_slot_free()) {
    evicted.store = slots_.acquire(node);
    nodes_[node].slot = evicted.store->slot;
  }
  if (nodes_[node].slot == kNoIndex) {
    drop_below(node);
    forget(node);
  } else {
    nodes_[node].page = kNoPage;
    node_of_page_[page.value] = 0;
    pool_.clear_indexed(page);
  }
  lower_end(parent);
  return evicted;
}

std::optional<SlotRef> PrefixIndex::store_beside(PageId page) {
  const uint32_t node = node_of(page);
  if (nodes_[node].slot != kNoIndex || !make_slot_free()) return std::nullopt;
  const SlotRef slot = slots_.acquire(node);
  nodes_[node].slot = slot.slot;
  return slot;
}

// Everything below a node goes, leaf after leaf. None of it has a page, since the node is about to
// lose its own, or has none.
void PrefixIndex::drop_below(uint32_t top) {
  uint32_t node = top;
  while (nodes_[top].first_child != kNoIndex) {
    while (nodes_[node].first_child != kNoIndex) node = nodes_[node].first_child;
    INFERD_CHECK(nodes_[node].page == kNoPage);
    const uint32_t parent = nodes_[node].parent;
    unlink(node);
    node = parent;
  }
}

void PrefixIndex::lose(SlotRef slot) {
  const uint32_t node = slots_.node_of(slot);
  if (node == kNoIndex) return;
  if (nodes_[node].page != kNoPage) {
    slots_.release(slot.slot);
    nodes_[node].slot = kNoIndex;
    return;
  }
  drop_below(node);
  forget(node);
}

uint32_t PrefixIndex::restore(CacheDomain domain, uint32_t parent,
                              std::span<const TokenId> tokens) {
  INFERD_CHECK(tokens.size() == kPageTokens && domain.value != 0);
  if (header_->slots == 0 || slots_.full()) return kNoIndex;
  if (parent == kNoIndex) parent = make_root(domain);
  if (parent == kNoIndex || find_child(parent, tokens) != kNoIndex) return kNoIndex;
  const uint32_t node = add_node(parent, tokens);
  nodes_[node].slot = slots_.acquire(node).slot;
  return node;
}

void PrefixIndex::order_restored() {
  // From the newest, each becomes the newest in turn: the order is reversed.
  uint32_t slot = slots_.oldest();
  uint32_t last = kNoIndex;
  while (slot != kNoIndex) {
    last = slot;
    slot = slots_.newer(slot);
  }
  for (slot = last; slot != kNoIndex;) {
    const uint32_t older = slots_.older(slot);
    slots_.touch(slot);
    slot = older;
  }
}

}  // namespace inferd::memory
