// Connection: reading completion records and writing submission records. All with the lock held.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "client_lib/connection.h"
#include "ipc/doorbell.h"

namespace inferd::client_lib {
namespace {

void ring_eventfd(int fd) {
  const uint64_t one = 1;
  static_cast<void>(!write(fd, &one, sizeof(one)));
}

constexpr const char* kGone =
    "the daemon closed the connection (it was stopped or restarted, or ended this session); "
    "connect again, and resume what was not finished";

template <typename T>
T read_as(const std::vector<std::byte>& record) {
  T value;
  std::memcpy(&value, record.data(), sizeof(T));
  return value;
}

inferd_finish finish_of(uint32_t reason) {
  switch (static_cast<ipc::FinishReason>(reason)) {
    case ipc::FinishReason::kStop:
      return INFERD_FINISH_STOP;
    case ipc::FinishReason::kLength:
      return INFERD_FINISH_LENGTH;
    case ipc::FinishReason::kContext:
      return INFERD_FINISH_CONTEXT;
    case ipc::FinishReason::kCancelled:
      return INFERD_FINISH_CANCELLED;
  }
  return INFERD_FINISH_NONE;
}

// The flags of a completion record that this library understands.
uint32_t known_flags(uint16_t type) { return type == ipc::kTokens ? ipc::kTokensKnownFlags : 0; }

// The error of a record that ends with its sentence.
template <typename T>
Error read_sentence_of(const std::vector<std::byte>& bytes, const T& record) {
  const size_t slot_bytes = size_t{record.header.slots} * ipc::kSlotBytes;
  const size_t room = slot_bytes - std::min(slot_bytes, sizeof(record));
  const std::string sentence(reinterpret_cast<const char*>(bytes.data()) + sizeof(record),
                             std::min<size_t>(record.sentence_bytes, room));
  const bool known = record.code >= 1 && record.code <= uint32_t(ErrorCode::kVersionMismatch);
  return Error(known ? static_cast<ErrorCode>(record.code) : ErrorCode::kProtocol, sentence);
}

}  // namespace

// Reads everything that is in the ring and hands it to the sequences.
void Connection::pump(Reader reader) {
  bool any = false;
  while (!dead_ && take_record()) {
    handle_record(reader);
    any = true;
  }
  if (any) completions_.publish();
  if (!unsent_.empty()) send_unsent();
}

// Copies the next record into record_. False if there is none, or if the ring is broken.
bool Connection::take_record() {
  const uint64_t available = completions_.available();
  if (available == 0) return false;
  ipc::RecordHeader header = {};
  if (available != ipc::kRingBroken) {
    completions_.copy_slot(0, record_.data());
    header = read_as<ipc::RecordHeader>(record_);
  }
  const uint64_t known =
      available == ipc::kRingBroken ? available : completions_.available(header.slots);
  if (known == ipc::kRingBroken || header.slots == 0 || known < header.slots) {
    die(Error(ErrorCode::kProtocol, "the daemon broke the ring protocol (a record in part)"), {});
    return false;
  }
  for (size_t i = 1; i < header.slots; ++i) {
    completions_.copy_slot(i, record_.data() + i * ipc::kSlotBytes);
  }
  completions_.skip(header.slots);
  return true;
}

void Connection::handle_record(Reader reader) {
  const auto header = read_as<ipc::RecordHeader>(record_);
  if (header.type < ipc::kAccepted || header.type > ipc::kPinned || header.reserved != 0 ||
      (header.flags & ~known_flags(header.type)) != 0) {
    die(Error(ErrorCode::kProtocol,
              "the daemon sent a record that this library does not know; install the same release "
              "of both"),
        reader);
    return;
  }
  if (header.type == ipc::kSessionEnd) {
    die(read_sentence(), reader);
    return;
  }
  if (header.type == ipc::kReniced) {
    handle_reniced();
    return;
  }
  // Whatever answers a submission frees its part of the arena.
  release_block(header.cookie);
  if (header.type == ipc::kPinned) {
    handle_pinned();
    return;
  }
  const auto found = sequences_.find(header.cookie);
  if (found == sequences_.end() || !found->second->routed_ || found->second->ended_) return;
  Sequence& sequence = *found->second;
  switch (header.type) {
    case ipc::kTokens:
      handle_tokens(sequence);
      break;
    case ipc::kFinished:
      handle_finished(sequence);
      break;
    case ipc::kError:
      end_sequence(sequence, INFERD_FINISH_ERROR, read_sentence());
      break;
    default:  // kAccepted
      return;
  }
  notify(sequence, reader);
}

void Connection::handle_tokens(Sequence& sequence) {
  const auto record = read_as<ipc::TokensRecord>(record_);
  const bool logprobs = (record.header.flags & ipc::kTokensLogprobs) != 0;
  Progress& progress = sequence.progress_;
  if (record.count == 0 || record.count > ipc::kTokensPerRecordMax ||
      record.header.slots != ipc::slots_for_tokens(record.count, logprobs, record.top_count) ||
      logprobs != sequence.logprobs_ || record.top_count != sequence.top_count_ ||
      record.first_index > progress.arrived_tokens) {
    end_sequence(sequence, INFERD_FINISH_ERROR,
                 Error(ErrorCode::kProtocol, "the daemon's tokens do not fit what was asked for"));
    return;
  }
  const std::byte* ids = record_.data() + sizeof(record);
  const std::byte* chosen = ids + record.count * size_t{4};
  const std::byte* top = chosen + record.count * size_t{4};
  // Tokens that came before (a daemon that was restarted repeats some) are passed over.
  for (uint32_t i = progress.arrived_tokens - record.first_index; i < record.count; ++i) {
    inferd_logprob entry = {};
    std::memcpy(&entry.token, ids + i * size_t{4}, 4);
    sequence.pending_.ids.push_back(entry.token);
    ++progress.arrived_tokens;
    if (!logprobs) continue;
    std::memcpy(&entry.logprob, chosen + i * size_t{4}, 4);
    sequence.pending_.logprobs.push_back(entry);
    for (size_t k = 0; k < record.top_count; ++k) {
      static_assert(sizeof(inferd_logprob) == sizeof(ipc::LogprobEntry));
      std::memcpy(&entry, top + (i * size_t{record.top_count} + k) * sizeof(entry), sizeof(entry));
      sequence.pending_.top.push_back(entry);
    }
  }
  progress.cached_tokens = record.cached_tokens;
  progress.last_ns = now_ns();
  if (progress.first_ns == 0) progress.first_ns = progress.last_ns;
}

void Connection::handle_finished(Sequence& sequence) {
  const auto record = read_as<ipc::FinishedRecord>(record_);
  const inferd_finish reason = finish_of(record.reason);
  if (reason == INFERD_FINISH_NONE) {
    end_sequence(
        sequence, INFERD_FINISH_ERROR,
        Error(ErrorCode::kProtocol, "the daemon gave a finish reason that does not exist"));
    return;
  }
  sequence.progress_.prompt_tokens = record.prompt_tokens;
  sequence.progress_.cached_tokens = record.cached_tokens;
  sequence.progress_.queue_ns = record.queue_ns;
  sequence.progress_.computed_tokens = record.computed_tokens;
  sequence.progress_.preemptions = record.preemptions;
  end_sequence(sequence, reason, std::nullopt);
}

// The answer to a renice; whoever asked may have given up waiting.
void Connection::handle_reniced() {
  const auto record = read_as<ipc::RenicedRecord>(record_);
  const auto found = renices_.find(record.tag);
  if (found == renices_.end()) return;
  found->second =
      record.code == 0 ? Result<void>() : Result<void>(read_sentence_of(record_, record));
  const auto sequence = sequences_.find(record.header.cookie);
  if (record.code != 0 || sequence == sequences_.end()) return;
  sequence->second->request_.fields.priority = record.priority;
  sequence->second->request_.fields.nice = record.nice;
}

// The answer to a pin; whoever asked may have given up waiting.
void Connection::handle_pinned() {
  const auto record = read_as<ipc::PinnedRecord>(record_);
  const auto found = pins_.find(record.header.cookie);
  if (found == pins_.end()) return;
  found->second = record.code == 0 ? Result<uint32_t>(record.tokens)
                                   : Result<uint32_t>(read_sentence_of(record_, record));
}

Error Connection::read_sentence() const {
  return read_sentence_of(record_, read_as<ipc::ErrorRecord>(record_));
}

void Connection::end_sequence(Sequence& sequence, inferd_finish reason,
                              std::optional<Error> error) {
  sequence.ended_ = true;
  sequence.reason_ = reason;
  sequence.error_ = std::move(error);
}

void Connection::nudge_leader() { ring_eventfd(nudge_fd_.get()); }

// Point 3 of the argument in connection.h.
void Connection::notify(Sequence& sequence, Reader reader) {
  if (&sequence == reader.sequence) return;
  if (&sequence == leader_) {
    nudge_leader();
  } else if (sequence.waiting_) {
    sequence.arrived_.notify_one();
  } else if (event_loop_ && (!reader.polling || sequence.polled_round_ == poll_round_)) {
    ring_eventfd(event_fd_.get());
  }
}

// The session is over: every sequence that still ran ends with `error`, and so does every later
// call.
void Connection::die(Error error, Reader reader) {
  if (dead_) return;
  dead_ = std::move(error);
  for (auto& [cookie, sequence] : sequences_) {
    if (sequence->ended_ || !sequence->routed_) continue;
    sequence->lost_ = true;
    end_sequence(*sequence, INFERD_FINISH_ERROR, *dead_);
    notify(*sequence, reader);
  }
  if (leader_ != nullptr) nudge_leader();
  if (event_loop_ && !reader.polling) ring_eventfd(event_fd_.get());
  // End of file stays readable for ever: out of the event loop with it.
  epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, socket_.get(), nullptr);
  epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, completion_bell_.get(), nullptr);
}

