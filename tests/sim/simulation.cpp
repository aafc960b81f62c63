#include "tests/sim/simulation.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace inferd::sim {

using scheduler::Request;

namespace {

constexpr UserId kFirstUser{1000};
constexpr uint32_t kUsers = 3;

Error violation(std::string message) {
  return Error(ErrorCode::kInternal, "simulation: " + std::move(message));
}

std::string text(SequenceId sequence) { return "sequence " + std::to_string(sequence.value); }

uint32_t random_in(Prng& prng, uint32_t low, uint32_t high) {
  return low + static_cast<uint32_t>(prng.below(uint64_t{high} - low + 1));
}

}  // namespace

Simulation::Simulation(const SimOptions& options) : options_(options), prng_(options.seed) {
  memory_config_.pages = PageCount(random_in(prng_, 3, 24));
  memory_config_.sequences_max = random_in(prng_, 1, 8);
  memory_config_.sequence_tokens_max = random_in(prng_, 20, 200);
  config_.step_tokens = random_in(prng_, memory_config_.sequences_max, 64);
  config_.step_logits = random_in(prng_, memory_config_.sequences_max, 16);
  config_.context_tokens = random_in(prng_, 20, 200);
  config_.queue_max = random_in(prng_, 1, 12);
  config_.session_requests_max = prng_.below(3) == 0 ? random_in(prng_, 1, 6) : 0;
  if (prng_.below(4) == 0) {
    config_.user_quota.pages = random_in(prng_, 1, 20);
    config_.user_quota.sequences = prng_.below(2) == 0 ? random_in(prng_, 1, 4) : 0;
  }
  if (options_.flood) {
    config_.user_quota = {};
    memory_config_.sequences_max = random_in(prng_, 4, 8);
    config_.step_tokens = random_in(prng_, 8, 64);
    config_.step_logits = random_in(prng_, 8, 16);
    memory_config_.pages = PageCount(memory_config_.sequences_max * 13);  // 200 tokens each
    config_.queue_max = 32;
    config_.session_requests_max = 4;
  }
  if (!options_.flood && prng_.below(2) == 0) {
    memory_config_.tier_slots = random_in(prng_, 1, 40);
    tier_ = std::make_unique<SimTier>(prng_.next());
  }
  memory_ = std::make_unique<memory::PagedMemory>(memory_config_);
  memory_->set_tier(tier_.get());
  engine_ = std::make_unique<SimEngine>(memory_config_.pages, StepCost{});
  scheduler_ = std::make_unique<scheduler::Scheduler>(config_, *memory_, clock_);
  for (uint32_t i = 0; i < 3; ++i) {
    std::vector<TokenId>& preamble = preambles_.emplace_back();
    for (uint32_t k = 0; k < 200; ++k) {
      preamble.push_back(static_cast<TokenId>(prng_.below(kVocabulary)));
    }
  }
  const uint32_t clients = options_.flood ? 6 : random_in(prng_, 1, 6);
  for (uint32_t i = 0; i < clients; ++i) {
    const uint32_t number = options_.flood ? i % kUsers : random_in(prng_, 0, kUsers - 1);
    const UserId user(kFirstUser.value + number);
    clients_.push_back({SessionId(i + 1), user, 0});
  }
}

Simulation::~Simulation() = default;

void Simulation::abandon(std::unique_ptr<Simulation> simulation) {
  // Its destructors would meet the damage and abort, as they should. Kept, so that it is no leak.
  static auto& abandoned = *new std::vector<Simulation*>;
  abandoned.push_back(simulation.release());
}

