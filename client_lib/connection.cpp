#include "client_lib/connection.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "client_lib/discovery.h"
#include "ipc/doorbell.h"
#include "ipc/socket.h"

namespace inferd::client_lib {
namespace {

constexpr auto kSubmitPatience = std::chrono::seconds(1);
constexpr auto kAnswerPatience = std::chrono::seconds(10);
constexpr auto kNapUntilBack = std::chrono::milliseconds(20);
constexpr uint64_t kFeaturesNeeded = ipc::kFeatureTextTables | ipc::kFeatureDelivered;

// Waits for the daemon's answer to the hello.
Result<ipc::Message> await_answer(int socket, std::span<std::byte> buffer, Deadline deadline) {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd poller = {socket, POLLIN, 0};
    const int ready = poll(&poller, 1, static_cast<int>(std::max<int64_t>(0, left.count())));
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return errno_error("cannot wait for the daemon", errno);
    if (ready == 0) {
      return Error(ErrorCode::kTimedOut,
                   "the daemon took the connection but did not answer in time; it may be loading a "
                   "model: try again, or give a longer timeout");
    }
    INFERD_ASSIGN(auto message,
                  ipc::receive_message(socket, buffer, ipc::kWelcomeDescriptors, false));
    if (message.status == ipc::SocketStatus::kWouldBlock) continue;
    if (message.status == ipc::SocketStatus::kClosed) {
      return Error(ErrorCode::kUnavailable,
                   "the daemon closed the connection without an answer; see its log");
    }
    return message;
  }
}

}  // namespace

int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

Result<std::unique_ptr<Connection>> Connection::open(const ConnectOptions& options) {
  const Deadline deadline =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(options.timeout_ms);
  const Candidates candidates =
      find_candidates(options.socket_path ? options.socket_path->c_str() : nullptr);
  INFERD_ASSIGN(auto socket, connect_to_any(candidates, options.timeout_ms));

  ipc::Hello hello;
  hello.features_required = kFeaturesNeeded;
  hello.model_name = options.model;
  hello.client_name = options.client_name;
  if (options.cache_domain.size() > ipc::kNameBytesMax) {
    return Error(ErrorCode::kNotFound, "no cache domain has a name of more than " +
                                           std::to_string(ipc::kNameBytesMax) + " bytes");
  }
  hello.cache_domain = options.cache_domain;
  if (!hello.cache_domain.empty()) hello.features_required |= ipc::kFeatureCacheDomain;
  INFERD_ASSIGN(const auto sent, ipc::send_message(socket.get(), ipc::encode_hello(hello)));
  std::vector<std::byte> buffer(ipc::kAnswerBytesMax);
  // A daemon that refuses before it reads still has its sentence waiting for us.
  static_cast<void>(sent);
  INFERD_ASSIGN(auto message, await_answer(socket.get(), buffer, deadline));
  INFERD_ASSIGN(auto welcome, ipc::decode_answer(std::span(buffer).first(message.bytes)));
  if ((hello.features_required & ~welcome.features) != 0) {
    return Error(ErrorCode::kUnsupported,
                 "the daemon lacks features that this client needs; update the daemon");
  }

  std::unique_ptr<Connection> connection(new Connection);
  connection->socket_ = std::move(socket);
  connection->options_ = options;
  INFERD_TRY(connection->fork_guard_.set());
  INFERD_TRY(connection->adopt(std::move(welcome), std::move(message.fds)));
  return connection;
}

Result<std::unique_ptr<Connection>> Connection::open_again(int timeout_ms) const {
  const Deadline deadline =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  for (;;) {
    auto opened = open(options_);
    if (opened.ok()) return opened;
    const ErrorCode code = opened.error().code();
    const bool may_come_back = code == ErrorCode::kUnavailable || code == ErrorCode::kTimedOut;
    if (!may_come_back || std::chrono::steady_clock::now() >= deadline) return opened;
    std::this_thread::sleep_for(kNapUntilBack);
  }
}

