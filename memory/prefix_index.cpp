#include "memory/prefix_index.h"

#include <algorithm>
#include <bit>
#include <new>

#include "base/check.h"

namespace inferd::memory {

namespace {

constexpr uint64_t kIndexMagic = 0x78646e6978696670;  // "pfixindx", little-endian
constexpr uint32_t kIndexVersion = 2;

struct IndexLayout {
  size_t nodes_offset = 0;
  size_t node_of_page_offset = 0;
  size_t domains_offset = 0;
  size_t buckets_offset = 0;
  size_t slots_offset = 0;
  size_t bytes = 0;
};

uint32_t buckets_for(uint32_t pages, uint32_t slots) { return std::bit_ceil(pages + slots); }

// Nodes and buckets are numbered by 32 bits, and number + 1 is stored.
bool nodes_fit(uint32_t pages, uint32_t slots, uint32_t domains_max) {
  return uint64_t{pages} + slots + domains_max < uint64_t{1} << 31;
}

IndexLayout layout_of(uint32_t pages, uint32_t slots, uint32_t domains_max) {
  LayoutBuilder builder;
  IndexLayout layout;
  builder.place<PrefixHeader>(1);
  layout.nodes_offset = builder.place<PrefixNode>(size_t{pages} + slots + domains_max);
  layout.node_of_page_offset = builder.place<uint32_t>(pages);
  layout.domains_offset = builder.place<CacheDomain>(domains_max);
  layout.buckets_offset = builder.place<uint32_t>(buckets_for(pages, slots));
  layout.slots_offset = builder.bytes();
  layout.bytes = layout.slots_offset + TierSlots::layout_bytes(slots);
  return layout;
}

// How many of the first tokens are equal.
uint32_t common_tokens(std::span<const TokenId> a, std::span<const TokenId> b) {
  const size_t length = std::min(a.size(), b.size());
  return static_cast<uint32_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(length), b.begin()).first -
      a.begin());
}

}  // namespace

size_t PrefixIndex::layout_bytes(PageCount pages, uint32_t slots, uint32_t domains_max) {
  return layout_of(pages.value, slots, domains_max).bytes;
}

size_t PrefixIndex::layout_bytes() const {
  return layout_of(header_->pages, header_->slots, header_->domains_max).bytes;
}

PrefixIndex::PrefixIndex(std::span<std::byte> region, PagePool& pool, uint32_t slots,
                         uint32_t domains_max, uint64_t hash_seed)
    : pool_(pool) {
  const uint32_t pages = pool.counts().total.value;
  INFERD_CHECK(domains_max > 0 && nodes_fit(pages, slots, domains_max));
  INFERD_CHECK(region.size() >= layout_bytes(PageCount(pages), slots, domains_max));
  header_ = new (array_at<PrefixHeader>(region, 0, 1).data()) PrefixHeader;
  header_->magic = kIndexMagic;
  header_->version = kIndexVersion;
  header_->pages = pages;
  header_->domains_max = domains_max;
  header_->slots = slots;
  header_->buckets = buckets_for(pages, slots);
  header_->hash_seed = hash_seed;
  map_arrays(region);
  const size_t slots_offset = layout_of(pages, slots, domains_max).slots_offset;
  slots_ = TierSlots(region.subspan(slots_offset), slots, true);
}

PrefixIndex::PrefixIndex(std::span<std::byte> region, PagePool& pool, AttachTag) : pool_(pool) {
  header_ = array_at<PrefixHeader>(region, 0, 1).data();
  map_arrays(region);
  const size_t slots_offset =
      layout_of(header_->pages, header_->slots, header_->domains_max).slots_offset;
  slots_ = TierSlots(region.subspan(slots_offset), header_->slots, false);
  find_pins();
}

Result<std::unique_ptr<PrefixIndex>> PrefixIndex::attach(std::span<std::byte> region,
                                                         PagePool& pool) {
  if (region.size() < sizeof(PrefixHeader)) {
    return Error(ErrorCode::kDataCorrupt, "the region is too small to hold a prefix index");
  }
  const PrefixHeader& header = *array_at<PrefixHeader>(region, 0, 1).data();
  if (header.magic != kIndexMagic || header.version != kIndexVersion || header.domains_max == 0) {
    return Error(ErrorCode::kDataCorrupt, "the region does not hold a prefix index of this version");
  }
  if (PageCount(header.pages) != pool.counts().total ||
      !nodes_fit(header.pages, header.slots, header.domains_max) ||
      header.buckets != buckets_for(header.pages, header.slots)) {
    return Error(ErrorCode::kDataCorrupt, "the prefix index in the region is of another page pool");
  }
  if (layout_of(header.pages, header.slots, header.domains_max).bytes > region.size()) {
    return Error(ErrorCode::kDataCorrupt, "the region is smaller than the prefix index it names");
  }
  return std::unique_ptr<PrefixIndex>(new PrefixIndex(region, pool, AttachTag{}));
}