Result<void> Simulation::run() {
  // Unfairness shows only while there is a crowd.
  const bool go_on = options_.sabotage == Sabotage::kUnfairCharge;
  for (uint32_t i = 0; i < options_.fault_ticks && (!report_.sabotaged || go_on); ++i) {
    INFERD_TRY(tick(true));
  }
  if (!report_.sabotaged) {
    for (SimClient& client : clients_) resume(client);
  }
  const uint64_t bound = steps_bound();
  uint64_t waits = 0;  // for the next tier, with nothing else to do
  for (uint64_t i = 0; !sent_.empty(); ++i) {
    const uint64_t steps = report_.steps;
    if (i > bound + waits || waits > 20 * bound) {
      return violation(text(sent_.begin()->first) + " has not ended " + std::to_string(bound) +
                       " steps after the last fault");
    }
    INFERD_TRY(tick(false));
    if (report_.steps == steps && tier_ != nullptr && tier_->busy()) ++waits;
  }
  report_.preemptions = scheduler_->stats().preemptions;
  report_.cached_tokens = scheduler_->stats().cached_tokens;
  report_.loaded_tokens = scheduler_->stats().loaded_tokens;
  if (tier_ != nullptr) report_.tier_losses = tier_->losses();
  if (!scheduler_->idle())
    return violation("the scheduler still has work, but every request ended");
  if (memory_->available() != memory_config_.pages) {
    return violation("pages are in use, but no request is");
  }
  memory_->prefixes().flush_all();
  forget_spoiled();
  if (memory_->pool().counts().free != memory_config_.pages) {
    return violation("pages are left when the index is empty");
  }
  if (memory_->prefixes().slots_used() != 0) {
    return violation("slots are left when the index is empty");
  }
  return memory_->verify();
}

// One token a step is the least that a step does. What is computed twice is bounded by the pages
// that older sequences grow (see scheduler.h); twice the plain work has been ample in every seed.
uint64_t Simulation::steps_bound() const {
  uint64_t tokens = 0;
  for (const auto& [sequence, sent] : sent_) {
    tokens += sent->prompt.size() + sent->expected.generated.size();
  }
  return 2 * tokens + 16;
}

Result<void> Simulation::tick(bool faults) {
  if (faults) {
    for (SimClient& client : clients_) act(client);
    INFERD_TRY(trouble_);
  }
  INFERD_TRY(step(faults));
  forget_spoiled();
  // An announcement can only be skipped while it is due: see step().
  if (faults && options_.sabotage != Sabotage::kSkipAnnouncement) maybe_sabotage();
  return check_state();
}

// The planted fault is the last one: a later cancellation could take the evidence away.
void Simulation::maybe_sabotage() {
  if (options_.sabotage == Sabotage::kNone || report_.sabotaged || prng_.below(10) != 0) return;
  for (SimClient& client : clients_) resume(client);
  report_.sabotaged =
      scheduler::SchedulerSaboteur::strike(*scheduler_, *memory_, options_.sabotage, prng_);
}

void Simulation::act(SimClient& client) {
  if (options_.flood) {
    for (uint32_t i = 0; i < config_.session_requests_max && trouble_.ok(); ++i) {
      trouble_ = submit_random(client);
    }
    return;
  }
  if (client.stalled_ticks > 0 && --client.stalled_ticks == 0) resume(client);
  const uint64_t dice = prng_.below(100);
  if (dice < 18) {
    if (trouble_.ok()) trouble_ = submit_random(client);
  } else if (dice < 20) {
    // A flood: as much as is taken, and more.
    for (uint32_t i = 0; i < 2 * config_.queue_max && trouble_.ok(); ++i) {
      trouble_ = submit_random(client);
    }
  } else if (dice < 24) {
    cancel_random(client);
  } else if (dice < 26) {
    crash(client);
  } else if (dice < 30) {
    stall(client, random_in(prng_, 1, 20));
  } else if (dice < 33) {
    renice_random(client);
  }
}

// Often with a beginning that others have too, then on its own.
std::vector<TokenId> Simulation::random_prompt(uint32_t tokens) {
  std::vector<TokenId> prompt;
  if (prng_.below(3) != 0) {
    const std::vector<TokenId>& preamble = preambles_[prng_.below(preambles_.size())];
    const uint32_t common = std::min<uint32_t>(random_in(prng_, 0, 200), tokens);
    prompt.assign(preamble.begin(), preamble.begin() + common);
  }
  while (prompt.size() < tokens) {
    prompt.push_back(static_cast<TokenId>(prng_.below(kVocabulary)));
  }
  return prompt;
}

