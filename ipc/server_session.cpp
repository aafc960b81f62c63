#include "ipc/server_session.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <string>

namespace inferd::ipc {
namespace {

// Slots of a submission record of this type; 0 if there is no such type.
uint32_t submission_record_slots(uint16_t type, uint64_t features) {
  switch (type) {
    case kSubmit:
      return slots_for_bytes(sizeof(SubmitRecord));
    case kCancel:
      return slots_for_bytes(sizeof(CancelRecord));
    case kDelivered:
      return slots_for_bytes(sizeof(DeliveredRecord));
    case kRenice:
      return (features & kFeatureRenice) != 0 ? slots_for_bytes(sizeof(ReniceRecord)) : 0;
    case kPin:
    case kUnpin:
      return (features & kFeaturePin) != 0 ? slots_for_bytes(sizeof(PinRecord)) : 0;
    default:
      return 0;
  }
}

// `count` elements of `element_bytes` at `offset`, within the arena and aligned; no sum can
// overflow.
bool within_arena(uint64_t offset, uint64_t count, uint64_t element_bytes, uint64_t arena_bytes) {
  return offset % 4 == 0 && offset + count * element_bytes <= arena_bytes;
}

// Copies 32-bit words that the client may be writing at this moment.
void copy_words(std::byte* from, void* to, size_t words) {
  auto* source = reinterpret_cast<uint32_t*>(from);
  auto* target = static_cast<std::byte*>(to);
  for (size_t i = 0; i < words; ++i) {
    const uint32_t word = std::atomic_ref<uint32_t>(source[i]).load(std::memory_order_relaxed);
    std::memcpy(target + i * 4, &word, 4);
  }
}

// The longest prefix of at most `bytes_max` bytes that does not end inside a UTF-8 character.
std::string_view cut_sentence(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

Error refused(const std::string& sentence) { return Error(ErrorCode::kInvalidArgument, sentence); }

template <size_t N>
bool all_zero(const uint64_t (&words)[N]) {
  return std::all_of(std::begin(words), std::end(words), [](uint64_t w) { return w == 0; });
}

}  // namespace

Result<std::unique_ptr<ServerSession>> ServerSession::create(const Geometry& geometry, SessionId id,
                                                             uint64_t features) {
  if (!geometry.valid()) {
    return refused("ring slots must be a power of two from " + std::to_string(kRingSlotsMin) +
                   " to " + std::to_string(kRingSlotsMax) + ", the arena a multiple of 4096 bytes");
  }
  std::unique_ptr<ServerSession> session(new ServerSession);
  session->geometry_ = geometry;
  session->id_ = id;
  session->features_ = features;
  INFERD_ASSIGN(session->client_region_,
                SharedRegion::create("inferd-client", geometry.client_region_bytes()));
  INFERD_ASSIGN(session->token_region_,
                SharedRegion::create("inferd-tokens", geometry.token_region_bytes()));
  INFERD_ASSIGN(session->token_reader_, reopen_read_only(session->token_region_.fd()));
  INFERD_TRY(deny_reopening(session->client_region_.fd()));
  INFERD_ASSIGN(session->submission_bell_, create_doorbell());
  INFERD_ASSIGN(session->completion_bell_, create_doorbell());

  auto* client = reinterpret_cast<ClientControl*>(session->client_region_.data());
  auto* tokens = reinterpret_cast<TokenControl*>(session->token_region_.data());
  tokens->identity = {kMagic,
                      kVersionMajor,
                      kVersionMinor,
                      id.value,
                      features,
                      geometry.submission_slots,
                      geometry.completion_slots,
                      geometry.arena_bytes,
                      {}};
  session->submissions_ =
      RingConsumer(reinterpret_cast<Slot*>(session->client_region_.data() + kControlBytes),
                   geometry.submission_slots, &tokens->submission_head, &client->submission_tail);
  session->completions_ =
      RingProducer(reinterpret_cast<Slot*>(session->token_region_.data() + kControlBytes),
                   geometry.completion_slots, &tokens->completion_tail, &client->completion_head);
  session->sleeper_ = Sleeper(&tokens->submission_wake);
  session->waker_ = Waker(&client->completion_wake);
  return session;
}

std::vector<int> ServerSession::client_fds(int text_tables_fd) const {
  std::vector<int> fds(kWelcomeDescriptors, -1);
  fds[kFdClientRegion] = client_region_.fd();
  fds[kFdTokenRegion] = token_reader_.get();
  fds[kFdTextTables] = text_tables_fd;
  fds[kFdSubmissionBell] = submission_bell_.get();
  fds[kFdCompletionBell] = completion_bell_.get();
  return fds;
}

void ServerSession::close_client_fds() {
  client_region_.close_fd();
  token_region_.close_fd();
  token_reader_.reset();
}

// ---- submissions ----

void ServerSession::break_session(std::string_view reason) {
  if (broken_) return;
  broken_.emplace(ErrorCode::kProtocol,
                  "the client broke the ring protocol (" + std::string(reason) + ")");
}

uint32_t ServerSession::take_record() {
  const uint64_t available = submissions_.available();
  if (available == kRingBroken) {
    break_session("its submission index is further ahead than the ring is long");
    return 0;
  }
  if (available == 0) return 0;
  submissions_.copy_slot(0, record_);
  RecordHeader header;
  std::memcpy(&header, record_, sizeof(header));
  const uint32_t slots = submission_record_slots(header.type, features_);
  if (slots == 0 || header.slots != slots) {
    break_session("a submission of unknown type or length");
    return 0;
  }
  const uint64_t known = submissions_.available(slots);
  if (known == kRingBroken || known < slots) {
    break_session("a submission was published in part");
    return 0;
  }
  for (uint32_t i = 1; i < slots; ++i) submissions_.copy_slot(i, record_ + i * kSlotBytes);
  submissions_.skip(slots);
  return slots;
}

DrainOutcome ServerSession::drain(uint32_t max_records, DrainScratch& scratch,
                                  SubmissionVisitor& visitor) {
  DrainOutcome outcome;
  uint64_t prompt_tokens = 0;
  while (!broken_ && !ended_) {
    if (outcome.records == max_records || prompt_tokens >= kDrainPromptTokensMax) {
      outcome.more = submissions_.available() != 0;
      break;
    }
    if (take_record() == 0) break;
    prompt_tokens += handle_record(scratch, visitor);
    ++outcome.records;
  }
  if (outcome.records > 0) submissions_.publish();
  outcome.broken = broken_;
  return outcome;
}

uint32_t ServerSession::handle_record(DrainScratch& scratch, SubmissionVisitor& visitor) {
  RecordHeader header;
  std::memcpy(&header, record_, sizeof(header));
  if (header.type == kSubmit) {
    SubmitRecord fields;
    std::memcpy(&fields, record_, sizeof(fields));
    handle_submit(fields, scratch, visitor);
    return std::min(fields.prompt_count, geometry_.arena_bytes / 4);
  }
  if (header.type == kCancel) {
    CancelRecord fields;
    std::memcpy(&fields, record_, sizeof(fields));
    if (header.flags != 0 || header.reserved != 0 || !all_zero(fields.reserved)) {
      break_session("a cancellation with flags or fields that this daemon does not know");
      return 0;
    }
    visitor.on_cancel(header.cookie);
    return 0;
  }
  if (header.type == kRenice) {
    ReniceRecord fields;
    std::memcpy(&fields, record_, sizeof(fields));
    handle_renice(fields, visitor);
    return 0;
  }
  if (header.type == kPin || header.type == kUnpin) {
    PinRecord fields;
    std::memcpy(&fields, record_, sizeof(fields));
    handle_pin(fields, scratch, visitor);
    return std::min(fields.prompt_count, geometry_.arena_bytes / 4);
  }
  INFERD_CHECK(header.type == kDelivered);
  DeliveredRecord fields;
  std::memcpy(&fields, record_, sizeof(fields));
  if ((header.flags & ~kDeliveredKnownFlags) != 0 || header.reserved != 0 ||
      fields.reserved0 != 0 || !all_zero(fields.reserved)) {
    break_session("a delivery report with flags or fields that this daemon does not know");
    return 0;
  }
  visitor.on_delivered(header.cookie, fields.delivered_tokens,
                       (header.flags & kDeliveredTruncate) != 0);
  return 0;
}

void ServerSession::handle_renice(const ReniceRecord& f, SubmissionVisitor& visitor) {
  if (f.header.flags != 0 || f.header.reserved != 0 || f.reserved0 != 0 || !all_zero(f.reserved)) {
    break_session("a renice with flags or fields that this daemon does not know");
    return;
  }
  visitor.on_renice({f.header.cookie, f.tag, static_cast<Priority>(f.priority), f.nice},
                    check_urgency(f.priority, f.nice));
}

void ServerSession::handle_pin(const PinRecord& f, DrainScratch& scratch,
                               SubmissionVisitor& visitor) {
  if (f.header.flags != 0 || f.header.reserved != 0 || !all_zero(f.reserved)) {
    break_session("a pin with flags or fields that this daemon does not know");
    return;
  }
  scratch.prompt.clear();
  Result<void> checked = check_pin(f);
  if (checked.ok()) checked = copy_prompt(f.prompt_offset, f.prompt_count, scratch);
  visitor.on_pin({f.header.cookie, scratch.prompt}, checked);
}

Result<void> ServerSession::copy_prompt(uint32_t offset, uint32_t count,
                                        DrainScratch& scratch) const {
  const uint64_t arena_bytes = geometry_.arena_bytes;
  if (!within_arena(offset, count, sizeof(TokenId), arena_bytes)) {
    return refused("the prompt lies outside the arena of " + std::to_string(arena_bytes) +
                   " bytes");
  }
  scratch.prompt.resize(count);
  copy_words(client_region_.data() + geometry_.arena_offset() + offset, scratch.prompt.data(),
             count);
  return {};
}

void ServerSession::handle_submit(const SubmitRecord& fields, DrainScratch& scratch,
                                  SubmissionVisitor& visitor) {
  auto checked = check_submission(fields, features_);
  if (checked.ok()) checked = copy_arena(fields, scratch);
  if (!checked.ok()) {
    visitor.on_refused(fields.header.cookie, checked.error());
    return;
  }
  visitor.on_submit(Submission{fields.header.cookie, fields, scratch.prompt, scratch.stop_tokens,
                               scratch.logit_bias});
}

Result<void> ServerSession::copy_arena(const SubmitRecord& f, DrainScratch& scratch) const {
  const uint64_t arena_bytes = geometry_.arena_bytes;
  if (!within_arena(f.prompt_offset, f.prompt_count, sizeof(TokenId), arena_bytes) ||
      !within_arena(f.stop_offset, f.stop_count, sizeof(TokenId), arena_bytes) ||
      !within_arena(f.bias_offset, f.bias_count, sizeof(LogitBiasEntry), arena_bytes)) {
    return refused("the submission points outside its arena of " + std::to_string(arena_bytes) +
                   " bytes");
  }
  std::byte* arena = client_region_.data() + geometry_.arena_offset();
  scratch.prompt.resize(f.prompt_count);
  scratch.stop_tokens.resize(f.stop_count);
  scratch.logit_bias.resize(f.bias_count);
  copy_words(arena + f.prompt_offset, scratch.prompt.data(), f.prompt_count);
  copy_words(arena + f.stop_offset, scratch.stop_tokens.data(), f.stop_count);
  copy_words(arena + f.bias_offset, scratch.logit_bias.data(), size_t{f.bias_count} * 2);
  for (const LogitBiasEntry& entry : scratch.logit_bias) {
    if (std::isnan(entry.bias) || (std::isinf(entry.bias) && entry.bias > 0)) {
      return refused("a logit bias must be a number below infinity");
    }
  }
  return {};
}

bool ServerSession::prepare_sleep() {
  if (broken_ || ended_) return true;
  if (submissions_.available() == 0) {
    sleeper_.arm();
    if (submissions_.available() == 0) return true;
    sleeper_.disarm();
  }
  return false;
}

void ServerSession::wake() {
  if (sleeper_.armed()) sleeper_.disarm();
}

// ---- completions ----

bool ServerSession::reserve(uint32_t slots, bool last_word) {
  if (ended_) return false;
  const uint64_t wanted = slots + (last_word ? 0 : kLastWordSlots);
  const uint64_t free = completions_.free_slots(wanted);
  if (free == kRingBroken) {
    break_session("its completion index is impossible");
    return false;
  }
  return free >= wanted;
}

bool ServerSession::has_room(uint32_t slots) { return reserve(slots, false); }

bool ServerSession::publish_accepted(uint64_t cookie, SequenceId sequence, uint32_t prompt_tokens,
                                     uint32_t completion_tokens_max) {
  if (!reserve(1, false)) return false;
  const AcceptedRecord record = {
      {kAccepted, 1, 0, 0, cookie}, sequence.value, prompt_tokens, completion_tokens_max, {}};
  completions_.begin(1);
  completions_.append(&record, sizeof(record));
  completions_.finish();
  return true;
}

bool ServerSession::publish_tokens(uint64_t cookie, const TokensEvent& tokens) {
  const auto count = static_cast<uint32_t>(tokens.ids.size());
  const bool logprobs = !tokens.logprobs.empty();
  INFERD_CHECK(count >= 1 && count <= kTokensPerRecordMax && tokens.top_count <= kTopLogprobsMax);
  INFERD_CHECK(!logprobs || tokens.logprobs.size() == count);
  INFERD_CHECK(tokens.top.size() == (logprobs ? size_t{count} * tokens.top_count : 0));
  const uint32_t slots = slots_for_tokens(count, logprobs, tokens.top_count);
  if (!reserve(slots, false)) return false;
  const TokensRecord record = {
      {kTokens, static_cast<uint8_t>(slots), 0, logprobs ? kTokensLogprobs : 0, cookie},
      tokens.first_index,
      static_cast<uint16_t>(count),
      static_cast<uint8_t>(logprobs ? tokens.top_count : 0),
      0,
      tokens.cached_tokens,
      0};
  completions_.begin(slots);
  completions_.append(&record, sizeof(record));
  completions_.append(tokens.ids.data(), tokens.ids.size_bytes());
  if (logprobs) {
    completions_.append(tokens.logprobs.data(), tokens.logprobs.size_bytes());
    completions_.append(tokens.top.data(), tokens.top.size_bytes());
  }
  completions_.finish();
  return true;
}

bool ServerSession::publish_finished(uint64_t cookie, const FinishedEvent& finished) {
  if (!reserve(1, false)) return false;
  const bool usage = (features_ & kFeatureUsage) != 0;
  const FinishedRecord record = {{kFinished, 1, 0, 0, cookie},
                                 static_cast<uint32_t>(finished.reason),
                                 finished.prompt_tokens,
                                 finished.cached_tokens,
                                 finished.completion_tokens,
                                 finished.queue_ns,
                                 finished.prefill_ns,
                                 finished.decode_ns,
                                 usage ? finished.computed_tokens : 0,
                                 usage ? finished.preemptions : 0};
  completions_.begin(1);
  completions_.append(&record, sizeof(record));
  completions_.finish();
  return true;
}

bool ServerSession::publish_sentence(uint16_t type, uint64_t cookie, ErrorCode code,
                                     std::string_view sentence, uint32_t bytes_max) {
  const std::string_view cut = cut_sentence(sentence, bytes_max);
  const uint32_t slots = slots_for_bytes(static_cast<uint32_t>(sizeof(ErrorRecord) + cut.size()));
  if (!reserve(slots, type == kSessionEnd)) return false;
  const ErrorRecord record = {{type, static_cast<uint8_t>(slots), 0, 0, cookie},
                              static_cast<uint32_t>(code),
                              static_cast<uint32_t>(cut.size())};
  completions_.begin(slots);
  completions_.append(&record, sizeof(record));
  completions_.append(cut.data(), cut.size());
  completions_.finish();
  return true;
}

bool ServerSession::publish_reniced(const Renice& renice, const Result<void>& outcome) {
  const std::string_view sentence =
      outcome.ok() ? std::string_view()
                   : cut_sentence(outcome.error().message(), kReniceSentenceBytesMax);
  const uint32_t slots =
      slots_for_bytes(static_cast<uint32_t>(sizeof(RenicedRecord) + sentence.size()));
  if (!reserve(slots, false)) return false;
  const RenicedRecord record = {{kReniced, static_cast<uint8_t>(slots), 0, 0, renice.cookie},
                                renice.tag,
                                static_cast<uint8_t>(renice.priority),
                                static_cast<int8_t>(renice.nice),
                                0,
                                outcome.ok() ? 0 : static_cast<uint32_t>(outcome.error().code()),
                                static_cast<uint32_t>(sentence.size())};
  completions_.begin(slots);
  completions_.append(&record, sizeof(record));
  completions_.append(sentence.data(), sentence.size());
  completions_.finish();
  return true;
}

bool ServerSession::publish_pinned(uint64_t cookie, const Result<uint32_t>& tokens) {
  const std::string_view sentence =
      tokens.ok() ? std::string_view()
                  : cut_sentence(tokens.error().message(), kPinSentenceBytesMax);
  const uint32_t slots =
      slots_for_bytes(static_cast<uint32_t>(sizeof(PinnedRecord) + sentence.size()));
  if (!reserve(slots, false)) return false;
  const PinnedRecord record = {{kPinned, static_cast<uint8_t>(slots), 0, 0, cookie},
                               tokens.ok() ? *tokens : 0,
                               tokens.ok() ? 0 : static_cast<uint32_t>(tokens.error().code()),
                               static_cast<uint32_t>(sentence.size()),
                               0};
  completions_.begin(slots);
  completions_.append(&record, sizeof(record));
  completions_.append(sentence.data(), sentence.size());
  completions_.finish();
  return true;
}

bool ServerSession::publish_error(uint64_t cookie, ErrorCode code, std::string_view sentence) {
  return publish_sentence(kError, cookie, code, sentence, kSentenceBytesMax);
}

bool ServerSession::publish_last_word(ErrorCode code, std::string_view sentence) {
  const bool published = publish_sentence(kSessionEnd, 0, code, sentence, kLastWordBytesMax);
  ended_ = true;
  return published;
}

void ServerSession::show() {
  shown_ = completions_.tail() != flushed_tail_;
  if (!shown_) return;
  flushed_tail_ = completions_.tail();
  completions_.show();
}

void ServerSession::look_for_sleeper() { bell_due_ = shown_ && waker_.should_ring(); }

bool ServerSession::flush(DoorbellBatch& bells) {
  ServerSession* const sessions[] = {this};
  return flush_all(sessions, bells) != 0;
}

// Each loop touches cache lines that the clients' processors have. Apart from each other the
// processor asks for those of all sessions at once; a system call in between would make it wait.
uint32_t ServerSession::flush_all(std::span<ServerSession* const> sessions, DoorbellBatch& bells) {
  for (ServerSession* session : sessions) session->show();
  RingProducer::order_shown();
  for (ServerSession* session : sessions) session->look_for_sleeper();
  uint32_t rung = 0;
  for (ServerSession* session : sessions) {
    if (!session->bell_due_) continue;
    bells.add(session->completion_bell_.get());
    ++rung;
  }
  bells.ring();
  return rung;
}

}  // namespace inferd::ipc