void PrefixIndex::map_arrays(std::span<std::byte> region) {
  const IndexLayout layout = layout_of(header_->pages, header_->slots, header_->domains_max);
  const size_t nodes = size_t{nodes_max()} + header_->domains_max;
  node_of_page_ = array_at<uint32_t>(region, layout.node_of_page_offset, header_->pages);
  nodes_ = array_at<PrefixNode>(region, layout.nodes_offset, nodes);
  domains_ = array_at<CacheDomain>(region, layout.domains_offset, header_->domains_max);
  buckets_ = array_at<uint32_t>(region, layout.buckets_offset, header_->buckets);
}

// kNoIndex for a domain without pages. Domains are few; their array is read from end to end.
uint32_t PrefixIndex::root_of(CacheDomain domain) const {
  const auto found = std::find(domains_.begin(), domains_.end(), domain);
  if (found == domains_.end()) return kNoIndex;
  return nodes_max() + static_cast<uint32_t>(found - domains_.begin());
}

// kNoIndex if every root is in use.
uint32_t PrefixIndex::make_root(CacheDomain domain) {
  const uint32_t present = root_of(domain);
  if (present != kNoIndex) return present;
  const auto free = std::find(domains_.begin(), domains_.end(), CacheDomain());
  if (free == domains_.end()) return kNoIndex;
  *free = domain;
  const uint32_t root = nodes_max() + static_cast<uint32_t>(free - domains_.begin());
  nodes_[root] = PrefixNode{};
  nodes_[root].parent = root;
  return root;
}

// Multiply and fold, over parent and tokens.
uint32_t PrefixIndex::bucket_of(uint32_t parent, std::span<const TokenId> tokens) const {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  uint64_t hash = header_->hash_seed ^ (parent + kOdd);
  for (size_t i = 0; i < tokens.size(); i += 2) {
    const uint64_t pair = static_cast<uint32_t>(tokens[i]) |
                          (uint64_t{static_cast<uint32_t>(tokens[i + 1])} << 32);
    hash = (hash ^ pair) * kOdd;
    hash ^= hash >> 29;
  }
  return static_cast<uint32_t>(hash >> 32) & (header_->buckets - 1);
}

uint32_t PrefixIndex::find_child(uint32_t parent, std::span<const TokenId> tokens) const {
  const uint32_t first = nodes_[parent].first_child;
  if (first == kNoIndex) return kNoIndex;
  // Most nodes have one child; then no hash is needed.
  if (std::ranges::equal(nodes_[first].tokens, tokens)) return first;
  if (nodes_[first].next_sibling == kNoIndex) return kNoIndex;
  for (uint32_t place = buckets_[bucket_of(parent, tokens)]; place != 0;) {
    const PrefixNode& node = nodes_[place - 1];
    if (node.parent == parent && std::ranges::equal(node.tokens, tokens)) return place - 1;
    place = node.next_in_bucket == kNoIndex ? 0 : node.next_in_bucket + 1;
  }
  return kNoIndex;
}

uint32_t PrefixIndex::lookup(CacheDomain domain, std::span<const TokenId> tokens,
                             std::vector<PageId>& pages, std::vector<SlotRef>* stored) const {
  pages.clear();
  if (stored != nullptr) stored->clear();
  uint32_t node = root_of(domain);
  if (node == kNoIndex) return 0;
  uint32_t matched = 0;
  while (tokens.size() - matched >= kPageTokens) {
    const uint32_t child = find_child(node, tokens.subspan(matched, kPageTokens));
    if (child == kNoIndex || nodes_[child].page == kNoPage) {
      if (child != kNoIndex && stored != nullptr) {
        stored->resize((tokens.size() - matched) / kPageTokens);
        stored->resize(walk_stored(node, tokens.subspan(matched), *stored));
      }
      break;
    }
    pages.push_back(nodes_[child].page);
    matched += kPageTokens;
    node = child;
  }
  const std::span<const TokenId> rest = tokens.subspan(matched);
  uint32_t best = 0;
  uint32_t best_child = kNoIndex;
  uint32_t tried = 0;
  for (uint32_t child = nodes_[node].first_child; child != kNoIndex && tried < kSiblingsTried;
       child = nodes_[child].next_sibling, ++tried) {
    if (nodes_[child].page == kNoPage) continue;
    const uint32_t common = common_tokens(nodes_[child].tokens, rest);
    if (common > best) {
      best = common;
      best_child = child;
    }
  }
  if (best > 0) pages.push_back(nodes_[best_child].page);
  return matched + best;
}

uint32_t PrefixIndex::acquire_node() {
  uint32_t node = header_->free_first;
  if (node != kNoIndex) {
    header_->free_first = nodes_[node].next_sibling;
  } else {
    // There are as many nodes as places for their content, and each has one of those.
    INFERD_CHECK(header_->touched < nodes_max());
    node = header_->touched++;
  }
  nodes_[node] = PrefixNode{};
  return node;
}