Result<void> Simulation::submit_random(SimClient& client) {
  auto sent = std::make_unique<Sent>();
  const uint32_t limit = scheduler_->sequence_limit().tokens;
  // Now and then nothing, or more than fits.
  const uint32_t prompt_tokens =
      prng_.below(20) == 0 ? random_in(prng_, 0, 2 * limit) : random_in(prng_, 1, limit - 1);
  sent->prompt = random_prompt(prompt_tokens);
  const uint32_t stop_count = random_in(prng_, 0, 2);
  for (uint32_t i = 0; i < stop_count; ++i) {
    sent->stop_tokens.push_back(static_cast<TokenId>(prng_.below(kVocabulary)));
  }
  Request& request = sent->request;
  request.sequence = SequenceId(++last_sequence_);
  request.session = client.session;
  request.user = client.user;
  if (!options_.flood && prng_.below(4) == 0) maybe_fork(client, *sent);
  request.prompt = sent->prompt;
  request.stop_tokens = sent->stop_tokens;
  if (prng_.below(3) != 0) request.max_tokens = random_in(prng_, 0, limit);
  request.score = prng_.below(8) == 0;
  // One's own domain, one that all share, or none.
  const uint64_t domain = prng_.below(8);
  request.domain = domain == 0 ? CacheDomain() : CacheDomain(domain < 3 ? 7 : client.user.value);
  constexpr uint32_t kChunks[] = {0, 0, 1, 7, 64};
  request.chunk_tokens_max = kChunks[prng_.below(std::size(kChunks))];
  if (options_.flood) {
    // Nothing that would keep a request from using a share that it has a right to.
    request.domain = CacheDomain();
    request.chunk_tokens_max = 0;
    request.score = false;
  }
  if (!options_.flood) {
    request.priority = static_cast<scheduler::PriorityClass>(prng_.below(2) * prng_.below(3));
  }
  request.nice =
      !options_.flood && prng_.below(4) == 0 ? static_cast<int32_t>(prng_.below(40)) - 20 : 0;
  request.weight = request.user.value % 2 == 0 ? 100 : 300;
  const Result<void> answer = scheduler_->submit(request);
  INFERD_TRY(check_answer_to_submit(request, answer));
  if (!answer) {
    ++report_.refused;
    return {};
  }
  sent->limit_tokens = limit_of(request);
  const uint32_t context = std::min(limit, sent->limit_tokens);
  sent->expected = expected_outcome(sent->prompt, request.max_tokens, sent->stop_tokens, context);
  if (client.stalled_ticks > 0) scheduler_->pause(request.sequence);
  sent_.emplace(request.sequence, std::move(sent));
  return {};
}

// Goes on from where one of the client's sequences is, whole or in part.
void Simulation::maybe_fork(const SimClient& client, Sent& sent) {
  for (const auto& [sequence, other] : sent_) {
    if (other->request.session != client.session || prng_.below(2) == 0) continue;
    const std::span<const TokenId> tokens = scheduler_->tokens(sequence);
    const uint32_t common = random_in(prng_, 1, static_cast<uint32_t>(tokens.size()));
    const uint32_t own = random_in(prng_, 0, 4);
    sent.prompt.assign(tokens.begin(), tokens.begin() + common);
    for (uint32_t i = 0; i < own; ++i) {
      sent.prompt.push_back(static_cast<TokenId>(prng_.below(kVocabulary)));
    }
    sent.request.parent = sequence;
    return;
  }
}

void Simulation::renice_random(const SimClient& client) {
  for (const auto& [sequence, sent] : sent_) {
    if (sent->request.session != client.session) continue;
    sent->request.priority = static_cast<scheduler::PriorityClass>(prng_.below(3));
    sent->request.nice = static_cast<int32_t>(prng_.below(40)) - 20;
    if (!scheduler_->renice(sequence, sent->request.priority, sent->request.nice)) {
      trouble_ = violation(text(sequence) + " was not known to renice()");
    }
    return;
  }
}

// Where the request ends at the latest: one that asks for all there is gets what its user may have.
uint32_t Simulation::limit_of(const Request& request) const {
  const auto prompt = static_cast<uint32_t>(request.prompt.size());
  if (request.max_tokens != scheduler::kUnlimitedTokens) return prompt + request.max_tokens;
  uint32_t limit = scheduler_->sequence_limit().tokens;
  const uint32_t pages = config_.user_quota.pages;
  if (pages != 0) limit = std::min(limit, pages * kPageTokens);
  return std::max(limit, prompt + 1);
}

