// Scheduler: what comes from outside between steps (submit, cancel, pause) and what is told (info,
// stats). The step itself is in plan.cpp and commit.cpp.
#include "scheduler/scheduler.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/check.h"

namespace inferd::scheduler {

Scheduler::Scheduler(const SchedulerConfig& config, memory::PagedMemory& memory, const Clock& clock)
    : config_(config),
      memory_(memory),
      clock_(clock),
      limit_(scheduler::sequence_limit(config, memory)),
      slots_(memory.sequences().sequences_max() + config.queue_max),
      waiting_(slots_.size()),
      running_(memory.sequences().sequences_max()) {
  INFERD_CHECK(check_config(config, memory).ok());
  INFERD_CHECK(memory.sequences().open_count() == 0);
  const uint32_t sequences_max = memory.sequences().sequences_max();
  slot_of_.reserve(slots_.size());
  by_age_.reserve(sequences_max);
  planned_.reserve(sequences_max);
  fetching_.reserve(sequences_max);
  events_.reserve(sequences_max);
  displaceable_.reserve(sequences_max);
  for (std::vector<uint32_t>& lanes : class_lanes_) lanes.reserve(sequences_max);
  prefix_.reserve(memory::pages_for_tokens(limit_.tokens).value);
  if (memory.prefixes().slots() > 0) stored_.reserve(prefix_.capacity());
}

Scheduler::~Scheduler() {
  in_flight_ = false;
  while (!running_.empty()) release(running_[0]);
  while (!waiting_.empty()) release(waiting_[0]);
}

Result<void> Scheduler::submit(const Request& request) {
  Result<void> refusal = check_submission(request);
  if (!refusal) {
    ++totals_.refused;
    return refusal;
  }
  const uint32_t index = slots_.acquire();
  RequestSlot& slot = slots_[index];
  const uint32_t prompt_tokens = static_cast<uint32_t>(request.prompt.size());
  slot.sequence = request.sequence;
  slot.session = request.session;
  slot.user = request.user;
  slot.domain = request.domain;
  slot.arrival = ++arrivals_;
  slot.score = request.score;
  slot.scored = request.score_first;
  slot.priority = request.priority;
  slot.rank = request.priority;
  slot.weight = request.weight;
  slot.nice = request.nice;
  slot.lane = open_lane(slot);
  slot.deadline_ns = request.deadline_ns;
  slot.parent = request.parent;
  slot.chunk_tokens_max = request.chunk_tokens_max;
  slot.limit_is_context = request.max_tokens == kUnlimitedTokens;
  slot.limit = token_limit(request);
  slot.stop_count = static_cast<uint32_t>(request.stop_tokens.size());
  std::copy(request.stop_tokens.begin(), request.stop_tokens.end(), slot.stop_tokens.begin());
  slot.tokens.reserve(slot.limit);
  slot.tokens.assign(request.prompt.begin(), request.prompt.end());
  slot.waiting_since_ns = clock_.now_ns();
  slot.stats.prompt_tokens = prompt_tokens;
  slot.stats.submitted_ns = slot.waiting_since_ns;
  slot_of_.emplace(request.sequence, index);
  open_rates(request);
  waiting_.insert(slots_, index);
  insert_waiting(index);
  if (slot.deadline_ns != 0) deadline_next_ns_ = std::min(deadline_next_ns_, slot.deadline_ns);
  ++totals_.submitted;
  totals_.prompt_tokens += prompt_tokens;
  return {};
}

// The account of its session and class, with room in its list for all that it has.
uint32_t Scheduler::open_lane(const RequestSlot& slot) {
  const uint32_t lane = fair_.open(slot.priority, slot.user, slot.session, slot.weight);
  if (work_.size() < fair_.lane_count()) work_.resize(fair_.lane_count());
  const size_t members = fair_.lane(lane).members;
  std::vector<uint32_t>& waiting = work_[lane].waiting;
  if (waiting.capacity() < members) waiting.reserve(std::max(members, 2 * waiting.capacity()));
  return lane;
}

bool Scheduler::renice(SequenceId sequence, PriorityClass priority, int32_t nice) {
  INFERD_CHECK(nice >= kNiceMin && nice <= kNiceMax);
  const auto found = slot_of_.find(sequence);
  if (found == slot_of_.end()) return false;
  RequestSlot& slot = slots_[found->second];
  const bool waits = !slot.table.is_open();
  if (waits) erase_waiting(found->second);
  fair_.close(slot.lane);
  slot.priority = priority;
  if (std::find(promoted_.begin(), promoted_.end(), found->second) == promoted_.end()) {
    slot.rank = priority;
  }
  slot.nice = nice;
  slot.lane = open_lane(slot);
  if (waits) insert_waiting(found->second);
  return true;
}

Result<void> Scheduler::check_submission(const Request& request) const {
  INFERD_CHECK(request.sequence.value != 0);
  INFERD_TRY(check_request(request, limit_));
  if (slot_of_.contains(request.sequence)) {
    return Error(ErrorCode::kInvalidArgument, "sequence " + std::to_string(request.sequence.value) +
                                                  " exists already: choose another id");
  }
  if (config_.session_requests_max != 0) {
    const uint32_t present = session_requests(request.session);
    if (present >= config_.session_requests_max) {
      return Error(ErrorCode::kUnavailable,
                   "this session has " + format_count(present) + " requests, and at most " +
                       format_count(config_.session_requests_max) +
                       " are accepted from one session: wait until one has ended");
    }
  }
  INFERD_TRY(check_quotas(request));
  // Preempted sequences wait too, but do not count against those who submit.
  if (waiting_.size() >= config_.queue_max || slots_.full()) {
    return Error(ErrorCode::kUnavailable, "the queue is full: " + format_count(waiting_.size()) +
                                              " requests wait, and [scheduler] queue allows " +
                                              format_count(config_.queue_max) +
                                              ": try again later");
  }
  return {};
}

uint32_t Scheduler::session_requests(SessionId session) const {
  uint32_t count = 0;
  for (uint32_t index : waiting_.slots()) count += slots_[index].session == session ? 1 : 0;
  for (uint32_t index : running_.slots()) count += slots_[index].session == session ? 1 : 0;
  return count;
}

RequestSlot* Scheduler::find(SequenceId sequence) {
  const auto found = slot_of_.find(sequence);
  return found == slot_of_.end() ? nullptr : &slots_[found->second];
}

const RequestSlot* Scheduler::find(SequenceId sequence) const {
  const auto found = slot_of_.find(sequence);
  return found == slot_of_.end() ? nullptr : &slots_[found->second];
}

bool Scheduler::cancel(SequenceId sequence) {
  const auto found = slot_of_.find(sequence);
  if (found == slot_of_.end()) return false;
  const uint32_t index = found->second;
  ++totals_.cancelled;
  if (in_flight_ && slots_[index].planned > 0) {
    // The engine may be writing its pages: nobody may get them before commit().
    slots_[index].cancelled = true;
    slot_of_.erase(found);
    return true;
  }
  release(index);
  return true;
}

uint32_t Scheduler::cancel_session(SessionId session) {
  uint32_t count = 0;
  // From the end: a cancelled sequence leaves its list, or stays in it until commit().
  for (uint32_t place = waiting_.size(); place-- > 0;) {
    const RequestSlot& slot = slots_[waiting_[place]];
    if (slot.session == session && cancel(slot.sequence)) ++count;
  }
  for (uint32_t place = running_.size(); place-- > 0;) {
    const RequestSlot& slot = slots_[running_[place]];
    if (slot.session == session && cancel(slot.sequence)) ++count;
  }
  return count;
}

bool Scheduler::pause(SequenceId sequence) {
  RequestSlot* slot = find(sequence);
  if (slot == nullptr) return false;
  slot->paused = true;
  return true;
}

bool Scheduler::resume(SequenceId sequence) {
  RequestSlot* slot = find(sequence);
  if (slot == nullptr) return false;
  slot->paused = false;
  return true;
}

std::optional<SequenceId> Scheduler::overdue() {
  const int64_t now_ns = clock_.now_ns();
  if (now_ns < deadline_next_ns_) return std::nullopt;
  deadline_next_ns_ = std::numeric_limits<int64_t>::max();
  for (uint32_t index : waiting_.slots()) {
    const RequestSlot& slot = slots_[index];
    if (slot.deadline_ns == 0) continue;
    deadline_next_ns_ = std::min(deadline_next_ns_, slot.deadline_ns);
    if (slot.deadline_ns <= now_ns) return slot.sequence;
  }
  return std::nullopt;
}

void Scheduler::release(uint32_t index) {
  RequestSlot& slot = slots_[index];
  const UserId user = slot.user;
  INFERD_CHECK(slot.sequence.value != 0);
  if (slot.table.is_open()) {
    memory_.sequences().close(slot.table);
    running_.erase(index);
  } else {
    waiting_.erase(index);
    erase_waiting(index);
  }
  fair_.close(slot.lane);
  std::replace(promoted_.begin(), promoted_.end(), index, kNoSlot);
  if (!slot.cancelled) slot_of_.erase(slot.sequence);
  slots_.release(index);
  if (!in_flight_) keep_within_pages(user);
}

std::span<const TokenId> Scheduler::tokens(SequenceId sequence) const {
  const RequestSlot* slot = find(sequence);
  return slot == nullptr ? std::span<const TokenId>{} : std::span<const TokenId>(slot->tokens);
}

std::optional<SequenceInfo> Scheduler::info(SequenceId sequence) const {
  const RequestSlot* slot = find(sequence);
  if (slot == nullptr) return std::nullopt;
  return info_of(*slot);
}

SequenceInfo Scheduler::info_of(const RequestSlot& slot) const {
  SequenceInfo info;
  info.sequence = slot.sequence;
  info.session = slot.session;
  info.user = slot.user;
  info.state = slot.state;
  info.paused = slot.paused;
  info.priority = slot.priority;
  info.nice = slot.nice;
  info.parent = slot.parent;
  info.tokens = static_cast<uint32_t>(slot.tokens.size());
  info.computed = slot.computed;
  info.limit = slot.limit;
  if (slot.table.is_open()) {
    info.pages = memory::pages_for_tokens(slot.table.tokens());
  } else {
    info.waiting_ns = clock_.now_ns() - slot.waiting_since_ns;
  }
  info.stats = slot.stats;
  return info;
}

void Scheduler::list(std::vector<SequenceInfo>& out) const {
  uint32_t waiting = 0;
  uint32_t running = 0;
  while (waiting < waiting_.size() || running < running_.size()) {
    const bool take_running = waiting == waiting_.size() ||
                              (running < running_.size() && slots_[running_[running]].arrival <
                                                                slots_[waiting_[waiting]].arrival);
    const RequestSlot& slot = slots_[take_running ? running_[running++] : waiting_[waiting++]];
    if (!slot.cancelled) out.push_back(info_of(slot));
  }
}

SchedulerStats Scheduler::stats() const {
  SchedulerStats stats = totals_;
  stats.waiting = waiting_.size();
  stats.running = running_.size();
  for (uint32_t index : waiting_.slots()) stats.paused += slots_[index].paused ? 1 : 0;
  for (uint32_t index : running_.slots()) stats.paused += slots_[index].paused ? 1 : 0;
  return stats;
}

}  // namespace inferd::scheduler