// Notices that the daemon is gone. What it had published before is read first.
void Connection::check_peer(Reader reader) {
  if (dead_) return;
  char byte;
  const ssize_t count = recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  pump(reader);
  if (count > 0) {
    die(Error(ErrorCode::kProtocol, "the daemon sent a message that this library does not know"),
        reader);
  } else {
    die(Error(ErrorCode::kUnavailable, kGone), reader);
  }
}

void Connection::release_block(uint64_t cookie) {
  const auto found = blocks_.find(cookie);
  if (found == blocks_.end()) return;
  arena_.release(found->second);
  blocks_.erase(found);
}

// Writes a record for which there is room, and wakes the daemon if it sleeps.
void Connection::post(const void* record, uint32_t bytes) {
  submissions_.begin(ipc::slots_for_bytes(bytes));
  submissions_.append(record, bytes);
  submissions_.finish();
  submissions_.publish();
  if (waker_.should_ring()) ipc::ring_doorbell(submission_bell_.get());
}

// A cancellation must not be lost to a full ring: it waits for the next time this thread or another
// comes by. (CancelRecord and DeliveredRecord have the same form.)
void Connection::send_or_keep(const ipc::DeliveredRecord& record) {
  static_assert(sizeof(ipc::CancelRecord) == sizeof(ipc::DeliveredRecord));
  unsent_.push_back(record);
  send_unsent();
}

void Connection::send_unsent() {
  size_t sent = 0;
  while (sent < unsent_.size() && !dead_) {
    const uint64_t free = submissions_.free_slots(1);
    if (free == 0 || free == ipc::kRingBroken) break;
    post(&unsent_[sent], sizeof(unsent_[sent]));
    ++sent;
  }
  unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(sent));
}

// Point 4: with nobody leading, the doorbell is the event loop's.
void Connection::arm_for_event_loop(Reader reader) {
  if (!event_loop_ || leader_ != nullptr || dead_) return;
  for (;;) {
    sleeper_.arm();
    if (completions_.available() == 0) return;
    pump(reader);
    if (dead_) return;
  }
}

}  // namespace inferd::client_lib
