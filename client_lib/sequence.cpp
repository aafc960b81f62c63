#include "client_lib/sequence.h"

#include "client_lib/connection.h"

namespace inferd::client_lib {

void TokenBatch::append(const TokenBatch& other, size_t index, size_t top_count) {
  ids.push_back(other.ids[index]);
  if (other.logprobs.empty()) return;
  logprobs.push_back(other.logprobs[index]);
  const auto first = other.top.begin() + static_cast<std::ptrdiff_t>(index * top_count);
  top.insert(top.end(), first, first + static_cast<std::ptrdiff_t>(top_count));
}

void TokenBatch::drop_front(size_t count, size_t top_count) {
  const auto n = static_cast<std::ptrdiff_t>(count);
  ids.erase(ids.begin(), ids.begin() + n);
  if (logprobs.empty()) return;
  logprobs.erase(logprobs.begin(), logprobs.begin() + n);
  top.erase(top.begin(), top.begin() + n * static_cast<std::ptrdiff_t>(top_count));
}

Result<Sequence::Status> Sequence::next(int timeout_ms, inferd_event& event) {
  if (over_) return Status::kOver;
  work_.drop_front(handed_, top_count_);
  handed_ = 0;
  stream_.take_text();
  std::optional<Deadline> deadline;
  if (timeout_ms >= 0) {
    deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  }
  for (;;) {
    incoming_.clear();
    const Connection::Arrival arrival = connection_.collect(*this, timeout_ms != 0, deadline);
    const bool nothing = incoming_.empty() && !arrival.ended;
    if (absorb()) {
      connection_.truncate(*this, stream_.released_tokens());
      over_ = true;
      fill_event(event, INFERD_FINISH_STOP);
      return Status::kEvent;
    }
    if (arrival.ended) {
      // What is held back of a lost sequence belongs to its resumption, which gets those tokens
      // again: only then is it known whether a stop string begins there.
      const bool matched = !arrival.lost && stream_.finish();
      if (arrival.error && !matched) {
        // What came before the error is delivered first; the next call finds nothing but the error.
        if (fill_event(event, INFERD_FINISH_NONE)) return Status::kEvent;
        over_ = true;
        event.finish = INFERD_FINISH_ERROR;
        return *arrival.error;
      }
      over_ = true;
      fill_event(event, matched ? INFERD_FINISH_STOP : arrival.reason);
      return Status::kEvent;
    }
    if (fill_event(event, INFERD_FINISH_NONE)) return Status::kEvent;
    // Without waiting, only a look that found nothing has armed the doorbell for the event loop.
    if (timeout_ms == 0 && nothing) return Status::kTimedOut;
    if (timeout_ms > 0 && std::chrono::steady_clock::now() >= *deadline) return Status::kTimedOut;
  }
}

// Pushes what was collected into the text stream. True if a stop string matched.
bool Sequence::absorb() {
  for (size_t i = 0; i < incoming_.size(); ++i) {
    work_.append(incoming_, i, top_count_);
    if (stream_.push(incoming_.ids[i])) return true;
  }
  return false;
}

// Points `event` at what is released and was not handed out before. False if that is nothing.
bool Sequence::fill_event(inferd_event& event, inferd_finish finish) {
  handed_ = stream_.released_tokens() - released_;
  released_ = stream_.released_tokens();
  delivered_.store(released_, std::memory_order_relaxed);
  if (handed_ > 0) {
    const std::lock_guard lock(lineage_mutex_);
    const auto end = work_.ids.begin() + static_cast<std::ptrdiff_t>(handed_);
    lineage_.tokens.insert(lineage_.tokens.end(), work_.ids.begin(), end);
    lineage_.answered += handed_;
  }
  event.text = stream_.text().data();
  event.text_bytes = stream_.text().size();
  event.ids = work_.ids.data();
  event.ids_count = handed_;
  event.logprobs = logprobs_ ? work_.logprobs.data() : nullptr;
  event.top_logprobs = top_count_ > 0 ? work_.top.data() : nullptr;
  event.top_logprobs_count = top_count_;
  event.finish = finish;
  return handed_ > 0 || event.text_bytes > 0;
}

}  // namespace inferd::client_lib
