#include "tests/sim/sim_tier.h"

#include <algorithm>

#include "base/check.h"

namespace inferd::sim {

using memory::FetchState;
using memory::SlotRef;

FetchState SimTier::fetch(SlotRef ref) {
  const auto found = slots_.find(ref.slot);
  if (found == slots_.end() || found->second.generation != ref.generation || found->second.lost) {
    return FetchState::kLost;
  }
  Slot& slot = found->second;
  if (slot.steps_left == 0) return FetchState::kHere;
  if (slot.steps_left == kNotAsked) {
    if (prng_.below(20) == 0) return FetchState::kUnavailable;
    slot.steps_left = static_cast<uint32_t>(prng_.below(4));
  }
  return slot.steps_left == 0 ? FetchState::kHere : FetchState::kComing;
}

void SimTier::store(SlotRef ref, std::span<const TokenId> tokens) {
  Slot& slot = slots_[ref.slot];
  slot = Slot{};
  slot.generation = ref.generation;
  std::copy(tokens.begin(), tokens.end(), slot.tokens.begin());
  INFERD_CHECK(stores_free_ > 0);
  --stores_free_;
}

std::span<const TokenId> SimTier::load(SlotRef ref) {
  Slot& slot = slots_.at(ref.slot);
  INFERD_CHECK(slot.generation == ref.generation && slot.steps_left == 0);
  slot.loaded = true;
  ++loads_;
  return slot.tokens;
}

void SimTier::advance(bool faults) {
  for (auto& [number, slot] : slots_) {
    if (slot.loaded) slot.steps_left = kNotAsked;
    slot.loaded = false;
    if (slot.steps_left != kNotAsked && slot.steps_left > 0) --slot.steps_left;
    if (faults && !slot.lost && prng_.below(200) == 0) {
      slot.lost = true;
      ++losses_;
    }
  }
  stores_free_ = static_cast<uint32_t>(prng_.below(4) == 0 ? prng_.below(3) : 8);
  // Now and then it is slower than computing.
  fetch_ns_ = prng_.below(10) == 0 ? 1e12 : 1e5;
}

bool SimTier::busy() const {
  return std::any_of(slots_.begin(), slots_.end(), [](const auto& entry) {
    return entry.second.steps_left != kNotAsked && entry.second.steps_left > 0;
  });
}

std::span<const TokenId> SimTier::content(SlotRef ref) const {
  const auto found = slots_.find(ref.slot);
  if (found == slots_.end() || found->second.generation != ref.generation || found->second.lost) {
    return {};
  }
  return found->second.tokens;
}

}  // namespace inferd::sim
