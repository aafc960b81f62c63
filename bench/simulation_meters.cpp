#include "bench/simulation_meters.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace inferd::bench {

using scheduler::kPriorityClasses;
using scheduler::PriorityClass;

void WasteMeter::add(const memory::PagedMemory& memory, int64_t time_ns) {
  INFERD_CHECK(time_ns >= 0);
  const memory::SequenceTable& sequences = memory.sequences();
  const std::span<const memory::SequenceRecord> records = sequences.records();
  uint64_t empty = 0;
  for (uint32_t slot = 0; slot < records.size(); ++slot) {
    const memory::SequenceRecord& record = records[slot];
    if (record.id.value == 0 || record.pages == 0) continue;
    const uint32_t own = record.pages * kPageTokens - record.tokens;
    const PageId last = sequences.pages_of_slot(slot).back();
    if (own < kPageTokens && memory.pool().is_indexed(last)) continue;
    sequence_tokens_max_ = std::max(sequence_tokens_max_, own);
    empty += own;
  }
  const uint32_t pages = memory.pool().counts().live().value;
  pages_max_ = std::max(pages_max_, pages);
  if (pages == 0) return;
  const double places = static_cast<double>(pages) * kPageTokens;
  const auto time = static_cast<double>(time_ns);
  empty_time_ += static_cast<double>(empty) * time;
  places_time_ += places * time;
  share_time_ += static_cast<double>(empty) / places * time;
  held_ns_ += time;
}

double WasteMeter::share() const { return places_time_ > 0 ? empty_time_ / places_time_ : 0; }

double WasteMeter::time_mean_share() const { return held_ns_ > 0 ? share_time_ / held_ns_ : 0; }

double WasteMeter::pages_mean() const {
  return held_ns_ > 0 ? places_time_ / kPageTokens / held_ns_ : 0;
}

FairnessMeter::FairnessMeter(uint32_t users)
    : users_(users),
      paired_(std::min(users, kUsersPaired)),
      served_(size_t{kPriorityClasses} * users, 0),
      lacking_(size_t{kPriorityClasses} * users, 0),
      ranges_(size_t{kPriorityClasses} * paired_ * paired_) {
  INFERD_CHECK(users > 0);
}

void FairnessMeter::serve(PriorityClass priority, uint32_t user, uint64_t cost, uint32_t weight) {
  INFERD_CHECK(user < users_ && weight > 0);
  served_[static_cast<size_t>(priority) * users_ + user] +=
      static_cast<double>(cost) * scheduler::kWeightDefault / weight;
}

void FairnessMeter::note_lacking(PriorityClass priority, uint32_t user) {
  INFERD_CHECK(user < users_);
  lacking_[static_cast<size_t>(priority) * users_ + user] = 1;
}

FairnessMeter::Range& FairnessMeter::range_of(size_t priority, uint32_t one, uint32_t other) {
  return ranges_[(priority * paired_ + one) * paired_ + other];
}

void FairnessMeter::end_step() {
  bool contended = false;
  for (size_t priority = 0; priority < kPriorityClasses; ++priority) {
    for (uint32_t one = 0; one < paired_; ++one) {
      const bool one_lacks = lacking_[priority * users_ + one] != 0;
      for (uint32_t other = one + 1; other < paired_; ++other) {
        Range& range = range_of(priority, one, other);
        if (!one_lacks || lacking_[priority * users_ + other] == 0) {
          range.open = false;
          continue;
        }
        contended = true;
        const double apart = served_[priority * users_ + one] - served_[priority * users_ + other];
        range.low = range.open ? std::min(range.low, apart) : apart;
        range.high = range.open ? std::max(range.high, apart) : apart;
        range.open = true;
        apart_max_ = std::max(apart_max_, range.high - range.low);
      }
    }
  }
  contended_steps_ += contended ? 1 : 0;
  std::fill(lacking_.begin(), lacking_.end(), uint8_t{0});
}

double FairnessMeter::service(uint32_t user) const {
  double sum = 0;
  for (size_t priority = 0; priority < kPriorityClasses; ++priority) {
    sum += served_[priority * users_ + user];
  }
  return sum;
}

double fair_bound(uint32_t longest_tokens, uint32_t step_tokens) {
  const double decodes = static_cast<double>(scheduler::kDecodeCost) * step_tokens;
  return 2 * std::max<double>(longest_tokens, decodes) + 2.0 * step_tokens;
}

void MomentLog::add(Moment moment) {
  next_s_ = std::max(next_s_ + interval_s_, moment.time_s);
  moments_.push_back(std::move(moment));
  if (moments_.size() <= kMomentsMax) return;
  size_t kept = 0;
  for (size_t i = 0; i < moments_.size(); i += 2) {
    if (i != kept) moments_[kept] = std::move(moments_[i]);
    ++kept;
  }
  moments_.resize(kept);
  interval_s_ *= 2;
}

}  // namespace inferd::bench
