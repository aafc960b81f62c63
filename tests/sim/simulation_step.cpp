// Simulation: one step, and what is checked about it.
#include <algorithm>
#include <set>
#include <tuple>

#include "tests/sim/simulation.h"

namespace inferd::sim {

using scheduler::BatchItem;
using scheduler::FinishReason;
using scheduler::SequenceEvent;
using scheduler::SequenceInfo;
using scheduler::SequenceState;

namespace {

Error violation(std::string message) {
  return Error(ErrorCode::kInternal, "simulation: " + std::move(message));
}

std::string text(SequenceId sequence) { return "sequence " + std::to_string(sequence.value); }

}  // namespace

// Any budget will do while faults last: the fewest tokens too.
scheduler::StepBudget Simulation::random_budget(bool faults) {
  scheduler::StepBudget budget = scheduler_->step_budget();
  if (!faults || options_.flood || prng_.below(3) != 0) return budget;
  budget.tokens = 1 + static_cast<uint32_t>(prng_.below(budget.tokens));
  budget.logits = 1 + static_cast<uint32_t>(prng_.below(budget.logits));
  budget.chunk_tokens_max = static_cast<uint32_t>(prng_.below(10));
  budget.time_ns = prng_.below(2) == 0 ? 0 : 1'000'000 * static_cast<int64_t>(prng_.below(30));
  budget.cost = {10e6, 0.1e6, 0.5e6, 200};
  return budget;
}

Result<void> Simulation::step(bool faults) {
  make_stores(false);  // what ended since the last step may have left some
  if (tier_ != nullptr) tier_->advance(faults);
  lose_prefixes();
  make_stores(false);
  const scheduler::StepBudget budget = random_budget(faults);
  // What pages cost by depth: from nothing more to several times as much.
  memory_->prefixes().note_costs(1, 0.05 * static_cast<double>(prng_.below(8)));
  const bool work = scheduler_->plan(budget, plan_);
  const bool late = faults && options_.sabotage == Sabotage::kLateStore && !report_.sabotaged;
  if (late && !memory_->stores().empty()) {
    report_.sabotaged = true;
    for (const memory::PageStore& store : memory_->stores()) spoiled_.push_back(store.slot);
    announce_pages();
  }
  make_stores(faults);
  if (!work) return check_idle();
  INFERD_TRY(check_plan(budget));
  INFERD_TRY(check_admission_order());
  if (options_.flood) INFERD_TRY(check_fairness());
  if (faults && options_.sabotage == Sabotage::kSkipAnnouncement) maybe_sabotage();
  announce_pages();
  INFERD_TRY(make_loads(faults));
  note_sole_holders();
  if (faults && options_.sabotage == Sabotage::kSkipCopy && !plan_.copies.empty()) {
    for (SimClient& client : clients_) resume(client);
    plan_.copies.pop_back();
    report_.sabotaged = true;
  }
  INFERD_TRY(engine_->run(plan_));
  sample();
  clock_.advance_ns(engine_->step_ns());
  // Clients do not wait for the step to end.
  if (faults && prng_.below(4) == 0) {
    act(clients_[prng_.below(clients_.size())]);
    INFERD_TRY(trouble_);
    if (options_.verify) INFERD_TRY(scheduler_->verify());
  }
  std::vector<scheduler::ItemResult> results(sampled_.size());
  for (size_t item = 0; item < results.size(); ++item) results[item].tokens = sampled_[item];
  INFERD_TRY(check_events(scheduler_->commit(results)));
  ++report_.steps;
  return {};
}

// Nothing to compute is right only if everyone is paused.
Result<void> Simulation::check_idle() const {
  if (tier_ != nullptr && tier_->busy()) return {};
  std::vector<SequenceInfo> infos;
  scheduler_->list(infos);
  for (const SequenceInfo& info : infos) {
    if (!info.paused) return violation(text(info.sequence) + " could run, but the step is empty");
  }
  return {};
}

Result<void> Simulation::check_plan(const scheduler::StepBudget& budget) {
  uint32_t tokens = 0;
  uint32_t logits = 0;
  for (const BatchItem& item : plan_.items) {
    tokens += static_cast<uint32_t>(item.tokens.size());
    logits += item.logits_count;
    const auto found = sent_.find(item.sequence);
    if (found == sent_.end()) return violation(text(item.sequence) + " runs, but ended");
    Sent& sent = *found->second;
    if (scheduler_->info(item.sequence)->paused) {
      return violation(text(item.sequence) + " runs, but is paused");
    }
    for (uint32_t chunk_max : {budget.chunk_tokens_max, sent.request.chunk_tokens_max}) {
      if (chunk_max != 0 && item.tokens.size() > chunk_max) {
        return violation(text(item.sequence) + " has a chunk beyond its limit");
      }
    }
    INFERD_TRY(check_scores(item, sent));
  }
  if (tokens != plan_.token_count || logits != plan_.logits_count) {
    return violation("the plan's sums are wrong");
  }
  if (tokens > budget.tokens || logits > budget.logits) {
    return violation("the plan exceeds the step's budget");
  }
  return {};
}

// A score request gets the logits of each prompt position once, in order.
Result<void> Simulation::check_scores(const BatchItem& item, Sent& sent) {
  if (!sent.request.score) {
    if (item.logits_count <= 1) return {};
    return violation(text(item.sequence) + " gets logits that it did not ask for");
  }
  const uint32_t end = item.position_first + static_cast<uint32_t>(item.tokens.size());
  const uint32_t prompt_end = std::min(end, static_cast<uint32_t>(sent.prompt.size()));
  if (prompt_end <= sent.scored) return {};
  if (end - item.logits_count != sent.scored) {
    return violation(text(item.sequence) + " has a gap or a repetition in its scored positions");
  }
  sent.scored = prompt_end;
  return {};
}

// First come, first served within a session and class: who was admitted in this step is older than all of
// its like who could be and wait.
Result<void> Simulation::check_admission_order() {
  std::vector<SequenceInfo> infos;
  scheduler_->list(infos);
  std::set<std::tuple<SessionId, scheduler::PriorityClass, int32_t>> somebody_waits;
  for (const SequenceInfo& info : infos) {
    const auto found = sent_.find(info.sequence);
    if (found == sent_.end()) return violation(text(info.sequence) + " is listed, but ended");
    Sent& sent = *found->second;
    const std::tuple turn(info.session, sent.request.priority, sent.request.nice);
    if (info.state == SequenceState::kWaiting) {
      if (!info.paused && !may_wait_for_prefix(sent, infos)) somebody_waits.insert(turn);
      continue;
    }
    if (!sent.was_admitted && somebody_waits.contains(turn)) {
      return violation(text(info.sequence) + " was admitted before an older request of its session");
    }
    sent.was_admitted = true;
  }
  return {};
}

// Between two users of a class who both lack something, what they are served drifts apart by no more than
// 2 max(w_p L, w_q M) over their weights, in any interval: L tokens in the longest sequence, M in a step,
// w_p = 1 and w_q = 2 the cost of a token of prefill and of a decoded one. Where sequences are what lacks and
// not turns, as here, a step passes before somebody makes way: M more to either side.
Result<void> Simulation::check_fairness() {
  std::map<Account, bool> lacks;
  std::vector<SequenceInfo> infos;
  scheduler_->list(infos);
  for (const SequenceInfo& info : infos) {
    const Sent& sent = *sent_.at(info.sequence);
    if (info.state == SequenceState::kWaiting && !info.paused) {
      lacks[{sent.request.priority, sent.request.user}] = true;
    }
  }
  for (const BatchItem& item : plan_.items) {
    Sent& sent = *sent_.at(item.sequence);
    const uint32_t end = item.position_first + static_cast<uint32_t>(item.tokens.size());
    const bool decodes = scheduler_->info(item.sequence)->state == SequenceState::kDecoding;
    // What is computed again is not charged.
    const uint32_t news = end - std::min(end, std::max(sent.served_to, item.position_first));
    sent.served_to = std::max(sent.served_to, end);
    served_[{sent.request.priority, sent.request.user}] +=
        (decodes ? 2 : news) * 100.0 / sent.request.weight;
  }
  const uint32_t longest = scheduler_->sequence_limit().tokens;
  const double bound = 2.0 * (std::max(longest, 2 * config_.step_tokens) + config_.step_tokens);
  for (const auto& [one, one_lacks] : lacks) {
    for (const auto& [other, other_lacks] : lacks) {
      if (one.first != other.first || !(one.second < other.second)) continue;
      const double difference = served_[one] - served_[other];
      const auto [found, is_new] =
          differences_.try_emplace({one, other}, Range{difference, difference});
      Range& range = found->second;
      range = {std::min(range.low, difference), std::max(range.high, difference)};
      report_.fair_range = std::max(report_.fair_range, (range.high - range.low) / bound);
      if (range.high - range.low > bound) {
        return violation("user " + std::to_string(one.second.value) + " and user " +
                         std::to_string(other.second.value) + " both wait, and were served " +
                         std::to_string(range.high - range.low) + " apart");
      }
    }
  }
  std::erase_if(differences_, [&lacks](const auto& entry) {
    return !lacks.contains(entry.first.first) || !lacks.contains(entry.first.second);
  });
  return {};
}

// Whether a sequence that runs has a page of beginning in common with this request, so that it may let
// younger ones go first until that page is there.
bool Simulation::may_wait_for_prefix(const Sent& sent,
                                     std::span<const SequenceInfo> infos) const {
  if (sent.request.score) return false;
  for (const SequenceInfo& info : infos) {
    const auto found = sent_.find(info.sequence);
    // One that waits may have run when this one was looked at, and made way since.
    const bool ran = info.state != SequenceState::kWaiting || info.stats.preemptions > 0;
    if (!ran || info.paused || found == sent_.end()) continue;
    const Sent& other = *found->second;
    if (info.sequence == sent.request.parent) return true;
    if (sent.request.domain.value == 0 || other.request.domain != sent.request.domain) continue;
    const std::span<const TokenId> tokens = scheduler_->tokens(info.sequence);
    const std::span<const TokenId> own = scheduler_->tokens(sent.request.sequence);
    if (tokens.size() >= kPageTokens && own.size() >= kPageTokens &&
        std::equal(tokens.begin(), tokens.begin() + kPageTokens, own.begin())) {
      return true;
    }
  }
  return false;
}

// What the sampler does: one token after each item that asks for one, and now and then more, as
// speculation will. Drawn from what the engine read back, not from what should be there.
void Simulation::sample() {
  sampled_.assign(plan_.items.size(), {});
  for (size_t item = 0; item < plan_.items.size(); ++item) {
    const std::optional<SequenceInfo> info = scheduler_->info(plan_.items[item].sequence);
    const uint32_t end =
        plan_.items[item].position_first + static_cast<uint32_t>(plan_.items[item].tokens.size());
    if (end != info->tokens || info->tokens == info->limit) continue;
    uint64_t history = engine_->histories()[item];
    const uint32_t count = prng_.below(8) == 0 ? 1 + static_cast<uint32_t>(prng_.below(4)) : 1;
    for (uint32_t i = 0; i < count; ++i) {
      sampled_[item].push_back(next_token(history));
      history = extend_history(history, sampled_[item].back());
    }
  }
}

Result<void> Simulation::check_events(std::span<const SequenceEvent> events) {
  for (const SequenceEvent& event : events) INFERD_TRY(check_event(event));
  return {};
}

// Every token and every end is the one that the request has alone.
Result<void> Simulation::check_event(const SequenceEvent& event) {
  const auto found = sent_.find(event.sequence);
  if (found == sent_.end()) return violation(text(event.sequence) + " has an event after its end");
  Sent& sent = *found->second;
  if (event.session != sent.request.session) {
    return violation(text(event.sequence) + " reports to another session");
  }
  for (TokenId token : event.tokens) {
    if (sent.received == sent.expected.generated.size() ||
        token != sent.expected.generated[sent.received]) {
      return violation(text(event.sequence) + " got another token " +
                       std::to_string(sent.received) + " than alone");
    }
    ++sent.received;
  }
  if (event.stats.generated_tokens != sent.received ||
      event.stats.prompt_tokens != sent.prompt.size()) {
    return violation(text(event.sequence) + " has wrong figures");
  }
  if (event.stats.cached_tokens >= sent.prompt.size() ||
      (sent.request.domain.value == 0 && sent.request.parent.value == 0 &&
       event.stats.cached_tokens != 0)) {
    return violation(text(event.sequence) + " has " + std::to_string(event.stats.cached_tokens) +
                     " cached tokens");
  }
  if (event.finish == FinishReason::kNone) {
    if (sent.received < sent.expected.generated.size()) return {};
    return violation(text(event.sequence) + " goes on after its end");
  }
  if (event.finish != sent.expected.finish || sent.received != sent.expected.generated.size()) {
    return violation(text(event.sequence) + " ended by '" +
                     std::string(finish_reason_name(event.finish)) + "' after " +
                     std::to_string(sent.received) + " tokens, alone by '" +
                     std::string(finish_reason_name(sent.expected.finish)) + "' after " +
                     std::to_string(sent.expected.generated.size()));
  }
  if (sent.request.score && sent.scored != sent.prompt.size()) {
    return violation(text(event.sequence) + " ended before all its positions were scored");
  }
  sent_.erase(found);
  ++report_.finished;
  return {};
}

// What the index says of a page is what the engine has in it.
Result<void> Simulation::check_index() const {
  for (uint32_t index = 0; index < memory_config_.pages.value; ++index) {
    const PageId page(index);
    if (!memory_->pool().is_indexed(page)) continue;
    const std::span<const TokenId> expected = memory_->prefixes().tokens_of(page);
    const std::span<const TokenId> written = engine_->tokens_of(page);
    if (!std::equal(expected.begin(), expected.end(), written.begin())) {
      return violation("the index has page " + std::to_string(index) + " for other tokens");
    }
  }
  return {};
}

// What a slot of the next tier holds is what the index says, unless it was lost.
Result<void> Simulation::check_tier() const {
  Result<void> verdict;
  if (tier_ == nullptr) return verdict;
  memory_->prefixes().visit_stored([&](uint32_t, uint32_t, CacheDomain, memory::SlotRef slot,
                                       std::span<const TokenId> tokens) {
    const std::span<const TokenId> content = tier_->content(slot);
    if (content.empty() || std::equal(tokens.begin(), tokens.end(), content.begin())) return;
    verdict = violation("slot " + std::to_string(slot.slot) + " holds another page's content");
  });
  return verdict;
}

// All invariants; and, counted here from the tables alone, references, charges and sums.
Result<void> Simulation::check_state() const {
  if (!options_.verify) return {};
  INFERD_TRY(scheduler_->verify());
  INFERD_TRY(check_index());
  INFERD_TRY(check_tier());
  const memory::PagePool& pool = memory_->pool();
  std::map<PageId, uint32_t> references;
  std::map<UserId, uint32_t> charges;
  const std::span<const memory::SequenceRecord> records = memory_->sequences().records();
  for (uint32_t slot = 0; slot < records.size(); ++slot) {
    if (records[slot].id.value != 0 && !sent_.contains(records[slot].id)) {
      return violation(text(records[slot].id) + " ended, but holds a page table");
    }
    for (PageId page : memory_->sequences().pages_of_slot(slot)) {
      if (++references[page] == 1) ++charges[pool.charged_to(page)];
    }
  }
  for (PageId page = pool.first_cached(); page != kNoPage; page = pool.cached_after(page)) {
    ++charges[pool.charged_to(page)];
  }
  for (const auto& [page, count] : references) {
    if (pool.references(page) != count) return violation("a page counts strange references");
  }
  for (const auto& [user, count] : charges) {
    if (pool.charged_pages(user).value != count) return violation("a user's charge is wrong");
    // What is cached beyond the quota goes, but for what another user's pages or a pin stand behind.
    uint32_t live = 0;
    for (const auto& entry : references) live += pool.charged_to(entry.first) == user ? 1 : 0;
    if (config_.user_quota.pages != 0 && live > config_.user_quota.pages) {
      return violation("a user holds more pages than the quota allows");
    }
  }
  const memory::PageCounts counts = pool.counts();
  const PageCount sum =
      counts.free + counts.reserved + counts.owned + counts.shared + counts.cached;
  if (sum != counts.total || counts.live().value != references.size() ||
      counts.reserved.value != 0) {
    return violation("the pool's counts do not sum up");
  }
  return {};
}

}  // namespace inferd::sim
