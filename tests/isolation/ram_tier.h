// A next tier in plain memory, a step or two late, that loses what it is told to.
// Owner: tests/isolation. One thread.
#pragma once

#include <cstring>
#include <map>
#include <vector>

#include "engine/engine.h"
#include "memory/page_tier.h"

namespace inferd::isolation {

class RamTier final : public memory::PageTier {
 public:
  // Every `lose_every`-th page that is asked for is lost; 0: none.
  RamTier(engine::Engine& engine, uint32_t lose_every) : engine_(engine), lose_every_(lose_every) {}

  uint32_t stores_free() const override { return 1'000'000; }
  double fetch_ns() const override { return 0; }
  memory::FetchState fetch(memory::SlotRef slot) override {
    const auto found = slots_.find(slot.slot);
    if (found == slots_.end() || found->second.generation != slot.generation) {
      return memory::FetchState::kLost;
    }
    if (found->second.asked++ < slot.slot % 3) return memory::FetchState::kComing;
    if (lose_every_ != 0 && ++fetches_ % lose_every_ == 0) {
      slots_.erase(found);
      return memory::FetchState::kLost;
    }
    return memory::FetchState::kHere;
  }

  void store(memory::SlotRef slot, PageId page) {
    Slot& stored = slots_[slot.slot];
    stored = {slot.generation, 0, std::vector<std::byte>(engine_.info().page_bytes.value)};
    engine_.save_page(page, stored.bytes);
  }
  void load(memory::SlotRef slot, PageId page) {
    engine_.restore_page(page, slots_.at(slot.slot).bytes);
    ++loads;
  }

  uint64_t loads = 0;

 private:
  struct Slot {
    uint32_t generation = 0;
    uint32_t asked = 0;
    std::vector<std::byte> bytes;
  };
  engine::Engine& engine_;
  const uint32_t lose_every_;
  uint32_t fetches_ = 0;
  std::map<uint32_t, Slot> slots_;
};

}  // namespace inferd::isolation
