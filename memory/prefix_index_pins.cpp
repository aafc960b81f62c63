// PrefixIndex: who pinned what, so that it goes after all that is not pinned.
#include <algorithm>

#include "base/check.h"
#include "memory/prefix_index.h"

namespace inferd::memory {

uint32_t PrefixIndex::pinned_pages(UserId user) const {
  const auto own = pins_.find(user);
  return own == pins_.end() ? 0 : static_cast<uint32_t>(own->second.size());
}

void PrefixIndex::set_pin(uint32_t node, UserId user) {
  nodes_[node].pinned_for = user;
  pins_[user].insert(node);
  if (nodes_[node].page != kNoPage) pool_.set_pinned(nodes_[node].page, true);
}

void PrefixIndex::forget_pin(uint32_t node) {
  const auto own = pins_.find(nodes_[node].pinned_for);
  INFERD_CHECK(own != pins_.end() && own->second.erase(node) == 1);
  if (own->second.empty()) pins_.erase(own);
  nodes_[node].pinned_for = kNobody;
}

// After the nodes were mapped: they say who pinned them.
void PrefixIndex::find_pins() {
  const uint32_t touched = std::min(header_->touched, nodes_max());
  for (uint32_t node = 0; node < touched; ++node) {
    if (is_used(node) && is_pinned(node)) pins_[nodes_[node].pinned_for].insert(node);
  }
}

PrefixIndex::Pinned PrefixIndex::pin(CacheDomain domain, std::span<const TokenId> tokens,
                                     UserId user, uint32_t pages_max) {
  INFERD_CHECK(user != kNobody);
  std::vector<uint32_t> path;
  uint32_t fresh = 0;
  for (uint32_t node = root_of(domain); node != kNoIndex && tokens.size() >= kPageTokens;
       tokens = tokens.subspan(kPageTokens)) {
    node = find_child(node, tokens.first(kPageTokens));
    if (node == kNoIndex) break;
    path.push_back(node);
    fresh += is_pinned(node) ? 0 : 1;
  }
  const Pinned pinned{static_cast<uint32_t>(path.size()), pinned_pages(user) + fresh};
  if (pinned.of_user > pages_max) return pinned;
  // From the end, so that cached ones go on to go in that order.
  for (size_t i = path.size(); i-- > 0;) {
    if (!is_pinned(path[i])) {
      set_pin(path[i], user);
    } else if (const PageId page = nodes_[path[i]].page; page != kNoPage) {
      pool_.set_pinned(page, true);
    }
  }
  return pinned;
}

bool PrefixIndex::restore_pin(uint32_t node, UserId user, uint32_t pages_max) {
  INFERD_CHECK(is_used(node) && !is_root(node) && user != kNobody);
  const uint32_t parent = nodes_[node].parent;
  const bool follows_pinned = is_root(parent) || is_pinned(parent);
  if (is_pinned(node) || !follows_pinned || pinned_pages(user) >= pages_max) return false;
  set_pin(node, user);
  return true;
}

uint32_t PrefixIndex::unpin(UserId user) {
  const auto own = pins_.find(user);
  if (own == pins_.end()) return 0;
  // What stands before a pin that stays.
  std::set<uint32_t> needed;
  for (const auto& [other, nodes] : pins_) {
    if (other == user) continue;
    for (const uint32_t node : nodes) needed.insert(nodes_[node].parent);
  }
  std::vector<uint32_t> nodes(own->second.begin(), own->second.end());
  // Children before their parents.
  std::sort(nodes.begin(), nodes.end(), [this](uint32_t a, uint32_t b) {
    return nodes_[a].depth != nodes_[b].depth ? nodes_[a].depth > nodes_[b].depth : a < b;
  });
  uint32_t count = 0;
  for (const uint32_t node : nodes) {
    if (needed.contains(node)) {
      needed.insert(nodes_[node].parent);
      continue;
    }
    forget_pin(node);
    if (nodes_[node].page != kNoPage) pool_.set_pinned(nodes_[node].page, false);
    ++count;
  }
  return count;
}

// What the nodes say and what is noted of it are the same.
Result<void> PrefixIndex::verify_pins() const {
  size_t noted = 0;
  for (const auto& [user, nodes] : pins_) noted += nodes.size();
  size_t pinned = 0;
  for (uint32_t node = 0; node < header_->touched; ++node) {
    if (!is_used(node) || !is_pinned(node)) continue;
    ++pinned;
    const auto own = pins_.find(nodes_[node].pinned_for);
    if (own == pins_.end() || !own->second.contains(node)) {
      return Error(ErrorCode::kInternal, "prefix index: the pin of node " + std::to_string(node) +
                                             " is not noted");
    }
  }
  if (noted == pinned) return {};
  return Error(ErrorCode::kInternal, "prefix index: " + std::to_string(noted) +
                                         " pins are noted, and there are " +
                                         std::to_string(pinned));
}

}  // namespace inferd::memory
