// Scheduler: whether another request of a user or a client is within what they may have.
#include <algorithm>
#include <string>

#include "scheduler/scheduler.h"

namespace inferd::scheduler {

void Scheduler::set_quotas(const Quota& user, const Quota& session) {
  config_.user_quota = user;
  config_.session_quota = session;
}

// The tokens at which a request ends. One that asks for all there is gets no more than the pages
// that its user and its client may have.
uint32_t Scheduler::token_limit(const Request& request) const {
  const auto prompt_tokens = static_cast<uint32_t>(request.prompt.size());
  if (request.max_tokens != kUnlimitedTokens) return prompt_tokens + request.max_tokens;
  uint64_t limit = limit_.tokens;
  for (const Quota* quota : {&config_.user_quota, &config_.session_quota}) {
    if (quota->pages != 0) limit = std::min(limit, uint64_t{quota->pages} * kPageTokens);
  }
  return std::max(static_cast<uint32_t>(limit), prompt_tokens + 1);
}

Result<void> Scheduler::check_quotas(const Request& request) const {
  const Quota& for_user = config_.user_quota;
  const Quota& for_session = config_.session_quota;
  const std::string user = "user " + std::to_string(request.user.value);
  constexpr std::string_view kSession = "this connection";
  if (for_user.any_held() || for_session.any_held()) {
    Holdings of_user;
    Holdings of_session;
    const auto count = [&](const RequestSlot& slot, bool waiting) {
      const uint64_t pages = memory::pages_for_tokens(slot.limit).value;
      if (slot.user == request.user) of_user.add(waiting, pages);
      if (slot.session == request.session) of_session.add(waiting, pages);
    };
    for (uint32_t index : waiting_.slots()) count(slots_[index], true);
    for (uint32_t index : running_.slots()) count(slots_[index], false);
    const uint64_t pages = memory::pages_for_tokens(token_limit(request)).value;
    INFERD_TRY(check_quota(for_user, of_user, pages, user, "user"));
    INFERD_TRY(check_quota(for_session, of_session, pages, kSession, "client"));
  }
  const int64_t now_ns = clock_.now_ns();
  INFERD_TRY(check_rate(user_rates_.wait_ns(request.user.value, for_user.tokens_per_s, now_ns),
                        for_user.tokens_per_s, user, "user"));
  return check_rate(session_rates_.wait_ns(request.session.value, for_session.tokens_per_s, now_ns),
                    for_session.tokens_per_s, kSession, "client");
}

// A user's cached pages make room for the same user's other ones.
void Scheduler::keep_within_pages(UserId user) {
  const PageCount pages(config_.user_quota.pages);
  if (pages.value == 0 || memory_.pool().charged_pages(user) <= pages) return;
  memory_.drop_cached_of(user, pages);
}

// So that charging what the request computes allocates nothing.
void Scheduler::open_rates(const Request& request) {
  const int64_t now_ns = clock_.now_ns();
  if (config_.user_quota.tokens_per_s != 0) user_rates_.open(request.user.value, now_ns);
  if (config_.session_quota.tokens_per_s != 0) session_rates_.open(request.session.value, now_ns);
}

void Scheduler::charge_rates(const RequestSlot& slot, uint32_t computed) {
  const uint32_t for_user = config_.user_quota.tokens_per_s;
  const uint32_t for_session = config_.session_quota.tokens_per_s;
  if (for_user == 0 && for_session == 0) return;
  const int64_t now_ns = clock_.now_ns();
  if (for_user != 0) user_rates_.charge(slot.user.value, computed, for_user, now_ns);
  if (for_session != 0) session_rates_.charge(slot.session.value, computed, for_session, now_ns);
}

}  // namespace inferd::scheduler
