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

std::string page_text(uint32_t index) { return "page " + std::to_string(index); }

}  // namespace

Result<void> PrefixIndex::verify() const {
  INFERD_TRY(verify_nodes());
  INFERD_TRY(verify_links());
  return verify_order();
}

// The pool's marks and the nodes agree; each node has a parent that is in the index, and is found
// through it; who is held has a held parent.
Result<void> PrefixIndex::verify_nodes() const {
  uint32_t found = 0;
  for (uint32_t index = 0; index < header_->pages; ++index) {
    if (!pool_.is_indexed(PageId(index))) continue;
    ++found;
    const PrefixNode& node = nodes_[index];
    if (node.parent >= nodes_.size()) return violation(page_text(index) + " has no parent");
    const bool below_root = is_root(node.parent);
    if (below_root ? domains_[node.parent - header_->pages].value == 0
                   : !pool_.is_indexed(PageId(node.parent))) {
      return violation(page_text(index) + " has a parent that is not in the index");
    }
    if (node.depth != (below_root ? 0 : nodes_[node.parent].depth + 1)) {
      return violation(page_text(index) + " has depth " + std::to_string(node.depth));
    }
    if (find_child(node.parent, node.tokens) != index) {
      return violation(page_text(index) + " is not found by its tokens, or twice there");
    }
    if (!below_root && pool_.references(PageId(index)) > 0 &&
        pool_.references(PageId(node.parent)) == 0) {
      return violation(page_text(index) + " is held, but what comes before it is not");
    }
  }
  if (found != header_->nodes) {
    return violation("the header counts " + std::to_string(header_->nodes) + " nodes, there are " +
                     std::to_string(found));
  }
  return {};
}

// Lists of children and buckets hold every node once, and no other.
Result<void> PrefixIndex::verify_links() const {
  uint32_t children = 0;
  for (uint32_t parent = 0; parent < nodes_.size(); ++parent) {
    const bool present = is_root(parent) ? domains_[parent - header_->pages].value != 0
                                         : pool_.is_indexed(PageId(parent));
    if (!present) continue;
    if (is_root(parent) && nodes_[parent].first_child == kNoIndex) {
      return violation("a domain without pages has a root");
    }
    uint32_t previous = kNoIndex;
    for (uint32_t child = nodes_[parent].first_child; child != kNoIndex;
         child = nodes_[child].next_sibling) {
      if (child >= header_->pages || !pool_.is_indexed(PageId(child)) ||
          nodes_[child].parent != parent || nodes_[child].previous_sibling != previous ||
          ++children > header_->nodes) {
        return violation("the list of children is broken at " + page_text(child));
      }
      previous = child;
    }
  }
  uint32_t in_buckets = 0;
  for (uint32_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    for (uint32_t place = buckets_[bucket]; place != 0;) {
      const uint32_t index = place - 1;
      if (index >= header_->pages || !pool_.is_indexed(PageId(index)) ||
          bucket_of(nodes_[index].parent, nodes_[index].tokens) != bucket ||
          ++in_buckets > header_->nodes) {
        return violation("a bucket is broken at " + page_text(index));
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

// Oldest first, children come before their parents; and only pages of the index are cached.
Result<void> PrefixIndex::verify_order() const {
  std::vector<uint32_t> place(header_->pages, 0);
  uint32_t next = 0;
  for (PageId page = pool_.oldest_cached(); page != kNoPage; page = pool_.newer_cached(page)) {
    if (!pool_.is_indexed(page)) {
      return violation(page_text(page.value) + " is cached, but not in the index");
    }
    place[page.value] = ++next;
  }
  for (uint32_t index = 0; index < header_->pages; ++index) {
    if (place[index] == 0 || is_root(nodes_[index].parent)) continue;
    const uint32_t parent = nodes_[index].parent;
    if (place[parent] != 0 && place[parent] < place[index]) {
      return violation(page_text(parent) + " would be dropped before " + page_text(index) +
                       ", which comes after it");
    }
  }
  return {};
}

}  // namespace inferd::memory
