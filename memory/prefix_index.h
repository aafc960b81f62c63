// The prefix index: finished pages, found again by the tokens that they hold and all tokens before.
// Owner: PagedMemory. Engine thread only. Must not know sequences, requests or bytes of a page.
//
// A radix tree over token ids per cache domain, with a node for every page that is kept: the edge to
// a node is labelled with the page's 16 tokens. A lookup walks from node to node and compares tokens
// each time; a hash only helps to find the right one of many children. Where the walk ends, the child
// with the longest common beginning gives a partial match: its page is copied up to there.
//
// A node's content lies in a page of the pool, in a slot of the next tier, or in both.
//
// Invariants, besides the links:
//  1. Who holds a page holds the pages of all its ancestors: sequences attach whole prefixes, insert
//     pages in order, and let go from the end. So the descendants of a cached page (nobody holds it)
//     are cached too, or have no page.
//  2. Of cached pages, children go before their parents: they were let go earlier, and their class of cost, the
//     depth's at first, is no higher, since who enters a page raises its ancestors to its class. So no node without
//     a page has a descendant with one, and a lookup finds pages first and then slots. A page behind which no other
//     is left gets the class of its own depth again.
//  3. The same holds for the slots: a node whose page goes makes its slot the newest, and its children's
//     pages went before. So the oldest slot is that of a leaf, or of a node that has a page besides, and
//     freeing the oldest ones never leaves a hole.
//
// All metadata is a view over one span of bytes: indices, no pointers. (Of the pins there is a list besides, made from it.)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "memory/layout.h"
#include "memory/page_pool.h"
#include "memory/page_tier.h"
#include "memory/tier_slots.h"

namespace inferd::memory {

// The layout in bytes, for those who store it or break it on purpose. Never renumbered, only grown.
struct PrefixHeader {
  uint64_t magic = 0;
  uint32_t version = 0;
  uint32_t pages = 0;
  uint32_t domains_max = 0;
  uint32_t buckets = 0;  // a power of two
  uint32_t nodes = 0;    // in the index, roots not counted
  uint32_t slots = 0;    // of the next tier
  uint32_t touched = 0;  // nodes before this one were used once
  uint32_t free_first = kNoIndex;  // of those, the free ones
  uint64_t hash_seed = 0;
};

// The roots of the domains follow after all others.
struct PrefixNode {
  uint32_t parent = kNoIndex;  // kNoIndex: the node is free (a root has itself)
  uint32_t first_child = kNoIndex;
  uint32_t next_sibling = kNoIndex;
  uint32_t previous_sibling = kNoIndex;
  uint32_t next_in_bucket = kNoIndex;
  uint32_t depth = 0;        // pages before this one
  PageId page = kNoPage;     // kNoPage: its content is in the next tier only
  uint32_t slot = kNoIndex;  // in the next tier; kNoIndex: none
  UserId pinned_for{kNoIndex};  // who pinned it, and so all before it; kNoIndex: nobody
  std::array<TokenId, kPageTokens> tokens{};
};
static_assert(sizeof(PrefixNode) == 100);

class PrefixIndex {
 public:
  static size_t layout_bytes(PageCount pages, uint32_t slots, uint32_t domains_max);

  // A new, empty index in `region` (aligned, zero, of layout_bytes()) over `pool`; both outlive it.
  // `slots`: how many pages the next tier has room for, 0 without one. `hash_seed` only spreads the
  // buckets: results do not depend on it.
  PrefixIndex(std::span<std::byte> region, PagePool& pool, uint32_t slots, uint32_t domains_max,
              uint64_t hash_seed);
  // A view of the index that lies in `region`. Errors: kDataCorrupt if it holds none for this pool.
  static Result<std::unique_ptr<PrefixIndex>> attach(std::span<std::byte> region, PagePool& pool);

  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  // The longest beginning of `tokens` that the domain has: returns its length in tokens and fills
  // `pages` with the pages that hold it, ceil(length / 16). If the length is no multiple of 16, the
  // last page goes on with other tokens and must be copied before it is written. The pages are valid
  // until the next drop or flush; a caller that keeps them attaches them to a sequence first.
  // O(length / 16), and at most kSiblingsTried children are compared for the partial page.
  // `stored`, if given, is filled with the slots of the whole pages that go on where the whole pages found
  // end: what could be loaded from the next tier.
  uint32_t lookup(CacheDomain domain, std::span<const TokenId> tokens, std::vector<PageId>& pages,
                  std::vector<SlotRef>* stored = nullptr) const;
  // The slots of the whole pages of `tokens` that follow after those of the page `parent` (kNoPage: at the
  // beginning), up to the first that has none; at most as many as `slots` has room for. Returns how many.
  size_t stored_after(CacheDomain domain, PageId parent, std::span<const TokenId> tokens,
                      std::span<SlotRef> slots) const;

