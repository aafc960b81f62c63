#include "bench/trace.h"

#include <algorithm>

#include "base/check.h"
#include "base/prng.h"

namespace inferd::bench {

namespace {

constexpr uint64_t kVocabulary = 100'000;
// Apart from every id that a trace gives.
constexpr uint64_t kOwnPrompt = uint64_t{1} << 62;
constexpr uint64_t kOwnAnswer = uint64_t{1} << 63;

TokenId piece_token(uint64_t id, uint32_t place) {
  const auto drawn =
      philox4x32({static_cast<uint32_t>(id), static_cast<uint32_t>(id >> 32), place, 0},
                 {0x7452a3c1, 0x19d7be05});
  const uint64_t wide = (uint64_t{drawn[0]} << 32) | drawn[1];
  return static_cast<TokenId>(wide % kVocabulary);
}

void append_piece(uint64_t id, uint32_t count, std::vector<TokenId>& tokens) {
  for (uint32_t place = 0; place < count; ++place) tokens.push_back(piece_token(id, place));
}

}  // namespace

void make_prompt(const TraceRequest& request, uint64_t number, std::vector<TokenId>& tokens) {
  tokens.clear();
  for (const PromptPiece& piece : request.pieces) append_piece(piece.id, piece.tokens, tokens);
  INFERD_CHECK(tokens.size() <= request.prompt_tokens);
  append_piece(kOwnPrompt | number, request.prompt_tokens - static_cast<uint32_t>(tokens.size()),
               tokens);
}

TokenId answer_token(const TraceRequest& request, uint64_t number, uint32_t place) {
  return piece_token(request.answer_id != 0 ? request.answer_id : kOwnAnswer | number, place);
}

}  // namespace inferd::bench
