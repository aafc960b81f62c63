// The prefix index: finished pages, found again by the tokens that they hold and all tokens before.
// Owner: PagedMemory. Engine thread only. Must not know sequences, requests or bytes of a page.
//
// A radix tree over token ids per cache domain, with a node for every page that is kept: the edge to
// a node is labelled with the page's 16 tokens. A lookup walks from node to node and compares tokens
// each time; a hash only helps to find the right one of many children. Where the walk ends, the child
// with the longest common beginning gives a partial match: its page is copied up to there.
//
// Invariants, besides the links:
//  1. Who holds a page holds the pages of all its ancestors: sequences attach whole prefixes, insert
//     pages in order, and let go from the end. So the descendants of a cached page (nobody holds it)
//     are cached too.
//  2. In the pool's list of cached pages, oldest first, children come before their parents, for they
//     were let go earlier. So the oldest is a leaf, and dropping cached pages never leaves a hole.
//
// All metadata is a view over one span of bytes: indices, no pointers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "memory/layout.h"
#include "memory/page_pool.h"

namespace inferd::memory {

// The layout in bytes, for those who store it or break it on purpose. Never renumbered, only grown.
struct PrefixHeader {
  uint64_t magic = 0;
  uint32_t version = 0;
  uint32_t pages = 0;
  uint32_t domains_max = 0;
  uint32_t buckets = 0;  // a power of two
  uint32_t nodes = 0;    // pages in the index
  uint32_t unused = 0;
  uint64_t hash_seed = 0;
};

// Node of the page of the same number; the roots of the domains follow after all pages.
struct PrefixNode {
  uint32_t parent = kNoIndex;  // kNoIndex: not in the index (a root has itself)
  uint32_t first_child = kNoIndex;
  uint32_t next_sibling = kNoIndex;
  uint32_t previous_sibling = kNoIndex;
  uint32_t next_in_bucket = kNoIndex;
  uint32_t depth = 0;  // pages before this one
  std::array<TokenId, kPageTokens> tokens{};
};
static_assert(sizeof(PrefixNode) == 88);

class PrefixIndex {
 public:
  static size_t layout_bytes(PageCount pages, uint32_t domains_max);

  // A new, empty index in `region` (aligned, zero, of layout_bytes()) over `pool`; both outlive it.
  // `hash_seed` only spreads the buckets: results do not depend on it.
  PrefixIndex(std::span<std::byte> region, PagePool& pool, uint32_t domains_max,
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
  uint32_t lookup(CacheDomain domain, std::span<const TokenId> tokens,
                  std::vector<PageId>& pages) const;

  // Puts a held page, which now holds exactly `tokens` (16) after those of `parent` (kNoPage: at the
  // beginning), into the index. Returns the page that the index has for them: `page` itself, or one
  // with the same content that was there before, to be used instead. kNoPage if it cannot be kept: the
  // parent is not in the index (it was flushed), or there are too many domains.
  PageId insert(CacheDomain domain, PageId parent, PageId page, std::span<const TokenId> tokens);

  // Frees the cached page that was let go first. False if no page is cached. Neither this nor a flush
  // may come between a plan and its step: a copy of the page may still be to be made.
  bool drop_oldest();
  // Forgets everything of one domain, or of all: cached pages become free, held ones stay with
  // their holders. Returns how many pages left the index. O(pages of the domain).
  uint32_t flush(CacheDomain domain);
  uint32_t flush_all();

  uint32_t nodes() const { return header_->nodes; }
  // The tokens of a page in the index.
  std::span<const TokenId> tokens_of(PageId page) const {
    INFERD_CHECK(pool_.is_indexed(page));
    return nodes_[page.value].tokens;
  }
  size_t layout_bytes() const;

  // Walks every invariant; the first violation in words, kInternal. O(pages), allocates.
  Result<void> verify() const;

  static constexpr uint32_t kSiblingsTried = 64;

 private:
  struct AttachTag {};
  PrefixIndex(std::span<std::byte> region, PagePool& pool, AttachTag);

  void map_arrays(std::span<std::byte> region);
  bool is_root(uint32_t node) const { return node >= header_->pages; }
  uint32_t root_of(CacheDomain domain) const;
  uint32_t make_root(CacheDomain domain);
  uint32_t bucket_of(uint32_t parent, std::span<const TokenId> tokens) const;
  uint32_t find_child(uint32_t parent, std::span<const TokenId> tokens) const;
  uint32_t flush_root(uint32_t root);
  // Takes a leaf out of the tree; the page itself is the caller's.
  void unlink(uint32_t node);
  Result<void> verify_nodes() const;
  Result<void> verify_links() const;
  Result<void> verify_order() const;

  PagePool& pool_;
  PrefixHeader* header_ = nullptr;  // borrowed, in the region
  std::span<PrefixNode> nodes_;     // [pages + domains_max]
  std::span<CacheDomain> domains_;  // [domains_max]; 0: the root is free
  std::span<uint32_t> buckets_;     // [buckets] first node's index + 1; 0: none
};

}  // namespace inferd::memory
