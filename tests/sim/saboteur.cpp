#include "tests/sim/saboteur.h"

#include <array>
#include <utility>

#include "memory/page_pool.h"

namespace inferd::sim {

namespace {

constexpr std::array kAll = {
    std::pair{Sabotage::kLeakPage, "leaked page"},
    std::pair{Sabotage::kExtraReference, "extra reference"},
    std::pair{Sabotage::kLostReference, "lost reference"},
    std::pair{Sabotage::kDoubleFree, "double free"},
    std::pair{Sabotage::kWrongCharge, "wrong charge"},
    std::pair{Sabotage::kReservationLeft, "reservation left"},
    std::pair{Sabotage::kSwapPages, "swapped pages"},
    std::pair{Sabotage::kForgetToken, "forgotten token"},
    std::pair{Sabotage::kSkipRecompute, "skipped recomputation"},
    std::pair{Sabotage::kLoseRequest, "lost request"},
    std::pair{Sabotage::kLoseResume, "lost resume"},
    std::pair{Sabotage::kSkipAnnouncement, "skipped announcement"},
    std::pair{Sabotage::kSkipCopy, "skipped copy"},
    std::pair{Sabotage::kWrongPrefix, "wrong prefix"},
    std::pair{Sabotage::kLostCachedPage, "lost cached page"},
    std::pair{Sabotage::kStrangeHolder, "strange holder"},
    std::pair{Sabotage::kSkipStore, "skipped store"},
    std::pair{Sabotage::kLateStore, "late store"},
    std::pair{Sabotage::kWrongLoad, "wrong load"},
    std::pair{Sabotage::kUnfairCharge, "unfair charge"},
};

}  // namespace

std::span<const Sabotage> all_sabotages() {
  static constexpr auto kList = [] {
    std::array<Sabotage, kAll.size()> list{};
    for (size_t index = 0; index < kAll.size(); ++index) list[index] = kAll[index].first;
    return list;
  }();
  return kList;
}

std::string_view sabotage_name(Sabotage sabotage) {
  for (const auto& [one, name] : kAll) {
    if (one == sabotage) return name;
  }
  return "none";
}

}  // namespace inferd::sim