Result<void> Connection::adopt(ipc::Welcome welcome, std::vector<UniqueFd> fds) {
  if (fds.size() != ipc::kWelcomeDescriptors) {
    return Error(ErrorCode::kProtocol, "the daemon's welcome came without its descriptors");
  }
  welcome_ = std::move(welcome);
  const ipc::Geometry& g = welcome_.geometry;
  using ipc::Access;
  using ipc::SharedRegion;
  INFERD_ASSIGN(client_region_, SharedRegion::map(std::move(fds[ipc::kFdClientRegion]),
                                                  g.client_region_bytes(), Access::kReadWrite));
  INFERD_ASSIGN(token_region_, SharedRegion::map(std::move(fds[ipc::kFdTokenRegion]),
                                                 g.token_region_bytes(), Access::kReadOnly));
  client_region_.close_fd();
  token_region_.close_fd();
  INFERD_ASSIGN(text_,
                ModelText::open(std::move(fds[ipc::kFdTextTables]), welcome_.text_tables_bytes));
  submission_bell_ = std::move(fds[ipc::kFdSubmissionBell]);
  completion_bell_ = std::move(fds[ipc::kFdCompletionBell]);

  auto* client = reinterpret_cast<ipc::ClientControl*>(client_region_.data());
  const auto* tokens = reinterpret_cast<const ipc::TokenControl*>(token_region_.data());
  submissions_ =
      ipc::RingProducer(reinterpret_cast<ipc::Slot*>(client_region_.data() + ipc::kControlBytes),
                        g.submission_slots, &client->submission_tail, &tokens->submission_head);
  completions_ = ipc::RingConsumer(
      reinterpret_cast<const ipc::Slot*>(token_region_.data() + ipc::kControlBytes),
      g.completion_slots, &client->completion_head, &tokens->completion_tail);
  completion_tail_ = &tokens->completion_tail;
  sleeper_ = ipc::Sleeper(&client->completion_wake);
  waker_ = ipc::Waker(&tokens->submission_wake);
  arena_ = ArenaAllocator(g.arena_bytes);
  record_.resize(size_t{UINT8_MAX} * ipc::kSlotBytes);
  return set_up_event_fd();
}

Result<void> Connection::set_up_event_fd() {
  nudge_fd_ = UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  event_fd_ = UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  epoll_fd_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!nudge_fd_ || !event_fd_ || !epoll_fd_) {
    return errno_error("cannot set up the connection's descriptors", errno);
  }
  for (const int fd : {socket_.get(), completion_bell_.get(), event_fd_.get()}) {
    epoll_event event = {};
    event.events = EPOLLIN | EPOLLRDHUP;
    if (epoll_ctl(epoll_fd_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return errno_error("cannot set up the connection's descriptors", errno);
    }
  }
  return {};
}

Connection::~Connection() {
  // Copies of the socket in forked children must not keep the session alive, nor end it.
  if (socket_ && fork_guard_.in_own_process()) shutdown(socket_.get(), SHUT_RDWR);
}

Result<ArenaBlock> Connection::place(Lock& lock, size_t prompt_ids, uint64_t other_bytes,
                                     Deadline deadline) {
  const uint64_t bytes = prompt_ids * sizeof(TokenId) + other_bytes;
  const uint32_t arena_bytes = welcome_.geometry.arena_bytes;
  if (bytes > arena_bytes) {
    return Error(ErrorCode::kResourceExhausted,
                 "the prompt has " + std::to_string(prompt_ids) +
                     " tokens; this daemon takes at most " +
                     std::to_string((arena_bytes - other_bytes) / sizeof(TokenId)));
  }
  return acquire_block(lock, bytes, deadline);
}

Result<Sequence*> Connection::submit(const Draft& draft) {
  const uint64_t prompt_bytes = draft.prompt.size_bytes();
  ipc::SubmitRecord record = draft.fields;
  record.header = {ipc::kSubmit, ipc::slots_for_bytes(sizeof(record)), 0, draft.flags, 1};
  record.prompt_count = static_cast<uint32_t>(draft.prompt.size());
  record.bias_count = static_cast<uint32_t>(draft.bias.size());
  // To a daemon that does not share with a parent, a fork is a prompt like any other.
  if ((welcome_.features & ipc::kFeatureFork) == 0) record.parent_cookie = 0;
  INFERD_TRY(ipc::check_submission(record, welcome_.features));
  const Deadline deadline = std::chrono::steady_clock::now() + kSubmitPatience;
  Lock lock(mutex_);
  INFERD_ASSIGN(const ArenaBlock block,
                place(lock, draft.prompt.size(), draft.bias.size_bytes(), deadline));
  record.prompt_offset = block.offset;
  record.bias_offset = static_cast<uint32_t>(block.offset + prompt_bytes);
  const uint64_t cookie = ++last_cookie_;
  record.header.cookie = cookie;
  lock.unlock();
  auto sequence = make_sequence(draft, cookie);
  std::byte* arena = client_region_.data() + welcome_.geometry.arena_offset();
  std::memcpy(arena + record.prompt_offset, draft.prompt.data(), prompt_bytes);
  if (!draft.bias.empty()) {
    std::memcpy(arena + record.bias_offset, draft.bias.data(), draft.bias.size_bytes());
  }
  lock.lock();
  if (auto room = wait_for_slots(lock, record.header.slots, deadline); !room.ok()) {
    arena_.release(block);
    return room.error();
  }
  sequence->progress_.submitted_ns = now_ns();
  blocks_.emplace(cookie, block);
  post(&record, sizeof(record));
  return sequences_.emplace(cookie, std::move(sequence)).first->second.get();
}