uint32_t PrefixIndex::add_node(uint32_t parent, std::span<const TokenId> tokens) {
  const uint32_t index = acquire_node();
  PrefixNode& node = nodes_[index];
  node.parent = parent;
  node.depth = is_root(parent) ? 0 : nodes_[parent].depth + 1;
  std::ranges::copy(tokens, node.tokens.begin());
  node.next_sibling = nodes_[parent].first_child;
  if (node.next_sibling != kNoIndex) nodes_[node.next_sibling].previous_sibling = index;
  nodes_[parent].first_child = index;
  uint32_t& bucket = buckets_[bucket_of(parent, tokens)];
  node.next_in_bucket = bucket == 0 ? kNoIndex : bucket - 1;
  bucket = index + 1;
  ++header_->nodes;
  return index;
}

PageId PrefixIndex::insert(CacheDomain domain, PageId parent_page, PageId page,
                           std::span<const TokenId> tokens) {
  INFERD_CHECK(tokens.size() == kPageTokens && domain.value != 0);
  uint32_t parent = kNoIndex;
  if (parent_page == kNoPage) {
    parent = make_root(domain);
    if (parent == kNoIndex) return kNoPage;
  } else if (pool_.is_indexed(parent_page)) {
    parent = node_of(parent_page);
  } else {
    return kNoPage;
  }
  uint32_t node = find_child(parent, tokens);
  if (node != kNoIndex && nodes_[node].page != kNoPage) return nodes_[node].page;
  if (pool_.is_indexed(page)) return kNoPage;  // it stands elsewhere: its table was changed by hand
  if (node == kNoIndex) node = add_node(parent, tokens);
  nodes_[node].page = page;
  node_of_page_[page.value] = node + 1;
  const uint32_t cost_class = cost_class_of(nodes_[node].depth);
  pool_.set_indexed(page, cost_class);
  raise_before(node, cost_class);
  if (is_pinned(node)) pool_.set_pinned(page, true);
  return page;
}

void PrefixIndex::unlink(uint32_t index) {
  PrefixNode& node = nodes_[index];
  INFERD_CHECK(!is_root(index) && node.first_child == kNoIndex);
  uint32_t* place = &buckets_[bucket_of(node.parent, node.tokens)];
  INFERD_CHECK(*place != 0);
  if (*place == index + 1) {
    *place = node.next_in_bucket == kNoIndex ? 0 : node.next_in_bucket + 1;
  } else {
    uint32_t before = *place - 1;
    while (nodes_[before].next_in_bucket != index) {
      before = nodes_[before].next_in_bucket;
      INFERD_CHECK(before != kNoIndex);
    }
    nodes_[before].next_in_bucket = node.next_in_bucket;
  }
  PrefixNode& parent = nodes_[node.parent];
  if (node.previous_sibling != kNoIndex) {
    nodes_[node.previous_sibling].next_sibling = node.next_sibling;
  } else {
    parent.first_child = node.next_sibling;
  }
  if (node.next_sibling != kNoIndex) {
    nodes_[node.next_sibling].previous_sibling = node.previous_sibling;
  }
  if (is_root(node.parent) && parent.first_child == kNoIndex) {
    domains_[node.parent - nodes_max()] = CacheDomain();
    parent = PrefixNode{};
  }
  if (node.slot != kNoIndex) slots_.release(node.slot);
  if (is_pinned(index)) forget_pin(index);
  node = PrefixNode{};
  node.next_sibling = header_->free_first;
  header_->free_first = index;
  --header_->nodes;
}

// A leaf leaves, wherever its content is.
void PrefixIndex::forget(uint32_t index) {
  const PageId page = nodes_[index].page;
  unlink(index);
  if (page == kNoPage) return;
  node_of_page_[page.value] = 0;
  pool_.clear_indexed(page);
}

uint32_t PrefixIndex::flush(CacheDomain domain) {
  const uint32_t root = root_of(domain);
  return root == kNoIndex ? 0 : flush_root(root);
}

uint32_t PrefixIndex::flush_all() {
  uint32_t count = 0;
  for (uint32_t i = 0; i < domains_.size(); ++i) {
    if (domains_[i].value != 0) count += flush_root(nodes_max() + i);
  }
  return count;
}

// Leaf after leaf: down to one, then up as far as nothing is left below.
uint32_t PrefixIndex::flush_root(uint32_t root) {
  uint32_t count = 0;
  uint32_t node = root;
  while (true) {
    if (nodes_[node].first_child != kNoIndex) {
      node = nodes_[node].first_child;
      continue;
    }
    if (node == root) return count;
    const uint32_t parent = nodes_[node].parent;
    // With the last child of the root, the root is gone too.
    const bool last = parent == root && nodes_[node].next_sibling == kNoIndex &&
                      nodes_[node].previous_sibling == kNoIndex;
    forget(node);
    ++count;
    if (last) return count;
    node = parent;
  }
}

}  // namespace inferd::memory