  // Puts a held page, which now holds exactly `tokens` (16) after those of `parent` (kNoPage: at the
  // beginning), into the index. Returns the page that the index has for them: `page` itself, or one
  // with the same content that was there before, to be used instead. kNoPage if it cannot be kept: the
  // parent is not in the index (it was flushed), or there are too many domains.
  PageId insert(CacheDomain domain, PageId parent, PageId page, std::span<const TokenId> tokens);

  // What computing a token costs, and what attending from it to one position costs besides: pages deep in a prefix
  // cost more to compute again than its first ones, and stay longer. Any unit; as measured of late, of which a
  // moving average is taken. Before the first call all pages cost the same.
  void note_costs(double token, double position);

  // Frees the cached page that is the next to go. False if no page is cached. Neither this nor a flush
  // may come between a plan and its step: a copy of the page may still be to be made.
  bool drop_next() { return evict_next(false).has_value(); }
  // The same; with `store`, content that is in no slot yet gets one, where the caller copies it before
  // anybody writes the page. For want of a free slot the oldest content of the next tier goes.
  struct Evicted {
    PageId page;
    std::optional<SlotRef> store;
  };
  std::optional<Evicted> evict_next(bool store);
  // The same for any cached page behind which no other page follows; nothing if one does.
  std::optional<Evicted> evict(PageId page, bool store);
  // A slot for the content of a page of the index that has none yet, while it stays where it is.
  std::optional<SlotRef> store_beside(PageId page);
  // Pinned content leaves the pool after all that is not pinned, and the next tier too. Pins the whole pages of
  // `tokens` that the domain has, for `user`, who may have so many pinned at most; nothing is done where that
  // would be more. A page that another user pinned stays theirs. O(pages of `tokens`), however many the index has.
  struct Pinned {
    uint32_t found = 0;       // whole pages of `tokens`
    uint32_t of_user = 0;     // pinned for the user then; more than the limit: nothing was done
  };
  Pinned pin(CacheDomain domain, std::span<const TokenId> tokens, UserId user, uint32_t pages_max);
  // Pinned no longer: what was pinned for the user, but for what stands before another's. Returns how many.
  // O(pages that all users have pinned).
  uint32_t unpin(UserId user);
  uint32_t pinned_pages(UserId user) const;
  bool is_pinned(uint32_t node) const { return nodes_[node].pinned_for != kNobody; }
  // Who pinned a node; kNobody: nobody did.
  UserId pinned_for(uint32_t node) const { return nodes_[node].pinned_for; }
  static constexpr UserId kNobody{kNoIndex};

  // The content of the slot is gone: whatever depends on it alone leaves the index. Nothing happens if
  // something else is there by now.
  void lose(SlotRef slot);

  // Forgets everything of one domain, or of all: cached pages become free, held ones stay with
  // their holders. Returns how many pages left the index. O(pages of the domain).
  uint32_t flush(CacheDomain domain);
  uint32_t flush_all();

  uint32_t nodes() const { return header_->nodes; }
  // The tokens of a page in the index.
  std::span<const TokenId> tokens_of(PageId page) const { return nodes_[node_of(page)].tokens; }
  // Nodes whose content is in the next tier, and how many there can be.
  uint32_t slots_used() const { return slots_.used(); }
  uint32_t slots() const { return header_->slots; }
  // Whether the slot's content is still what it was when this was handed out.
  bool holds(SlotRef slot) const { return slots_.node_of(slot) != kNoIndex; }
  bool is_slot_used(uint32_t slot) const { return slots_.is_used(slot); }
  // Whether the content of a page in the index is in the next tier too.
  bool is_stored(PageId page) const { return nodes_[node_of(page)].slot != kNoIndex; }
  size_t layout_bytes() const;

  // Tells `visit` of every node (domain, whether it is in the next tier), domain after domain.
  template <typename Visit>
  void visit_nodes(Visit visit) const;
  // For those who keep the next tier over a restart. `visit` is told of every node that has a slot and whose
  // ancestors all have one, parents before children: (number, parent's number or kNoIndex, domain, slot, tokens).
  template <typename Visit>
  void visit_stored(Visit visit) const;
  // Puts a node back whose content lies in the next tier only, below the one that an earlier call returned
  // (kNoIndex: the root of the domain); its slot is the returned node's, by slot_of_node(). Returns its
  // number, kNoIndex if there is no room or it is there already.
  uint32_t restore(CacheDomain domain, uint32_t parent, std::span<const TokenId> tokens);
  // Pins such a node as it was pinned before. False, and it is not, if it follows one that is not pinned, or if the
  // user has so many pinned already.
  bool restore_pin(uint32_t node, UserId user, uint32_t pages_max);
  SlotRef slot_of_node(uint32_t node) const { return slots_.ref(nodes_[node].slot); }
  // After all are restored: what came last is the first to go. Children were restored after their parents.
  void order_restored();