std::unique_ptr<Sequence> Connection::make_sequence(const Draft& draft, uint64_t cookie) {
  DecodeOptions decode;
  decode.strip_space_prefix = !draft.continues_text;
  TextStream stream(text_->tables(), decode, draft.stop, draft.answered);
  Request request;
  request.fields = draft.fields;
  request.fields.prompt_count = static_cast<uint32_t>(draft.prompt.size());
  request.flags = draft.flags;
  request.bias.assign(draft.bias.begin(), draft.bias.end());
  request.stop = draft.stop;
  const auto prompt = draft.prompt.first(request.prompt_tokens());
  const auto scored = draft.prompt.subspan(prompt.size());
  request.scored.assign(scored.begin(), scored.end());
  Lineage lineage = {{prompt.begin(), prompt.end()}, draft.answered.size(), draft.continues_text};
  const bool logprobs = (draft.flags & ipc::kSubmitLogprobs) != 0;
  auto sequence =
      std::make_unique<Sequence>(*this, cookie, std::move(stream), logprobs,
                                 draft.fields.top_logprobs, std::move(request), std::move(lineage));
  sequence->progress_.prompt_tokens = static_cast<uint32_t>(prompt.size());
  return sequence;
}

Sequence* Connection::add_over(const Draft& draft, inferd_finish reason) {
  Lock lock(mutex_);
  const uint64_t cookie = ++last_cookie_;
  lock.unlock();
  auto sequence = make_sequence(draft, cookie);
  sequence->progress_.submitted_ns = now_ns();
  lock.lock();
  end_sequence(*sequence, reason, std::nullopt);
  return sequences_.emplace(cookie, std::move(sequence)).first->second.get();
}

Result<void> Connection::renice(Sequence& sequence, uint8_t priority, int32_t nice) {
  INFERD_TRY(ipc::check_urgency(priority, nice));
  if ((welcome_.features & ipc::kFeatureRenice) == 0) {
    return Error(
        ErrorCode::kUnsupported,
        "this daemon is older than the library and lets nobody renice by a connection; use "
        "'inferctl renice', or update the daemon");
  }
  const Deadline deadline = std::chrono::steady_clock::now() + kAnswerPatience;
  Lock lock(mutex_);
  pump({});
  if (!dead_ && (sequence.ended_ || !sequence.routed_)) {
    return Error(ErrorCode::kNotFound, "the sequence has ended: nothing is left to be reniced");
  }
  INFERD_TRY(wait_for_slots(lock, 1, deadline));
  ipc::ReniceRecord record = {};
  record.header = {ipc::kRenice, 1, 0, 0, sequence.cookie()};
  record.tag = ++last_tag_;
  record.priority = priority;
  record.nice = static_cast<int8_t>(nice);
  const auto& answer = renices_.emplace(record.tag, std::nullopt).first->second;
  post(&record, sizeof(record));
  const auto outcome =
      await_outcome(lock, answer, deadline,
                   "the daemon did not answer in time whether the sequence is reniced; it may "
                   "still do it: see 'inferctl ps'");
  renices_.erase(record.tag);
  return outcome;
}

