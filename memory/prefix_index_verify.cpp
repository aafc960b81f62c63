// PrefixIndex::verify(): every invariant of the index, walked.
#include <algorithm>
#include <string>
#include <vector>

#include "memory/prefix_index.h"

namespace inferd::memory {

namespace {

Error violation(std::string message) {
  return Error(ErrorCode::kInternal, "prefix index: " + std::move(message));
}

std::string text(uint32_t node) { return "node " + std::to_string(node); }

}  // namespace

Result<void> PrefixIndex::verify() const {
  INFERD_TRY(slots_.verify());
  INFERD_TRY(verify_nodes());
  INFERD_TRY(verify_links());
  INFERD_TRY(verify_tiers());
  INFERD_TRY(verify_pins());
  return verify_order();
}

// Each node has a parent that is in the index, and is found through it; who is held has a held parent, and
// who has a page has a parent with one.
Result<void> PrefixIndex::verify_nodes() const {
  uint32_t found = 0;
  for (uint32_t index = 0; index < header_->touched; ++index) {
    if (!is_used(index)) continue;
    ++found;
    const PrefixNode& node = nodes_[index];
    if (node.parent >= nodes_.size()) return violation(text(index) + " has no parent");
    const bool below_root = is_root(node.parent);
    if (below_root ? domains_[node.parent - nodes_max()].value == 0 : !is_used(node.parent)) {
      return violation(text(index) + " has a parent that is not in the index");
    }
    if (node.depth != (below_root ? 0 : nodes_[node.parent].depth + 1)) {
      return violation(text(index) + " has depth " + std::to_string(node.depth));
    }
    if (find_child(node.parent, node.tokens) != index) {
      return violation(text(index) + " is not found by its tokens, or twice there");
    }
    if (below_root || node.page == kNoPage) continue;
    const PageId parent_page = nodes_[node.parent].page;
    if (parent_page == kNoPage) {
      return violation(text(index) + " has a page, but what comes before it has none");
    }
    if (pool_.references(node.page) > 0 && pool_.references(parent_page) == 0) {
      return violation(text(index) + " is held, but what comes before it is not");
    }
  }
  if (found != header_->nodes) {
    return violation("the header counts " + std::to_string(header_->nodes) + " nodes, there are " +
                     std::to_string(found));
  }
  return {};
}

// Nodes, pages and slots name each other, and every node has content somewhere.
Result<void> PrefixIndex::verify_tiers() const {
  uint32_t with_page = 0;
  uint32_t with_slot = 0;
  for (uint32_t index = 0; index < header_->touched; ++index) {
    if (!is_used(index)) continue;
    const PrefixNode& node = nodes_[index];
    if (node.page == kNoPage && node.slot == kNoIndex) {
      return violation(text(index) + " has its content nowhere");
    }
    const bool below_root = is_root(node.parent);
    if (is_pinned(index) && !below_root && !is_pinned(node.parent)) {
      return violation(text(index) + " is pinned, but what comes before it is not");
    }
    if (node.page != kNoPage) {
      ++with_page;
      if (pool_.is_indexed(node.page) && pool_.is_pinned(node.page) != is_pinned(index)) {
        return violation(text(index) + " and its page do not agree on whether it is pinned");
      }
      if (!pool_.is_indexed(node.page) || node_of_page_[node.page.value] != index + 1) {
        return violation(text(index) + " has a page that does not know it");
      }
    }
    if (node.slot != kNoIndex) {
      ++with_slot;
      if (slots_.node_of(slots_.ref(node.slot)) != index) {
        return violation(text(index) + " has a slot that does not know it");
      }
    }
  }
  uint32_t indexed = 0;
  for (uint32_t page = 0; page < header_->pages; ++page) indexed += pool_.is_indexed(PageId(page));
  if (with_page != indexed || with_slot != slots_.used()) {
    return violation(std::to_string(indexed) + " pages and " + std::to_string(slots_.used()) +
                     " slots are marked, but nodes have " + std::to_string(with_page) + " and " +
                     std::to_string(with_slot));
  }
  return {};
}

// Lists of children and buckets hold every node once, and no other.
Result<void> PrefixIndex::verify_links() const {
  uint32_t children = 0;
  for (uint32_t parent = 0; parent < nodes_.size(); ++parent) {
    if (!is_root(parent) && parent >= header_->touched) continue;
    const bool present =
        is_root(parent) ? domains_[parent - nodes_max()].value != 0 : is_used(parent);
    if (!present) continue;
    if (is_root(parent) && nodes_[parent].first_child == kNoIndex) {
      return violation("a domain without pages has a root");
    }
    uint32_t previous = kNoIndex;
    for (uint32_t child = nodes_[parent].first_child; child != kNoIndex;
         child = nodes_[child].next_sibling) {
      if (child >= header_->touched || !is_used(child) ||
          nodes_[child].parent != parent || nodes_[child].previous_sibling != previous ||
          ++children > header_->nodes) {
        return violation("the list of children is broken at " + text(child));
      }
      previous = child;
    }
  }
  uint32_t in_buckets = 0;
  for (uint32_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    for (uint32_t place = buckets_[bucket]; place != 0;) {
      const uint32_t index = place - 1;
      if (index >= header_->touched || !is_used(index) ||
          bucket_of(nodes_[index].parent, nodes_[index].tokens) != bucket ||
          ++in_buckets > header_->nodes) {
        return violation("a bucket is broken at " + text(index));
      }
      place = nodes_[index].next_in_bucket == kNoIndex ? 0 : nodes_[index].next_in_bucket + 1;
    }
  }
  if (children != header_->nodes || in_buckets != header_->nodes) {
    return violation("lists or buckets have " + std::to_string(children) + " and " +
                     std::to_string(in_buckets) + " nodes instead of " +
                     std::to_string(header_->nodes));
  }
  return {};
}

// Oldest first, children come before their parents, among cached pages and among slots without one; and
// only pages of the index are cached.
Result<void> PrefixIndex::verify_order() const {
  std::vector<uint32_t> place(header_->touched, 0);
  uint32_t next = 0;
  for (PageId page = pool_.first_cached(); page != kNoPage; page = pool_.cached_after(page)) {
    if (!pool_.is_indexed(page)) {
      return violation("page " + std::to_string(page.value) + " is cached, but not in the index");
    }
    place[node_of(page)] = ++next;
  }
  for (uint32_t slot = slots_.oldest(); slot != kNoIndex; slot = slots_.newer(slot)) {
    const uint32_t node = slots_.node_of(slots_.ref(slot));
    if (nodes_[node].page == kNoPage) place[node] = ++next;
  }
  for (uint32_t index = 0; index < header_->touched; ++index) {
    if (!is_used(index) || place[index] == 0 || is_root(nodes_[index].parent)) continue;
    const uint32_t parent = nodes_[index].parent;
    // Only the order within a tier matters.
    if ((nodes_[parent].page == kNoPage) != (nodes_[index].page == kNoPage)) continue;
    if (place[parent] != 0 && place[parent] < place[index]) {
      return violation(text(parent) + " would go before " + text(index) +
                       ", which comes after it");
    }
  }
  return {};
}

}  // namespace inferd::memory