// Whether the user has so much, counted from what was accepted, that this must wait.
bool Simulation::over_quota(const Request& request) const {
  uint32_t sequences = 0;
  uint32_t pages = memory::pages_for_tokens(limit_of(request)).value;
  for (const auto& [id, sent] : sent_) {
    if (sent->request.user != request.user) continue;
    ++sequences;
    pages += memory::pages_for_tokens(sent->limit_tokens).value;
  }
  const scheduler::Quota& quota = config_.user_quota;
  return (quota.sequences != 0 && sequences >= quota.sequences) ||
         (quota.pages != 0 && pages > quota.pages);
}

// Refused at once exactly if it can never fit; told to wait only if a queue limit or a quota is reached.
Result<void> Simulation::check_answer_to_submit(const Request& request,
                                                const Result<void>& answer) {
  const uint64_t generate =
      request.max_tokens == scheduler::kUnlimitedTokens ? 1 : request.max_tokens;
  const scheduler::Quota& quota = config_.user_quota;
  const bool fits =
      request.prompt.size() + generate <= scheduler_->sequence_limit().tokens &&
      (quota.pages == 0 || memory::pages_for_tokens(limit_of(request)).value <= quota.pages);
  const ErrorCode code = answer ? ErrorCode::kOk : answer.error().code();
  if (request.prompt.empty()) {
    if (code == ErrorCode::kInvalidArgument) return {};
    return violation("an empty prompt was not refused");
  }
  const bool over = over_quota(request);
  if (code == ErrorCode::kOk && over) return violation("a request beyond its user's quota was accepted");
  // Who has too many requests already is told so first.
  if (!fits && code == ErrorCode::kUnavailable) return {};
  if (fits == (code == ErrorCode::kResourceExhausted)) {
    return violation("a request that " + std::string(fits ? "fits" : "can never fit") + " got '" +
                     (answer ? "accepted" : answer.error().message()) + "'");
  }
  if (code == ErrorCode::kUnavailable && config_.session_requests_max == 0 && !over &&
      scheduler_->stats().waiting < config_.queue_max) {
    return violation("a request was told to wait though the queue has room");
  }
  return {};
}

void Simulation::cancel_random(SimClient& client) {
  std::vector<SequenceId> own;
  for (const auto& [sequence, sent] : sent_) {
    if (sent->request.session == client.session) own.push_back(sequence);
  }
  if (own.empty()) return;
  const SequenceId sequence = own[prng_.below(own.size())];
  if (!scheduler_->cancel(sequence)) {
    trouble_ = violation(text(sequence) + " was not known to cancel()");
  }
  if (scheduler_->cancel(sequence)) trouble_ = violation(text(sequence) + " was cancelled twice");
  sent_.erase(sequence);
  ++report_.cancelled;
}

// The client dies and another one takes its place.
void Simulation::crash(SimClient& client) {
  uint32_t own = 0;
  for (auto next = sent_.begin(); next != sent_.end();) {
    const bool its_own = next->second->request.session == client.session;
    own += its_own ? 1 : 0;
    next = its_own ? sent_.erase(next) : std::next(next);
  }
  const uint32_t cancelled = scheduler_->cancel_session(client.session);
  if (cancelled != own) trouble_ = violation("a crash did not end all that the client had");
  report_.cancelled += cancelled;
  client.session = SessionId(client.session.value + clients_.size());
  client.user = UserId(kFirstUser.value + random_in(prng_, 0, kUsers - 1));
  client.stalled_ticks = 0;
}

void Simulation::stall(SimClient& client, uint32_t ticks) {
  client.stalled_ticks = ticks;
  for (const auto& [sequence, sent] : sent_) {
    if (sent->request.session == client.session) scheduler_->pause(sequence);
  }
}

void Simulation::resume(SimClient& client) {
  client.stalled_ticks = 0;
  for (const auto& [sequence, sent] : sent_) {
    if (sent->request.session == client.session) scheduler_->resume(sequence);
  }
}

