// What the next tokens of a request take, in tokens and rows of a step and in pages.
// Owner: Scheduler; private to scheduler/. Pure functions, any thread.
#pragma once

#include <cstdint>

#include "memory/page_table.h"
#include "scheduler/request_slots.h"

namespace inferd::scheduler {

// Logits rows that computing the next `tokens` tokens of the sequence gives: the last one if a token is
// sampled after it, and every prompt position that a score request was not given yet.
uint32_t logits_for(const RequestSlot& slot, uint32_t tokens);
// How many tokens of the sequence fit in a step with so much room: 0 if none.
uint32_t tokens_for(const RequestSlot& slot, uint32_t tokens_room, uint32_t logits_room,
                    uint32_t chunk_tokens_max);
// Tokens of the planned share that can be written with `free` more pages: 0 if none.
uint32_t tokens_within_pages(const RequestSlot& slot, PageCount free);
// Pages of all known tokens and of the next one.
PageCount pages_wanted(const RequestSlot& slot);

}  // namespace inferd::scheduler