namespace inferd::scheduler {

namespace {

using sim::Sabotage;

constexpr UserId kNobody{4242};

// A page of the lowest open sequence that has one; kNoPage if none.
PageId held_page(const memory::PagedMemory& memory) {
  const memory::SequenceTable& tables = memory.sequences();
  for (uint32_t slot = 0; slot < tables.sequences_max(); ++slot) {
    const std::span<const PageId> pages = tables.pages_of_slot(slot);
    if (!pages.empty()) return pages.back();
  }
  return kNoPage;
}

memory::PageRecord& record_in_region(memory::PagedMemory& memory, PageId page) {
  memory::LayoutBuilder builder;
  builder.place<memory::PoolHeader>(1);
  const uint32_t pages = memory.pool().counts().total.value;
  const size_t offset_bytes = builder.place<memory::PageRecord>(pages);
  return memory::array_at<memory::PageRecord>(memory.region(), offset_bytes, pages)[page.value];
}

bool leak_page(memory::PagedMemory& memory) {
  memory::Reservation reservation;
  if (memory.pool().reserve(PageCount(1), reservation) != memory::ReserveStatus::kReserved) {
    return false;
  }
  memory.pool().take(reservation, kNobody);
  return true;
}

bool leave_reservation(memory::PagedMemory& memory) {
  if (memory.pool().counts().free.value == 0) return false;
  ++memory::array_at<memory::PoolHeader>(memory.region(), 0, 1)[0].reserved;
  return true;
}

// What a second release of an idle page would do, were it not checked.
bool free_twice(memory::PagedMemory& memory) {
  memory::PoolHeader& header = memory::array_at<memory::PoolHeader>(memory.region(), 0, 1)[0];
  if (header.idle_count == 0) return false;
  record_in_region(memory, PageId(header.idle_first)).next = header.idle_first;
  ++header.idle_count;
  ++header.states[static_cast<uint32_t>(memory::PageState::kFree)];
  --header.states[static_cast<uint32_t>(memory::PageState::kOwned)];
  return true;
}

// The first pages of two sequences change places, references and all.
bool swap_pages(memory::PagedMemory& memory) {
  PageId* first = nullptr;
  const memory::SequenceTable& tables = memory.sequences();
  for (uint32_t slot = 0; slot < tables.sequences_max(); ++slot) {
    const std::span<const PageId> pages = tables.pages_of_slot(slot);
    if (pages.empty()) continue;
    PageId* page = const_cast<PageId*>(pages.data());
    if (first != nullptr && *first == *page) continue;  // they share it
    if (first != nullptr) {
      std::swap(*first, *page);
      return true;
    }
    first = page;
  }
  return false;
}

// The index's nodes lie behind its header, as memory/prefix_index.cpp places them.
bool confuse_prefix(memory::PagedMemory& memory) {
  const PageId page = memory.pool().next_to_go();
  if (page == kNoPage) return false;
  const size_t index_bytes = memory.prefixes().layout_bytes();
  const std::span<std::byte> region =
      memory.region().subspan(memory.region().size() - index_bytes, index_bytes);
  memory::LayoutBuilder builder;
  builder.place<memory::PrefixHeader>(1);
  const uint32_t nodes = memory.pool().counts().total.value + memory.prefixes().slots();
  const size_t offset_bytes = builder.place<memory::PrefixNode>(nodes);
  for (auto& node : memory::array_at<memory::PrefixNode>(region, offset_bytes, nodes)) {
    if (node.parent == memory::kNoIndex || node.page != page) continue;
    node.tokens[3] = node.tokens[3] == 0 ? 1 : 0;
    return true;
  }
  return false;
}

// The token goes without a trace in the figures, so that only its absence from the answer tells.
bool forget_token(RequestSlot& slot) {
  if (slot.stats.preemptions == 0 || slot.stats.generated_tokens == 0) return false;
  slot.tokens.pop_back();
  --slot.stats.generated_tokens;
  return true;
}

}  // namespace

bool SchedulerSaboteur::strike(Scheduler& scheduler, memory::PagedMemory& memory, Sabotage sabotage,
                               Prng& prng) {
  const PageId held = held_page(memory);
  SlotList& waiting = scheduler.waiting_;
  const uint32_t any_waiting =
      waiting.empty() ? 0 : waiting[static_cast<uint32_t>(prng.below(waiting.size()))];
  RequestSlot* slot = waiting.empty() ? nullptr : &scheduler.slots_[any_waiting];
  PageId announced{};
  switch (sabotage) {
    case Sabotage::kNone:
    case Sabotage::kSkipCopy:
    case Sabotage::kSkipStore:
    case Sabotage::kLateStore:
    case Sabotage::kWrongLoad:
      return false;
    case Sabotage::kWrongPrefix:
      return confuse_prefix(memory);
    case Sabotage::kLostCachedPage:
      if (memory.pool().next_to_go() == kNoPage) return false;
      memory.pool().clear_indexed(memory.pool().next_to_go());
      return true;
    case Sabotage::kStrangeHolder:
      if (held == kNoPage || !memory.pool().is_indexed(held)) return false;
      record_in_region(memory, held).state = memory::PageState::kCached;
      return true;
    case Sabotage::kLeakPage:
      return leak_page(memory);
    case Sabotage::kExtraReference:
      if (held == kNoPage) return false;
      memory.pool().retain(held);
      return true;
    case Sabotage::kLostReference:
      if (held == kNoPage) return false;
      memory.pool().release(held);
      return true;
    case Sabotage::kDoubleFree:
      return free_twice(memory);
    case Sabotage::kWrongCharge:
      if (held == kNoPage) return false;
      memory.pool().recharge(held, kNobody);
      return true;
    case Sabotage::kReservationLeft:
      return leave_reservation(memory);
    case Sabotage::kSwapPages:
      return swap_pages(memory);
    case Sabotage::kForgetToken:
      return slot != nullptr && forget_token(*slot);
    case Sabotage::kSkipRecompute:
      if (slot == nullptr || slot->stats.preemptions == 0) return false;
      slot->computed = 1;
      return true;
    case Sabotage::kLoseRequest:
      if (slot == nullptr) return false;
      waiting.erase(any_waiting);
      return true;
    case Sabotage::kLoseResume:
      if (slot == nullptr || slot->paused) return false;
      slot->paused = true;
      return true;
    case Sabotage::kUnfairCharge:
      if (slot == nullptr || slot->priority != PriorityClass::kInteractive) return false;
      scheduler.fair_.charge(slot->lane, 100'000, 0);
      return true;
    case Sabotage::kSkipAnnouncement:
      return memory.pool().drain_taken(std::span(&announced, 1)) == 1;
  }
  return false;
}

}  // namespace inferd::scheduler
