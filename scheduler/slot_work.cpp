#include "scheduler/slot_work.h"

#include <algorithm>

#include "base/check.h"

namespace inferd::scheduler {

uint32_t logits_for(const RequestSlot& slot, uint32_t tokens) {
  const uint32_t end = slot.computed + tokens;
  const uint32_t known = static_cast<uint32_t>(slot.tokens.size());
  INFERD_DCHECK(end <= known);
  if (tokens == 0) return 0;
  uint32_t rows = end == known && known < slot.limit ? 1 : 0;
  if (slot.score && std::min(end, slot.stats.prompt_tokens) > slot.scored) {
    // Scored positions are a prefix of the prompt, and nothing is generated before all of them are.
    rows = std::max(rows, end - slot.scored);
  }
  return rows;
}

uint32_t tokens_for(const RequestSlot& slot, uint32_t tokens_room, uint32_t logits_room,
                    uint32_t chunk_tokens_max) {
  uint32_t tokens = std::min(slot.tokens_left(), tokens_room);
  if (chunk_tokens_max != 0) tokens = std::min(tokens, chunk_tokens_max);
  if (slot.chunk_tokens_max != 0) tokens = std::min(tokens, slot.chunk_tokens_max);
  // One token less is one row less, as long as there are rows at all.
  const uint32_t rows = logits_for(slot, tokens);
  if (rows > logits_room) tokens -= rows - logits_room;
  INFERD_DCHECK(logits_for(slot, tokens) <= logits_room);
  return tokens;
}

uint32_t tokens_within_pages(const RequestSlot& slot, PageCount free) {
  const PageCount needed = slot.table.pages_needed(slot.planned);
  if (needed <= free) return slot.planned;
  const PageCount pages_end = memory::pages_for_tokens(slot.computed + slot.planned);
  const uint32_t end = (pages_end - (needed - free)).value * kPageTokens;
  return end > slot.computed ? end - slot.computed : 0;
}

PageCount pages_wanted(const RequestSlot& slot) {
  const uint32_t known = static_cast<uint32_t>(slot.tokens.size());
  return memory::pages_for_tokens(std::min(known + 1, slot.limit));
}

}  // namespace inferd::scheduler