Result<uint32_t> Connection::pin(std::span<const TokenId> prompt) {
  const Deadline deadline = std::chrono::steady_clock::now() + kAnswerPatience;
  Lock lock(mutex_);
  INFERD_TRY(check_pins());
  INFERD_ASSIGN(const ArenaBlock block, place(lock, prompt.size(), 0, deadline));
  ipc::PinRecord record = {};
  record.header = {ipc::kPin, 1, 0, 0, ++last_cookie_};
  record.prompt_offset = block.offset;
  record.prompt_count = static_cast<uint32_t>(prompt.size());
  lock.unlock();
  std::memcpy(client_region_.data() + welcome_.geometry.arena_offset() + block.offset,
              prompt.data(), prompt.size_bytes());
  lock.lock();
  blocks_.emplace(record.header.cookie, block);
  return ask_to_pin(lock, record, deadline);
}

Result<uint32_t> Connection::unpin() {
  const Deadline deadline = std::chrono::steady_clock::now() + kAnswerPatience;
  Lock lock(mutex_);
  INFERD_TRY(check_pins());
  ipc::PinRecord record = {};
  record.header = {ipc::kUnpin, 1, 0, 0, ++last_cookie_};
  return ask_to_pin(lock, record, deadline);
}

Result<void> Connection::check_pins() const {
  if ((welcome_.features & ipc::kFeaturePin) != 0) return {};
  return Error(ErrorCode::kUnsupported,
               "this daemon is older than the library and lets nobody pin by a connection; use "
               "'inferctl cache pin', or update the daemon");
}

// The record's block, if it has one, goes with the answer.
Result<uint32_t> Connection::ask_to_pin(Lock& lock, ipc::PinRecord record, Deadline deadline) {
  const uint64_t cookie = record.header.cookie;
  if (auto room = wait_for_slots(lock, 1, deadline); !room.ok()) {
    release_block(cookie);
    return room.error();
  }
  const auto& answer = pins_.emplace(cookie, std::nullopt).first->second;
  post(&record, sizeof(record));
  const auto outcome =
      await_outcome(lock, answer, deadline,
                   "the daemon did not answer in time whether the prompt is pinned; it may still "
                   "do it: 'inferctl cache unpin' ends all pins");
  pins_.erase(cookie);
  return outcome;
}

Result<LostRequest> Connection::lost_request(Sequence& sequence) {
  const Lock lock(mutex_);
  if (!dead_) {
    pump({});
    check_peer({});
  }
  if (!dead_) {
    return Error(ErrorCode::kInvalidArgument,
                 "nothing of this sequence is lost: its connection works; read on from it");
  }
  if (!sequence.lost_) {
    return Error(
        ErrorCode::kInvalidArgument,
        "the sequence had ended before its connection was lost: there is nothing to resume");
  }
  LostRequest lost;
  static_cast<Request&>(lost) = sequence.request_;
  lost.lineage = sequence.lineage();
  return lost;
}

void Connection::cancel(Sequence& sequence) {
  const Lock lock(mutex_);
  if (!sequence.routed_ || sequence.ended_ || dead_) return;
  send_or_keep({{ipc::kCancel, 1, 0, 0, sequence.cookie()}, 0, 0, {}});
}

void Connection::truncate(Sequence& sequence, uint32_t delivered) {
  const Lock lock(mutex_);
  const bool running = sequence.routed_ && !sequence.ended_;
  sequence.routed_ = false;
  if (!running || dead_) return;
  send_or_keep(
      {{ipc::kDelivered, 1, 0, ipc::kDeliveredTruncate, sequence.cookie()}, delivered, 0, {}});
}

void Connection::close(Sequence* sequence) {
  cancel(*sequence);
  const Lock lock(mutex_);
  sequences_.erase(sequence->cookie());
}

Progress Connection::progress(const Sequence& sequence) const {
  const Lock lock(mutex_);
  return sequence.progress_;
}

int Connection::fd() {
  const Lock lock(mutex_);
  if (!event_loop_) {
    event_loop_ = true;
    arm_for_event_loop({});
  }
  return epoll_fd_.get();
}

void Connection::clear() {
  const Lock lock(mutex_);
  ++poll_round_;
  // The daemon rings once per sleep: a bell that is taken from the leader must be passed on to it.
  if (ipc::clear_doorbell(completion_bell_.get()) && leader_ != nullptr) nudge_leader();
  uint64_t count;
  static_cast<void>(!read(event_fd_.get(), &count, sizeof(count)));
  check_peer({nullptr, true});
}

}  // namespace inferd::client_lib
