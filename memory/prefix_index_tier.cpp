// PrefixIndex: content that moves to the next tier, is found there, is lost, or comes back with a
// restart.
#include <algorithm>

#include "base/check.h"
#include "memory/prefix_index.h"

namespace inferd::memory {

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

std::optional<PrefixIndex::Evicted> PrefixIndex::evict_oldest(bool store) {
  const PageId page = pool_.oldest_cached();
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
  if (nodes_[node].slot != kNoIndex) {
    slots_.touch(nodes_[node].slot);
  } else if (store && make_slot_free()) {
    evicted.store = slots_.acquire(node);
    nodes_[node].slot = evicted.store->slot;
  } else {
    drop_below(node);
    forget(node);
    return evicted;
  }
  nodes_[node].page = kNoPage;
  node_of_page_[page.value] = 0;
  pool_.clear_indexed(page);
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