  // Walks every invariant; the first violation in words, kInternal. O(pages), allocates.
  Result<void> verify() const;

  static constexpr uint32_t kSiblingsTried = 64;

 private:
  struct AttachTag {};
  PrefixIndex(std::span<std::byte> region, PagePool& pool, AttachTag);

  void map_arrays(std::span<std::byte> region);
  uint32_t nodes_max() const { return header_->pages + header_->slots; }
  bool is_root(uint32_t node) const { return node >= nodes_max(); }
  bool is_used(uint32_t node) const { return nodes_[node].parent != kNoIndex; }
  uint32_t node_of(PageId page) const {
    INFERD_CHECK(pool_.is_indexed(page));
    return node_of_page_[page.value] - 1;
  }
  size_t walk_stored(uint32_t node, std::span<const TokenId> tokens,
                     std::span<SlotRef> slots) const;
  // Every node, parents before children; below those for which `enter` returns false it does not go.
  template <typename Enter>
  void walk(Enter enter) const;
  uint32_t acquire_node();
  uint32_t add_node(uint32_t parent, std::span<const TokenId> tokens);
  bool make_slot_free();
  void drop_below(uint32_t node);
  void set_pin(uint32_t node, UserId user);
  void forget_pin(uint32_t node);
  void find_pins();
  uint32_t cost_class_of(uint32_t depth) const;
  void raise_before(uint32_t node, uint32_t cost_class);
  void lower_end(uint32_t node);
  void forget(uint32_t node);
  uint32_t root_of(CacheDomain domain) const;
  uint32_t make_root(CacheDomain domain);
  uint32_t bucket_of(uint32_t parent, std::span<const TokenId> tokens) const;
  uint32_t find_child(uint32_t parent, std::span<const TokenId> tokens) const;
  uint32_t flush_root(uint32_t root);
  // Takes a leaf out of the tree, and frees its slot; a page is the caller's.
  void unlink(uint32_t node);
  Result<void> verify_nodes() const;
  Result<void> verify_links() const;
  Result<void> verify_order() const;
  Result<void> verify_tiers() const;
  Result<void> verify_pins() const;

  PagePool& pool_;
  double depth_cost_ = 0;  // what a page costs more than the one before it, the first one costing 1
  PrefixHeader* header_ = nullptr;  // borrowed, in the region
  std::span<PrefixNode> nodes_;     // [pages + slots + domains_max]
  std::span<uint32_t> node_of_page_;  // [pages] node + 1; 0: not in the index
  std::span<CacheDomain> domains_;  // [domains_max]; 0: the root is free
  std::span<uint32_t> buckets_;     // [buckets] first node's index + 1; 0: none
  TierSlots slots_;
  // The pinned nodes of each user, so that neither pinning nor its end walks the index. Not in the region, for the
  // nodes say the same.
  std::map<UserId, std::set<uint32_t>> pins_;
};

template <typename Visit>
void PrefixIndex::visit_nodes(Visit visit) const {
  walk([&](uint32_t node, CacheDomain domain) {
    visit(domain, nodes_[node].slot != kNoIndex);
    return true;
  });
}

template <typename Visit>
void PrefixIndex::visit_stored(Visit visit) const {
  walk([&](uint32_t node, CacheDomain domain) {
    const bool stored = nodes_[node].slot != kNoIndex;
    if (stored) {
      const uint32_t parent = is_root(nodes_[node].parent) ? kNoIndex : nodes_[node].parent;
      visit(node, parent, domain, slots_.ref(nodes_[node].slot),
            std::span<const TokenId>(nodes_[node].tokens));
    }
    return stored;
  });
}

template <typename Enter>
void PrefixIndex::walk(Enter enter) const {
  for (uint32_t i = 0; i < domains_.size(); ++i) {
    if (domains_[i].value == 0) continue;
    const uint32_t root = nodes_max() + i;
    uint32_t node = nodes_[root].first_child;
    while (node != kNoIndex) {
      if (enter(node, domains_[i]) && nodes_[node].first_child != kNoIndex) {
        node = nodes_[node].first_child;
        continue;
      }
      while (node != root && nodes_[node].next_sibling == kNoIndex) node = nodes_[node].parent;
      node = node == root ? kNoIndex : nodes_[node].next_sibling;
    }
  }
}

}  // namespace inferd::memory
