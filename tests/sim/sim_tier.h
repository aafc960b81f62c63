// A next tier without a disk: it keeps the tokens of each page, takes its time, and loses things.
// Owner: tests/sim. One thread. Must not know the memory's state, only what it is told.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>

#include "base/prng.h"
#include "memory/page_tier.h"

namespace inferd::sim {

class SimTier final : public memory::PageTier {
 public:
  explicit SimTier(uint64_t seed) : prng_(seed) {}

  uint32_t stores_free() const override { return stores_free_; }
  memory::FetchState fetch(memory::SlotRef slot) override;
  double fetch_ns() const override { return fetch_ns_; }

  // What the step loop does with memory's stores and a plan's loads.
  void store(memory::SlotRef slot, std::span<const TokenId> tokens);
  std::span<const TokenId> load(memory::SlotRef slot);

  // Between two steps: what was asked for comes nearer, and with `faults` something is lost now and then.
  void advance(bool faults);
  // Something that was asked for has not come yet.
  bool busy() const;
  // What the slot holds; empty if it was lost, or never stored.
  std::span<const TokenId> content(memory::SlotRef slot) const;

  uint64_t loads() const { return loads_; }
  uint64_t losses() const { return losses_; }

 private:
  struct Slot {
    uint32_t generation = 0;
    std::array<TokenId, kPageTokens> tokens{};
    bool lost = false;
    bool loaded = false;
    uint32_t steps_left = kNotAsked;  // until a fetch has come
  };
  static constexpr uint32_t kNotAsked = UINT32_MAX;

  Prng prng_;
  std::map<uint32_t, Slot> slots_;
  uint32_t stores_free_ = 4;
  double fetch_ns_ = 0;
  uint64_t loads_ = 0;
  uint64_t losses_ = 0;
};

}  // namespace inferd::sim