// Now and then the index loses something: by age, a domain's, or all.
void Simulation::lose_prefixes() {
  memory_->pool().set_now(static_cast<uint32_t>(clock_.now_ns() / 1'000'000'000));
  const uint64_t dice = prng_.below(60);
  if (dice == 0) memory_->prefixes().flush(CacheDomain(kFirstUser.value));
  if (dice == 1) memory_->prefixes().flush_all();
  if (dice == 2) memory_->drop_cached(UINT32_MAX, random_in(prng_, 0, 3));
  if (dice == 3) {
    const std::vector<TokenId>& preamble = preambles_[prng_.below(preambles_.size())];
    memory_->prefixes().pin(CacheDomain(7), preamble, kFirstUser, random_in(prng_, 0, 8));
  }
  if (dice == 4) memory_->prefixes().unpin(kFirstUser);
  // With a next tier, that is where they go.
  if (dice >= 20 && dice < 28 && tier_ != nullptr) memory_->drop_cached(UINT32_MAX, random_in(prng_, 0, 8));
  if (dice >= 5 && dice < 15) {
    const uint32_t low = random_in(prng_, 0, 20);
    memory_->store_ahead({PageCount(low), PageCount(low + random_in(prng_, 0, 4))}, random_in(prng_, 0, 3));
  }
}

// As the daemon does, before any page is handed out again or given back.
void Simulation::make_stores(bool faults) {
  for (const memory::PageStore& store : memory_->stores()) {
    std::array<TokenId, kPageTokens> tokens;
    const std::span<const TokenId> content = engine_->tokens_of(store.page);
    std::copy(content.begin(), content.end(), tokens.begin());
    // The last one stays until the next plan.
    const bool last = &store == &memory_->stores().back();
    if (faults && last && options_.sabotage == Sabotage::kSkipStore && !report_.sabotaged) {
      tokens[prng_.below(kPageTokens)] = kNoToken;
      report_.sabotaged = true;
      spoiled_.push_back(store.slot);
    }
    tier_->store(store.slot, tokens);
  }
  memory_->stores().clear();
}

// What went out of the tier again, or was dropped, before anybody looked at it did no harm.
void Simulation::forget_spoiled() {
  if (spoiled_page_ != kNoPage) {
    const auto reads = [this](const scheduler::BatchItem& item) {
      return std::ranges::find(item.pages, spoiled_page_) != item.pages.end();
    };
    const bool read = std::ranges::any_of(plan_.items, reads);
    const bool gone = memory_->pool().state(spoiled_page_) == memory::PageState::kFree;
    if (gone && !read) report_.sabotaged = false;
    if (gone || read) spoiled_page_ = kNoPage;
  }
  if (spoiled_.empty()) return;
  const auto there = [this](memory::SlotRef slot) {
    return memory_->prefixes().holds(slot) && !tier_->content(slot).empty();
  };
  report_.sabotaged = std::any_of(spoiled_.begin(), spoiled_.end(), there);
  if (!report_.sabotaged) spoiled_.clear();
}

Result<void> Simulation::make_loads(bool faults) {
  for (const scheduler::PageLoad& load : plan_.loads) {
    const std::span<const TokenId> content = tier_->load(load.slot);
    INFERD_TRY(engine_->load_page(load.page, content));
    if (faults && options_.sabotage == Sabotage::kWrongLoad && !report_.sabotaged) {
      engine_->page_taken(load.page);
      std::vector<TokenId> other(content.begin(), content.end());
      other.front() = other.front() == 0 ? 1 : 0;
      INFERD_TRY(engine_->load_page(load.page, other));
      report_.sabotaged = true;
      spoiled_page_ = load.page;
    }
  }
  return {};
}

// Who had the beginning of a shared page, and is the only one to hold it when the step is planned, may write
// the rest of it.
void Simulation::note_sole_holders() {
  for (const scheduler::BatchItem& item : plan_.items) {
    if (item.position_first % kPageTokens == 0) continue;
    const PageId page = item.pages[item.position_first / kPageTokens];
    if (memory_->pool().state(page) == memory::PageState::kOwned) {
      engine_->page_left_to(page, item.position_first, item.sequence);
    }
  }
}

// As the daemon does before each step, from the lists that memory hands out.
void Simulation::announce_pages() {
  std::array<PageId, 7> pages;
  for (size_t count = pages.size(); count == pages.size();) {
    count = memory_->pool().drain_taken(pages);
    for (size_t i = 0; i < count; ++i) engine_->page_taken(pages[i]);
  }
  const PageCount idle_keep(random_in(prng_, 0, 8));
  const size_t given_back = memory_->pool().give_back(idle_keep, pages);
  for (size_t i = 0; i < given_back; ++i) engine_->page_released(pages[i]);
}

}  // namespace inferd::sim
