#include "daemon/engine_session.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace inferd::daemon {

namespace {

// Slots beside the last word's that hold the invariant for an empty ring.
uint32_t slots_needed(uint32_t sequences, uint32_t running) {
  return sequences * kEndSlots + running * kTokenSlotsMax + kAnswerSlots +
         kEndSlots + ipc::kLastWordSlots;
}

}  // namespace

ipc::Geometry session_geometry(uint32_t sequences_max, uint32_t running_max,
                               uint32_t context_tokens) {
  ipc::Geometry geometry;
  const uint32_t needed = std::min(slots_needed(sequences_max, running_max), ipc::kRingSlotsMax);
  geometry.completion_slots = std::max(std::bit_ceil(needed), ipc::kRingSlotsMin);
  // Room for two prompts of the longest length, so that one can be written while one is read.
  const uint64_t arena = (uint64_t{context_tokens} * sizeof(TokenId) * 2 + 4095) / 4096 * 4096;
  geometry.arena_bytes = static_cast<uint32_t>(
      std::clamp<uint64_t>(arena, geometry.arena_bytes, ipc::kArenaBytesMax));
  INFERD_CHECK(geometry.valid());
  return geometry;
}

EngineSession::EngineSession(std::unique_ptr<ipc::ServerSession> rings, SessionFacts facts,
                             uint32_t sequences_max)
    : rings_(std::move(rings)), facts_(std::move(facts)), sequences_max_(sequences_max) {
  INFERD_CHECK(rings_ != nullptr && sequences_max_ > 0);
}

LiveSequence* EngineSession::find_cookie(uint64_t cookie) const {
  const auto found = by_cookie_.find(cookie);
  return found == by_cookie_.end() ? nullptr : found->second;
}

void EngineSession::add_sequence(LiveSequence& sequence) {
  const bool added = by_cookie_.emplace(sequence.cookie, &sequence).second;
  INFERD_CHECK(added);
  sequences_.push_back(&sequence);
  widest_token_slots_ = std::max(widest_token_slots_, sequence.token_slots);
  scored_ += sequence.scored.empty() ? 0 : 1;
}

void EngineSession::remove_sequence(LiveSequence& sequence) {
  const auto place = std::find(sequences_.begin(), sequences_.end(), &sequence);
  INFERD_CHECK(place != sequences_.end());
  sequences_.erase(place);
  by_cookie_.erase(sequence.cookie);
  scored_ -= sequence.scored.empty() ? 0 : 1;
  widest_token_slots_ = 1;
  for (const LiveSequence* left : sequences_) {
    widest_token_slots_ = std::max(widest_token_slots_, left->token_slots);
  }
}

uint32_t EngineSession::drain_quota() {
  const auto ends = static_cast<uint32_t>(sequences_.size()) * kEndSlots;
  for (uint32_t quota = kDrainRecordsMax; quota > 0; quota /= 2) {
    if (rings_->has_room(ends + quota * (kAnswerSlots + kEndSlots))) return quota;
  }
  return 0;
}

bool EngineSession::room_for_step(uint32_t running_max) {
  const auto live = static_cast<uint32_t>(sequences_.size());
  const uint32_t tokens = scored_ > 0 ? running_max : std::min(live, running_max);
  return rings_->has_room(live * kEndSlots + tokens * widest_token_slots_);
}

}  // namespace inferd::daemon
